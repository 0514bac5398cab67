"""``leadership``: a program learns that it leads, that it stopped, and who leads.

Guarantees
    At most one program of those that contend for a name has ``is_leader`` True, under any crash, pause or partition,
    as long as their clocks run at rates that differ by less than a tenth. It becomes False by this machine's own
    clock before Redis lets another one lead, however long the process stood still.
    Every term has an epoch above every earlier one's of that name.

Does not guarantee
    That a program which was paused between its look at ``is_leader`` and its write does not write late. Whatever it
    writes to should take the epoch as a fencing token and refuse a lower one: docs/election.md.
    That one leads at most in the lease duration after Redis lost its data while a reply was lost or a program began:
    who knew nothing of the lost term cannot wait for its end. The later epoch tells.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
import socket
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Protocol, Self, overload

from supervisor.core.durations import Duration, seconds_of
from supervisor.core.errors import FencedError, OptionError, shown
from supervisor.core.names import check_name
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.roles.agent.election.context import ElectionTiming
from supervisor.roles.leadership.contender import Contender, candidate
from supervisor.roles.leadership.threads import Callbacks, LeadershipThreads
from supervisor.store.client.threads import result_of
from supervisor.store.election.leases import Leases
from supervisor.store.keys import LeaseKeys
from supervisor.store.producer.connection import current
from supervisor.store.producer.producer import Producer

LEASE_S_MIN, LEASE_S_MAX = 1.0, 300.0
GRACE_S_MAX = 3600.0
IDENTITY_CHARS_MAX = 100


class LeadershipExecution(Protocol):
    """LeadershipExecution of a contender: threads, or the clock of a test."""

    contender: Contender

    def start(self) -> None:
        """Begin."""

    def wait(self, timeout_s: float | None, is_over: Callable[[], bool]) -> None:
        """Return once ``is_over``, or after ``timeout_s``."""

    def changed(self) -> None:
        """Look again, as whoever waits does too."""

    def end(self, grace_s: float) -> None:
        """Have the program told, and give the lease back."""

    def is_calling(self) -> bool:
        """Return whether the code that asks is a callback, for which ``end`` does not wait."""


class Leadership:
    """One program's part in the election of one leader; made by ``leadership``. A context manager, also ``async``.

    Safe to read from any thread. In a process that was forked after the start it never leads, and is to be made anew.
    """

    def __init__(
        self,
        producer: Producer,
        callbacks: Callbacks,
        *,
        name: str | None,
        candidate: bool,
        identity: str,
        lease_s: float,
        grace_s: float,
    ) -> None:
        self.name = name
        """Name of the lease; None: the one of the cluster's schedulers, which is only observed."""

        self.identity = f"{identity}.{secrets.token_hex(4)}"
        """Name of this program among the candidates, of which ``leader`` is one."""

        self._producer = producer
        self._callbacks = callbacks
        self._is_candidate = candidate
        self._keys: LeaseKeys = producer.keys if name is None else producer.keys.leadership(name)
        self._timing = timing_of(lease_s)
        self._grace_s = grace_s
        self._pid = 0
        self._is_closed = False
        self._execution: LeadershipExecution | None = None

    def start(self) -> Self:
        """Begin to contend, or to observe; ``with`` does it.

        Raises:
            RuntimeError: it was started before.
            TypeError: a callback is a coroutine function; those need ``async with``.
        """
        return self._start(None)

    def close(self) -> None:
        """Stop: ``is_leader`` is False at once, ``on_stopped`` is called, then the lease is given back; repeatable.

        Waits for callbacks up to ``grace``, and for the release. Without it, as at the end of the program, the same is
        done; a program that is killed leaves the lease to its end.
        """
        execution = self._execution
        if execution is None or self._pid != os.getpid():
            return
        self._is_closed = True
        execution.end(self._grace_s)
        if not execution.is_calling():  # else the end of the program waits for what follows the callback
            atexit.unregister(self.close)

    async def close_async(self) -> None:
        """Do the same without blocking the event loop."""
        if self._execution is not None and self._execution.is_calling():
            self.close()
        else:
            await result_of(self.close, "leadership-close")

    @property
    def is_leader(self) -> bool:
        """True if this program may act as the leader at this moment; computed from the clock at each look."""
        return self.epoch > 0

    @property
    def epoch(self) -> int:
        """Epoch of the term that this program may act on: its fencing token. 0: it does not lead."""
        execution = self._execution
        if execution is None or self._is_closed or self._pid != os.getpid():
            return 0
        return execution.contender.leader_seen().epoch

    @property
    def remaining_s(self) -> float:
        """Seconds for which ``is_leader`` stays True if no renewal succeeds; 0.0: it is False."""
        execution = self._execution
        if not self.is_leader or execution is None:
            return 0.0
        context = execution.contender.context
        return max(0, execution.contender.board.current.trusted_until_ns - context.now()) / SECOND_NS

    @property
    def leader(self) -> str | None:
        """Identity of the leader as last seen, perhaps a lease duration ago; None: none, or not known."""
        execution = self._execution
        return None if execution is None or self._pid != os.getpid() else execution.contender.leader_seen().leader

    @property
    def lease_key(self) -> str:
        """Key in Redis of the hash whose field ``epoch`` is that of the newest term, for scripts that compare it."""
        return self._keys.lease

    def confirm(self) -> int:
        """Ask Redis whether this program's term is the newest, and return its epoch.

        Raises:
            FencedError: another term was granted since, or this program does not lead.
            StoreUnavailableError: Redis does not answer.
        """
        epoch = self.epoch
        view = self._producer.run(Leases(self._keys).view())
        if not epoch or view.epoch != epoch or view.holder != self.identity:
            raise FencedError(operation=f"leadership {self.name}", epoch=epoch, current_epoch=view.epoch)
        return epoch

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until this program leads, it is closed, or ``timeout`` is over; return whether it leads."""
        return self._wait(timeout, lambda: False)

    async def wait_async(self, timeout: Duration | None = None) -> bool:  # noqa: ASYNC109 - as of wait
        """Do the same without blocking the event loop."""
        is_left = False
        try:
            return await result_of(lambda: self._wait(timeout, lambda: is_left), "leadership-wait")
        finally:  # cancelled: the thread that waits must not go on until this program leads
            is_left = True
            if self._execution is not None and self._pid == os.getpid():
                self._execution.changed()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self._start(asyncio.get_running_loop())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close_async()

    def _wait(self, timeout: Duration | None, is_left: Callable[[], bool]) -> bool:
        execution, timeout_s = self._execution, None if timeout is None else seconds_of("timeout", timeout)
        if execution is not None and self._pid == os.getpid():
            execution.wait(timeout_s, lambda: is_left() or self._is_closed or self.is_leader)
        return self.is_leader

    def _start(self, loop: asyncio.AbstractEventLoop | None) -> Self:
        if self._execution is not None:
            raise RuntimeError("this leadership was started before; make another one with tenure.leadership(…)")
        if loop is None and self._callbacks.has_coroutines:
            raise TypeError("a callback is a coroutine function; use `async with leadership(…)`, or a plain function")
        self._pid = os.getpid()
        self._execution = self._executed(loop)
        self._execution.start()
        atexit.register(self.close)
        return self

    def _executed(self, loop: asyncio.AbstractEventLoop | None) -> LeadershipExecution:
        if (simulate := self._producer.simulate_leadership) is not None:
            found: LeadershipExecution = simulate(self._contender, self._callbacks, loop)
            return found
        return LeadershipThreads(self._contender, self._callbacks, open_store=self._producer.new_store, loop=loop)

    def _contender(self, changed: Callable[[], None]) -> Contender:
        clock = self._producer.clock
        return Contender(
            self._keys,
            clock=clock,
            timing=self._timing,
            me=candidate(
                self.identity,
                pid=os.getpid(),
                host=socket.gethostname(),
                started_ms=clock.wall_ms(),
                participates=self._is_candidate,
            ),
            rng=Random(os.urandom(16)),  # noqa: S311 - it spreads load; nonces come from secrets
            new_nonce=lambda: secrets.token_hex(16),
            changed=changed,
        )


def timing_of(lease_s: float) -> ElectionTiming:
    """Return the durations of an election in the proportions of ``election.lease_duration`` and its defaults."""
    return ElectionTiming(
        duration_ns=int(lease_s * 1000) * MILLISECOND_NS,
        period_ns=int(lease_s / 5 * SECOND_NS),
        timeout_ns=int(min(30.0, 0.15 * lease_s) * SECOND_NS),
        margin_ns=int(max(0.1, 0.1 * lease_s) * SECOND_NS),
    )


@overload
def leadership(
    name: str,
    *,
    candidate: bool = True,
    on_started: Callable[[int], object] | None = None,
    on_stopped: Callable[[int], object] | None = None,
    on_changed: Callable[[str | None], object] | None = None,
    lease_duration: Duration = 5.0,
    identity: str | None = None,
    grace: Duration = 10.0,
) -> Leadership: ...
@overload
def leadership(*, on_changed: Callable[[str | None], object] | None = None) -> Leadership: ...
def leadership(
    name: str | None = None,
    *,
    candidate: bool = True,
    on_started: Callable[[int], object] | None = None,
    on_stopped: Callable[[int], object] | None = None,
    on_changed: Callable[[str | None], object] | None = None,
    lease_duration: Duration = 5.0,
    identity: str | None = None,
    grace: Duration = 10.0,
) -> Leadership:
    """Contend for the leadership called ``name`` among all programs of the cluster that do; start it by ``with``.

    Without a name the leader of the replicas is observed, whose lease no program can take. Redis and the cluster are
    those of ``tenure.connect``. Callbacks run one at a time, on a thread of their own or, with ``async with``, in the
    event loop, where they may be coroutine functions; what they raise is logged.

    Args:
        name: of the lease, 1 to 64 of ``A-Z a-z 0-9 . _ -``; beside every other name in the cluster.
        candidate: False observes without contending.
        on_started: called with the epoch when this program begins to lead.
        on_stopped: called with the same epoch when it stopped, whatever the reason.
        on_changed: called with the identity of the leader, or None, when another one is seen.
        lease_duration: how long a dead leader blocks the others, 1 second to 5 minutes.
        identity: of this program, up to 100 characters; default: host name and process. A unique suffix is added.
        grace: how long ``close`` waits for callbacks before the lease is given back, 0 seconds to an hour.

    Raises:
        NoRedisError: no address of Redis is configured.
        OptionError: an argument is outside its range, of another type, or other than ``on_changed`` without a name.
    """
    lease_s, grace_s = seconds_of("lease_duration", lease_duration), seconds_of("grace", grace)
    if name is not None:
        check_name("leadership", name)
    elif any(option is not None for option in (on_started, on_stopped, identity)):
        raise OptionError("leadership() without a name observes the replicas' leader; give a name to contend for")
    if not isinstance(candidate, bool):
        raise OptionError(f"candidate must be True or False, got {shown(candidate)}")
    for option, callback in (("on_started", on_started), ("on_stopped", on_stopped), ("on_changed", on_changed)):
        if not (callback is None or callable(callback)):
            raise OptionError(f"{option} must be a function of one argument, got {shown(callback)}")
    if not LEASE_S_MIN <= lease_s <= LEASE_S_MAX:
        raise OptionError(f"lease_duration must be 1 second to 5 minutes, got {shown(lease_duration)}")
    if not 0 <= grace_s <= GRACE_S_MAX:
        raise OptionError(f"grace must be 0 seconds to an hour, got {shown(grace)}")
    identity = f"{socket.gethostname()}-{os.getpid()}" if identity is None else identity
    if not isinstance(identity, str) or not 0 < len(identity) <= IDENTITY_CHARS_MAX or not identity.isprintable():
        raise OptionError(f"identity must be 1 to {IDENTITY_CHARS_MAX} printable characters, got {shown(identity)}")
    return Leadership(
        current(),
        Callbacks(on_started=on_started, on_stopped=on_stopped, on_changed=on_changed),
        name=name,
        candidate=candidate and name is not None,
        identity=identity,
        lease_s=lease_s,
        grace_s=grace_s,
    )
