"""Threads of a leadership: one contends, one calls back.

Guarantees
    A callback that hangs or raises delays no renewal. An elector that fails is replaced, and resumes its term.
    The end waits for the last callback for the grace period at most, and for the release of the lease; both are
    bounded.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction

from supervisor.core.units import SECOND_NS
from supervisor.roles.agent.election.elector_thread import ElectorThread
from supervisor.roles.agent.election.held_term import RELEASE_TRIES_MAX
from supervisor.roles.leadership.contender import Contender, LeaderSeen
from supervisor.store.client.sync_client import Store
from supervisor.store.producer.run_handle import must_be_awaited

_LOOK_S = 5.0  # how soon an elector that failed is replaced
_END_S = 2.0  # beside the tries to release

Told = Callable[[], object]
log = logging.getLogger("tenure.leadership")


def call_back(call: Told, loop: asyncio.AbstractEventLoop | None, caught: type[BaseException] = Exception) -> None:
    """Make one call of a program, in its event loop if it has one; what it raises of ``caught`` is logged."""
    try:
        if loop is None:
            call()
        else:
            asyncio.run_coroutine_threadsafe(in_loop(call), loop).result()
    except (caught, SystemExit):
        log.exception("a callback of a leadership raised; the leadership goes on")


async def in_loop(call: Told) -> None:
    """Make one call, and await its result if that can be, but for the handle of a run."""
    found = call()
    if must_be_awaited(found):
        await found


def ignore(_value: object) -> None:
    """Do nothing."""


class Callbacks:
    """The functions of a program, and what they were told: each start has its stop, in order, one call at a time.

    Guarantees
        A stop is due for each term that was started, with the same epoch and before the next start, however many terms
        went by while a callback ran. A term that began and ended meanwhile is neither started nor stopped.

    Does not guarantee
        That a stop comes before another program leads: a callback that hangs holds up the next one, never the lease.
    """

    def __init__(
        self,
        *,
        on_started: Callable[[int], object] | None,
        on_stopped: Callable[[int], object] | None,
        on_changed: Callable[[str | None], object] | None,
    ) -> None:
        self._on_started = on_started or ignore
        self._on_stopped = on_stopped or ignore
        self._on_changed = on_changed or ignore
        self._told = LeaderSeen(0, None)

    @property
    def has_coroutines(self) -> bool:
        """True if one is a coroutine function, which needs an event loop."""
        return any(map(iscoroutinefunction, (self._on_started, self._on_stopped, self._on_changed)))

    def due(self, now: LeaderSeen) -> Told | None:
        """Return the next call that is due, which counts as made; None: all is told."""
        told = self._told
        if told.epoch not in {0, now.epoch}:
            self._told = told._replace(epoch=0)
            return partial(self._on_stopped, told.epoch)
        if told.leader != now.leader:
            self._told = told._replace(leader=now.leader)
            return partial(self._on_changed, now.leader)
        if told.epoch != now.epoch:
            self._told = told._replace(epoch=now.epoch)
            return partial(self._on_started, now.epoch)
        return None


class LeadershipThreads:
    """Execution of a contender in a program."""

    def __init__(
        self,
        contender: Callable[[Callable[[], None]], Contender],
        callbacks: Callbacks,
        *,
        open_store: Callable[[], Store],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._condition = threading.Condition()
        self._news = 0
        self.contender = contender(self.changed)
        self._callbacks = callbacks
        self._open_store = open_store
        self._loop = loop
        self._is_closing = False
        self._elector = self._new_elector()
        self._task: asyncio.Task[object] | None = None  # of the newest callback in an event loop
        self._notifier = threading.Thread(target=self._notify, name="leadership", daemon=True)

    def start(self) -> None:
        """Begin to contend."""
        self._elector.start()
        self._notifier.start()

    def changed(self) -> None:
        """Look again at who leads."""
        with self._condition:
            self._news += 1
            self._condition.notify_all()

    def wait(self, timeout_s: float | None, is_over: Callable[[], bool]) -> None:
        """Return once ``is_over``, looked at after each change, or after ``timeout_s``."""
        with self._condition:
            self._condition.wait_for(is_over, timeout_s)

    def end(self, grace_s: float) -> None:
        """Have the program told that it stopped, then give the lease back. Called twice it waits twice."""
        self._is_closing = True
        self.changed()
        if self.is_calling():
            return  # a callback ends its own leadership: what follows is done when it has returned
        try:
            self._notifier.join(grace_s)
        finally:  # Ctrl-C
            self._release()
        tries_s = RELEASE_TRIES_MAX * self.contender.context.timing.timeout_ns / SECOND_NS
        self._elector.join(tries_s + _END_S)

    def is_calling(self) -> bool:
        """Return whether the code that asks is a callback of this leadership."""
        with suppress(RuntimeError):  # no event loop runs in this thread
            if self._task is not None and asyncio.current_task() is self._task:
                return True
        return threading.current_thread() is self._notifier

    def _in_task(self, call: Told) -> object:
        self._task = asyncio.current_task()
        return call()

    def _release(self) -> None:
        self.contender.around.is_ending = True
        self._elector.wake()

    def _notify(self) -> None:
        context = self.contender.context
        while True:
            with self._condition:
                seen = self._news
            leader = self.contender.leader_seen()
            if self._is_closing:
                leader = leader._replace(epoch=0)
            if (call := self._callbacks.due(leader)) is not None:
                # Whatever is raised would end the thread: an asyncio.CancelledError, the panic of an extension.
                call_back(call if self._loop is None else partial(self._in_task, call), self._loop, BaseException)
                continue
            if self._is_closing:
                self._release()
                return
            if not self._elector.is_alive():
                log.error("the elector of a leadership failed; it is started again", exc_info=self._elector.failure)
                self._elector = self._new_elector()
                self._elector.start()
            left_s = (self.contender.next_ns() - context.now()) / SECOND_NS
            with self._condition:
                self._condition.wait_for(lambda: self._news != seen, min(_LOOK_S, max(0.001, left_s)))  # noqa: B023

    def _new_elector(self) -> ElectorThread:
        contender = self.contender
        return ElectorThread(contender.context, store=self._open_store(), keys=contender.keys, steps=contender.steps)
