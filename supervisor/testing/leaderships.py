"""Leaderships of programs under the clock of a test: callbacks are called while the test advances it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from supervisor.roles.leadership.contender import Contender
from supervisor.roles.leadership.threads import Callbacks, call_back, in_loop
from supervisor.testing.world import Actor, ReplicaClock, World


class SimulatedLeadership:
    """Execution of one contender in a world. Its connection is cut while ``is_cut``."""

    def __init__(
        self,
        world: World,
        clock: ReplicaClock,
        contender: Callable[[Callable[[], None]], Contender],
        callbacks: Callbacks,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._world = world
        self._clock = clock
        self._callbacks = callbacks
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ending = False
        self._is_looking = False
        self.is_cut = False
        self.contender = contender(lambda: world.after(0, self._look))
        self.actor = Actor(
            world,
            clock,
            self,
            self.contender.context.me.replica,
            events_after=partial(world.server.entries_after, self.contender.keys.events),
        )

    def start(self) -> None:
        """Begin to contend: the test's next advance makes the first step's answer."""
        self._world.on_executed.append(self.actor.hear)
        self.actor.start(self.contender.steps())

    def wait(self, _timeout_s: float | None, _is_over: Callable[[], bool]) -> None:
        """Return at once: only the test lets time pass."""

    def changed(self) -> None:
        """Do nothing: nobody waits."""

    def end(self, _grace_s: float) -> None:
        """Have the program told, and give the lease back within the test's next advance."""
        self._is_ending = True
        self._look()
        self.contender.around.is_ending = True
        self.actor.wake()

    def is_calling(self) -> bool:
        """Return False: ``end`` waits for nobody."""
        return False

    def _look(self) -> None:
        """Call back what is due; look again when that may change by time alone."""
        if self.actor.is_paused or not self.actor.is_alive:
            return
        leader = self.contender.leader_seen()
        while call := self._callbacks.due(leader._replace(epoch=0) if self._is_ending else leader):
            if self._loop is None:
                call_back(call, None)
            else:
                task = self._loop.create_task(in_loop(call))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            leader = self.contender.leader_seen()
        if not self._is_looking:
            self._is_looking = True
            self._world.after(self._clock.true_ns(self.contender.next_ns()) - self._world.now_ns, self._look_again)

    def _look_again(self) -> None:
        self._is_looking = False
        self._look()
