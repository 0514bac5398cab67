"""The clients: one synchronous, one asynchronous (store/client/async_client.py), the same calls.

Guarantees
    A command is sent once. When its reply is lost an error leaves the decision to the caller.
    Every wait has a bound on this side, also a blocking read on a server that is gone, a
    reply that comes in drops, a name server that hangs and a name with several silent addresses.
    Errors are ``StoreUnavailableError`` (try again), ``StoreRefusedError`` (a person must
    act) or ``FencedError``, and name the server without its credentials.
    Behind Sentinel and in a cluster a call goes where the route points at that moment: when it
    points elsewhere, both connections are dropped before the call is sent.
    With ``redis.durability: replica``, a reply to a durable call means that a replica has it.

Does not guarantee
    That a call which raised ``StoreUnavailableError`` had no effect. That is why every
    script can be sent twice.

Each client has two connections, made when first used and again after any error: one for
calls, and one for blocking reads, so that an acknowledgement never waits behind a block.
A client serves one thread, and is made after the fork that it is used in.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

import redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, NoScriptError, RedisError, ResponseError

from supervisor.clock import Clock
from supervisor.core.units import SECOND_NS
from supervisor.settings.sections.redis_url import split_address
from supervisor.store.client.async_client import AsyncStore
from supervisor.store.client.base import BLOCK_MARGIN_S, StoreClient
from supervisor.store.client.connections import connection
from supervisor.store.client.dialing import Dialler
from supervisor.store.client.replies import (
    DURABLE,
    answered,
    durably,
    entries,
    fenced,
    is_stale_master,
    parsed,
    parser_class,
    replicated,
)
from supervisor.store.routing.route import Route
from supervisor.store.routing.topology import is_master
from supervisor.store.scripts import Call, script

__all__ = ["AsyncStore", "ParkedStore", "Store"]

T = TypeVar("T")
BLOCK_MS = 30_000
RETRY_NS = SECOND_NS
OPEN_S = 0.5
READ_S = 0.25


def _is_over(link: Any) -> bool:
    """Return whether an idle connection ended: nothing was asked, so there is nothing else to read."""
    try:
        return bool(link.can_read(0))
    except RedisConnectionError:
        return True


class Store(StoreClient):
    """Synchronous client."""

    _raw: redis.Redis | redis.ConnectionPool

    @staticmethod
    def _raw_of(kwargs: dict[str, Any], route: Route | None, clock: Clock | None) -> Any:
        kwargs |= connection(kwargs.get("connection_class"), Dialler(clock))
        return redis.ConnectionPool(**kwargs, parser_class=parser_class(route))

    @property
    def raw(self) -> redis.Redis:
        """The library's own client, for checks and tests. Making one costs a process a mebibyte that it shared."""
        if isinstance(self._raw, redis.ConnectionPool):
            self._raw = redis.Redis(connection_pool=self._raw)
        return self._raw

    def run(self, call: Call[T], *, timeout_s: float | None = None, meanwhile: Callable[[], None] | None = None) -> T:
        """Send ``call`` and return its parsed reply; ``meanwhile`` is done between the two, within the bound.

        Raises:
            StoreUnavailableError: no answer, or not now, or no replica has it. The call may have had its effect.
            StoreRefusedError: the server refused.
            FencedError: the call carried a term that is not the current one.
        """
        until_ns = self._until_ns(self._timeout_s if timeout_s is None else timeout_s)
        item = script(call.script)
        tail = (len(call.keys), *call.keys, *call.args)
        durable_ms = self._durable_ms if call.script in DURABLE else 0
        try:
            try:
                replies = self._send(
                    self._call_link, until_ns, "EVALSHA", item.sha, *tail, durable_ms=durable_ms, meanwhile=meanwhile
                )
            except NoScriptError:
                replies = self._send(self._call_link, until_ns, "EVAL", item.source, *tail, durable_ms=durable_ms)
            reply = replicated(replies, where=self.where, operation=call.script, bound_ms=durable_ms)
        except (RedisError, OSError) as error:
            raise (fenced(error, call) or self._meaning(error, call.script)) from error
        return parsed(call, reply, where=self.where)

    def listen(self, key: str, last_id: str, block_s: float) -> list[tuple[str, dict[str, str]]]:
        """Return stream entries after ``last_id``, waiting at most ``block_s`` for the first."""
        block_ms = max(1, round(block_s * 1000))  # 0 would mean for ever
        return entries(self._block(block_s, "XREAD", "COUNT", 100, "BLOCK", block_ms, "STREAMS", key, last_id))

    def ring(self, keys: Sequence[str], block_s: float) -> str | None:
        """Take one token from the first of ``keys`` that has one and return its key; None after ``block_s``."""
        reply = self._block(block_s, "BLPOP", *keys, f"{max(0.001, block_s):.3f}")
        return reply[0].decode() if reply else None

    def pop(self, key: str, block_s: float) -> str | None:
        """Take the first item of the list ``key``, with foreign bytes replaced; None after ``block_s`` without one."""
        reply = self._block(block_s, "BLPOP", key, f"{max(0.001, block_s):.3f}")
        return reply[1].decode(errors="replace") if reply else None

    def on_one_connection(self) -> Self:
        """Use one connection for calls and blocking reads, for a caller that never does both at once."""
        self._block_link = self._call_link
        return self

    def ping(self) -> None:
        """Return if the server answers."""
        self.command("PING")

    def command(self, *parts: str | int) -> Any:
        """Send a plain command and return the raw reply. For start-up checks and diagnosis."""
        try:
            return self._send(self._call_link, self._until_ns(self._timeout_s), *parts)[0]
        except (RedisError, OSError) as error:
            raise self._meaning(error, str(parts[0])) from error

    def stays_connected(self, wait_s: float) -> bool:
        """Wait on the connection for calls, on which nothing is expected; return whether it is up after ``wait_s``."""
        if self._route is not None and self._route.generation() != self._generation:
            return False
        try:
            return bool(self._call_link.is_connected) and not self._call_link.can_read(wait_s)
        except (RedisError, OSError):
            return False

    def close(self) -> None:
        """Drop both connections. The client may be used again."""
        for link in (self._call_link, self._block_link):
            link.disconnect()
        if self._route is not None:
            self._route.close()

    def _block(self, block_s: float, *parts: str | int) -> Any:
        try:
            return self._send(self._block_link, self._until_ns(block_s + BLOCK_MARGIN_S), *parts)[0]
        except (RedisError, OSError) as error:
            raise self._meaning(error, str(parts[0])) from error

    def _send(
        self, link: Any, until_ns: int, *parts: Any, durable_ms: int = 0, meanwhile: Callable[[], None] | None = None
    ) -> list[Any]:
        """Return the reply, and with ``durable_ms`` that to WAIT."""
        try:
            self._follow(self._left_s(until_ns))
            if link.is_connected and _is_over(link):
                link.disconnect()
            if not link.is_connected:
                self._open(link, until_ns)
            return self._exchange(link, until_ns, durably(parts, durable_ms) if durable_ms else [parts], meanwhile)
        except ResponseError as error:
            if is_stale_master(error):
                self._drop(link)  # the name may lead to another server now
            raise  # else keep it: a whole reply was read, so the connection is in step
        except BaseException:
            self._drop(link)
            raise

    def _exchange(
        self, link: Any, until_ns: int, commands: Sequence[Any], meanwhile: Callable[[], None] | None
    ) -> list[Any]:
        if self._connect_s is not None:
            link._sock.settimeout(self._left_s(until_ns))  # noqa: SLF001 - for the write; a reply has its own
        # Numbers as text: hiredis 3.5 writes one by a call that looks for signals, and ends the process where a handler
        # raises then, as for a job whose time is over.
        texts = [[str(part) if type(part) is int else part for part in command] for command in commands]
        link.send_packed_command([b"".join(link.pack_commands(texts))])  # in one piece, under one deadline
        if meanwhile is not None:
            meanwhile()
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(link.read_response(timeout=self._left_s(until_ns)))
            except ResponseError as error:
                replies.append(error)  # the reply to WAIT comes all the same, and must be read
        return answered(replies)

    def _open(self, link: Any, until_ns: int) -> None:
        """Connect, within the rest of the call's time, and make sure that this is the master."""
        if self._connect_s is None:
            link.connect()
        else:
            link.connect_within(self._left_s(until_ns), self._connect_s)
        if self._route is None:
            return
        try:
            link.send_command("ROLE")
            role = link.read_response(timeout=self._left_s(until_ns))
        except NoPermissionError:
            return  # then the first write tells
        if not is_master(role):
            raise RedisConnectionError("it is a replica now")

    def _follow(self, bound_s: float) -> None:
        """Drop both connections if the route points elsewhere since the last call."""
        if self._route is None or self._route.generation() == self._generation != 0:
            return
        endpoint = self._route.find(bound_s)
        if endpoint.generation == self._generation:
            return  # a search found the same server again
        host, port = split_address(endpoint.address)
        for link in (self._call_link, self._block_link):
            link.disconnect()
            link.host, link.port = host, port
        self.where, self._generation = endpoint.address, endpoint.generation

    def _drop(self, link: Any) -> None:
        link.disconnect()
        if self._route is not None:
            self._route.lost()

    def _until_ns(self, wait_s: float) -> int:
        return self._clock.elapsed_ns() + int(wait_s * SECOND_NS)

    def _left_s(self, until_ns: int) -> float:
        left_s = (until_ns - self._clock.elapsed_ns()) / SECOND_NS
        if left_s <= 0:
            raise TimeoutError
        return left_s


class ParkedStore(Store):
    """A synchronous client with a blocking read that lies at the server while other things are done.

    Guarantees
        At most one blocking read is outstanding, on a connection of its own. ``select`` on the result of ``park``
        together with the other wake-ups of a role, then ``collect``.
        A connection that fails is made again a second later; nothing is raised for it, because its
        subject is news only.

    Does not guarantee
        That no entry is missed: the stream is capped, and a fail-over may lose some.
    """

    _is_parked = False
    _retry_at_ns = 0

    def park(self, key: str, last_id: str) -> socket.socket | None:
        """Have entries of the stream ``key`` after ``last_id`` awaited; return a selectable object, None while away."""
        link = self._block_link
        if self._is_parked and link.is_connected:
            return self._socket()
        self._is_parked = False
        now_ns = self._clock.elapsed_ns()
        if now_ns < self._retry_at_ns:
            return None
        try:
            self._follow(OPEN_S)
            if not link.is_connected:
                self._open(link, now_ns + round(OPEN_S * SECOND_NS))
            link.send_command("XREAD", "COUNT", 100, "BLOCK", BLOCK_MS, "STREAMS", key, last_id)
        except (RedisError, OSError, TimeoutError):
            self._fail()
            return None
        self._is_parked = True
        return self._socket()

    def collect(self) -> list[tuple[str, dict[str, str]]]:
        """Return the entries that arrived, oldest first, as id and fields; empty without any. Does not wait."""
        link = self._block_link
        if not self._is_parked or not link.is_connected:
            return []
        try:
            if not link.can_read(0):
                return []
            reply = link.read_response(timeout=READ_S)
        except (RedisError, OSError, TimeoutError):
            self._fail()
            return []
        self._is_parked = False
        return entries(reply)

    def _fail(self) -> None:
        self._is_parked = False
        self._retry_at_ns = self._clock.elapsed_ns() + RETRY_NS
        with suppress(RedisError, OSError):
            self._block_link.disconnect()

    def _socket(self) -> socket.socket | None:
        found: socket.socket | None = self._block_link._sock  # noqa: SLF001 - redis-py shows it in no other way
        return found
