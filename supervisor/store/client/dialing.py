"""Connects to a host by name, within one deadline for all of it: the look-up and every address of the name.

Guarantees
    The look-up runs on a thread of its own, one at a time for each name; a name server that hangs
    costs the caller its deadline and nothing else.
    Addresses are tried beside each other, each begun a little after the one before, so that a silent
    one takes no time from the others. The one that served last comes first.
    While a name cannot be looked up, the address that served last is used for it.

Does not guarantee
    That the address used for a name is still its own: its role is asked by the
    caller, as of any other. A name that does not exist by the name server's reply is refused.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from supervisor.clock import Clock, SystemClock
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.store.client import threads

PATIENCE_NS = 250_000_000
"""How long a look-up may take while there is an address that served; at most a third of what a caller has."""

STAGGER_NS = 250_000_000
"""How long an address has before the next one is tried beside it; less where there are many, or little time."""

START_NS = SECOND_NS
"""How long the thread of a look-up may take to start; a fork or a signal in that moment lets it never start."""

_GONE = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


class Address(NamedTuple):
    """One address of a host, as ``socket.getaddrinfo`` gives it."""

    family: int
    kind: int
    protocol: int
    where: Any


class _LookUp:
    """One look-up of a name, which ends by the system's decision."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.began_ns = clock.elapsed_ns()
        self.answer: Future[list[Address]] = Future()
        self._thread: threading.Thread | None = None

    def start(self, host: str, port: int) -> None:
        """Begin it; where the system has no thread to give, that is the answer."""
        try:
            self._thread = threads.start(partial(self._work, host, port), "look-up")
        except OSError as error:
            self.answer.set_exception(error)

    @property
    def is_alive(self) -> bool:
        """True if it is under way, or has an answer; a fork takes the thread away, or a signal comes before it."""
        if self._thread is None:
            return self.answer.done() or self._clock.elapsed_ns() < self.began_ns + START_NS
        return self.answer.done() or self._thread.is_alive()

    def _work(self, host: str, port: int) -> None:
        try:
            self.answer.set_result(_addresses(host, port))
        except OSError as error:
            self.answer.set_exception(error)
        except UnicodeError as error:
            self.answer.set_exception(socket.gaierror(socket.EAI_NONAME, f"no name of a host ({error})"))


class Dialler:
    """Connects, for one client or one search; it remembers which address served."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._looking: dict[tuple[str, int], _LookUp] = {}
        self._served: dict[tuple[str, int], Address] = {}

    def until_ns(self, bound_s: float | None) -> int:
        """Return the deadline that is ``bound_s`` seconds away; None: as far as can be."""
        return self._clock.elapsed_ns() + int((3600.0 if bound_s is None else bound_s) * SECOND_NS)

    def left_s(self, until_ns: int) -> float:
        """Return how long it is until then.

        Raises:
            TimeoutError: it is over.
        """
        left_s = (until_ns - self._clock.elapsed_ns()) / SECOND_NS
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def dial(self, host: str, port: int, until_ns: int, prepare: Callable[[socket.socket], None]) -> socket.socket:
        """Return a socket, connected and blocking, that ``prepare`` was given before it was connected.

        Raises:
            OSError: nobody there took the connection, or the name cannot be looked up; ``TimeoutError``: not in time.
        """
        place = (host, port)
        sock, address = self._race(self._find(place, until_ns), until_ns, prepare)
        self._served[place] = address
        return sock

    def _find(self, place: tuple[str, int], until_ns: int) -> list[Address]:
        """Return where to connect, the best first. Raises ``OSError`` as ``dial`` does."""
        if _is_address(place[0]):
            return _addresses(*place)
        served = self._served.get(place)
        look_up = self._look_up(place)
        left_ns = until_ns - self._clock.elapsed_ns()
        wait_until_ns = until_ns - left_ns // 10  # so that it is told what there was no answer from
        if served is not None:
            wait_until_ns = look_up.began_ns + min(PATIENCE_NS, left_ns // 3)
        if not wait([look_up.answer], max(0.0, (wait_until_ns - self._clock.elapsed_ns()) / SECOND_NS)).done:
            if served is None:
                raise socket.gaierror(socket.EAI_AGAIN, "The name server gives no answer in time")
            return [served]  # the answer stays for the next caller
        self.left_s(until_ns)  # as it does where this one's time is over
        self._looking.pop(place, None)
        try:
            found = look_up.answer.result()
        except OSError as error:
            if served is None or (isinstance(error, socket.gaierror) and error.errno in _GONE):
                raise
            return [served]
        return sorted(found, key=lambda address: address != served)

    def _look_up(self, place: tuple[str, int]) -> _LookUp:
        """Return the look-up that is under way, or begin one; callers of one loop dial on threads of their own."""
        found = self._looking.get(place)
        if found is not None and not found.is_alive:
            self._looking.pop(place, None)
        begun = _LookUp(self._clock)
        found = self._looking.setdefault(place, begun)  # one step, which no other thread divides
        if found is begun:
            begun.start(*place)
        return found

    def _race(
        self, addresses: Sequence[Address], until_ns: int, prepare: Callable[[socket.socket], None]
    ) -> tuple[socket.socket, Address]:
        """Return the first connection established, and its address."""
        waiting = list(addresses)
        stagger_ns = min(STAGGER_NS, int(self.left_s(until_ns) * SECOND_NS) // (len(waiting) + 1))
        begun: dict[int, tuple[socket.socket, Address]] = {}
        poller = select.poll()
        error: OSError = OSError("the name has no address")
        try:
            while waiting or begun:
                if waiting:
                    address = waiting.pop(0)
                    try:
                        sock = _begin(address, prepare)
                    except OSError as refused:
                        error = refused
                        continue
                    begun[sock.fileno()] = (sock, address)
                    poller.register(sock, select.POLLOUT)
                left_ms = self.left_s(until_ns) * 1000
                for number, _ in poller.poll(min(left_ms, stagger_ns / MILLISECOND_NS) if waiting else left_ms):
                    sock, address = begun.pop(number)
                    poller.unregister(number)
                    failure = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if not failure:
                        sock.setblocking(True)  # noqa: FBT003 - as the library has it
                        return sock, address
                    sock.close()
                    error = OSError(failure, os.strerror(failure))
            raise error
        finally:
            for sock, _ in begun.values():
                sock.close()


def _begin(address: Address, prepare: Callable[[socket.socket], None]) -> socket.socket:
    """Begin to connect; return the socket, which becomes ready when it is done."""
    sock = socket.socket(address.family, address.kind, address.protocol)
    try:
        prepare(sock)
        sock.setblocking(False)  # noqa: FBT003 - as the library has it
        with suppress(BlockingIOError):
            sock.connect(address.where)
    except BaseException:
        sock.close()
        raise
    return sock


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return True
    return False


def _addresses(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    return [Address(family, kind, protocol, where) for family, kind, protocol, _, where in found]
