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

from supervisor.clock import Clock
from supervisor.core.effects import Listen, RunScript, Step, Steps, drive
from supervisor.core.election.lease import State
from supervisor.core.errors import TenureError
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.agent.election.context import ElectionContext, Presence
from supervisor.roles.agent.election.elector import Elector
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys, LeaseKeys

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


SLICE_S = 0.25  # how soon a new term is noticed
RETRY_S = 0.1
REFRESH_PERIOD_NS = 30_000_000_000  # a proxy that hides subscribers is not asked to try again more often


class PresenceThread(Presence):
    """Shows that this replica lives, by a subscription that the kernel ends with the process, for one term at a time.

    A small thread of its own: a subscribed connection can do nothing else.

    Guarantees
        The elector never waits for it. A connection that was cut is made again within a fraction of a second.

    Does not guarantee
        That others see it: a proxy may hide subscribers. The renewal reports whether they do, and without that nobody
        concludes anything (supervisor.core.election.presence).
    """

    def __init__(self, store: Store, keys: Keys, clock: Clock) -> None:
        self._store = store
        self._prefix = keys.alive
        self._clock = clock
        self._wanted = 0
        self._shown = 0
        self._refreshed_ns = 0
        self._changed = Event()
        self._thread = Thread(target=self._run, name="presence", daemon=True)

    def start(self) -> None:
        """Begin. Nothing is shown before a term is."""
        self._thread.start()

    def show(self, epoch: int) -> None:
        """Show it for ``epoch``; 0: for none."""
        self._wanted = epoch
        self._changed.set()

    def is_shown(self, epoch: int) -> bool:
        """Return whether Redis has confirmed the subscription for ``epoch``."""
        return epoch > 0 and self._shown == epoch

    def refresh(self) -> None:
        """Subscribe anew, now and then: Redis does not see the connection that is there."""
        now_ns = self._clock.elapsed_ns()
        if now_ns - self._refreshed_ns >= REFRESH_PERIOD_NS:
            self._refreshed_ns = now_ns
            self._shown = 0

    def _run(self) -> None:
        while True:
            wanted = self._wanted
            if wanted == 0:
                self._shown = 0
                self._store.close()
                self._changed.wait()
                self._changed.clear()
            elif self._shown != wanted:
                self._subscribe(wanted)
            elif not self._store.stays_connected(SLICE_S):
                self._shown = 0

    def _subscribe(self, epoch: int) -> None:
        self._store.close()
        try:
            self._store.command("SUBSCRIBE", f"{self._prefix}{epoch}")
        except TenureError:  # away, or not allowed to: then nobody sees it, and nobody expects to
            self._changed.wait(RETRY_S)
            self._changed.clear()
        else:
            self._shown = epoch
