"""Runs the elector on a thread of its own, with a connection of its own.

Guarantees
    Nothing the agent's main thread does (a slow page of runs, a hung reply) delays a renewal.
    ``wake`` is seen at once while the elector sleeps, and after one reply while it asks.
    Every step has a deadline on the board while it lasts: a loop that does not turn is seen.

Does not guarantee
    That a standby blocked on the event stream ends on request. It need not: it holds
    nothing, checks for the stop before it asks for the lease, and dies with the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from threading import Event, Thread
from typing import Any

from supervisor.core.effects import Listen, RunScript, Step, Steps, drive
from supervisor.core.election.lease import State
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.agent.election.context import ElectionContext
from supervisor.roles.agent.election.elector import Elector
from supervisor.roles.agent.election.presence import PresenceThread
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import LeaseKeys

MARGIN_NS = 10_000 * MILLISECOND_NS  # connecting, searching for Redis, a machine without a processor to spare
LATE_NS_MAX = 5000 * MILLISECOND_NS  # then the loop is stuck
LOOK_NS_MAX = 1500 * MILLISECOND_NS  # what two looks prove at most about the time between them


class ElectorThread:
    """The elector, its thread and its connection."""

    def __init__(
        self,
        context: ElectionContext,
        *,
        store: Store,
        keys: LeaseKeys,
        presence: PresenceThread | None = None,
        steps: Callable[[], Steps[None]] | None = None,
    ) -> None:
        """Build it; ``steps`` are executed in place of those of an elector of its own."""
        self._context = context
        self._presence = presence
        self._store = store
        self._events = keys.events
        self._elector = Elector(context)
        self._steps = steps or self._elector.run
        self._woken = Event()
        self.failure: BaseException | None = None
        self.answered_ns = 0  # when Redis last answered a question of the election
        self._thread = Thread(target=self._run, name="elector", daemon=True)

    def start(self) -> None:
        """Begin to contend. Threads are started here, after the fork, and nowhere earlier."""
        if self._presence is not None:
            self._presence.start()
        self._thread.start()

    def wake(self) -> None:
        """Make a sleeping elector look again. Change the state it reads first."""
        self._woken.set()

    def bring(self, schedules_digest: str) -> None:
        """Announce from the next campaign or renewal on that this replica brings another set of schedules."""
        self._elector.bring(schedules_digest)

    @property
    def is_holding(self) -> bool:
        """True if a term is held, may have been won, or is being given back."""
        return self._elector.memory.state not in {State.FOLLOWER, State.STOPPED}

    def is_alive(self) -> bool:
        """Return whether it still contends or releases."""
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        """Wait for its end, at most so long."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            drive(self._steps(), self._execute)
        except BaseException as failure:  # noqa: BLE001 - the main thread reports it and ends the role
            self.failure = failure
        finally:
            self._context.board.header.elector_due_ns = 0
            self._store.close()

    def _execute(self, step: Step) -> Any:
        clock = self._context.clock
        until_ns = clock.elapsed_ns() + step.timeout_ns if isinstance(step, RunScript) else step.until_ns
        self._context.board.header.elector_due_ns = max(until_ns, clock.elapsed_ns()) + MARGIN_NS
        if isinstance(step, RunScript):
            answer = self._store.run(step.call, timeout_s=step.timeout_ns / 1e9)
            self.answered_ns = clock.elapsed_ns()
            return answer
        left_s = (step.until_ns - clock.elapsed_ns()) / 1e9
        if isinstance(step, Listen):
            return self._store.listen(self._events, step.last_id, max(0.001, left_s))
        self._woken.wait(max(0.0, left_s))
        self._woken.clear()
        return None


def elector_rng() -> Random:
    """Return a source of jitter that differs between replicas that started together."""
    return Random(os.urandom(16))  # noqa: S311 - it spreads load; nonces come from secrets


class Watchdog:
    """Counts for how long the elector has been overdue.

    Each step has an end: the moment it waits for, or the time-out of its question. That moment, and a margin, is on
    the board while the step lasts; /readyz and /healthz look at it, and the agent ends itself when it stays in the
    past. (kube-scheduler's own check always passes: only client-go's RunOrDie wires it, and it uses NewLeaderElector
    and Run.)

    Guarantees
        A machine that was suspended, or a tree that was stopped, is not called stuck: only time that the main thread
        saw pass in looks of its own counts.
    """

    def __init__(self) -> None:
        self._looked_ns = 0
        self._late_ns = 0

    def is_stuck(self, *, due_ns: int, now_ns: int) -> bool:
        """Look; return whether the loop should have turned long ago. ``due_ns`` 0: it has not begun, or has ended."""
        since_ns = min(now_ns - self._looked_ns, LOOK_NS_MAX) if self._looked_ns else 0
        self._looked_ns = now_ns
        self._late_ns = self._late_ns + since_ns if 0 < due_ns < now_ns else 0
        return self._late_ns > LATE_NS_MAX
