"""What the agent does for worker sessions, besides the election: beat, reclaim, sweep, publish.

Each duty has a period; the main thread runs those that are due between two beats of its
own. A duty that Redis does not answer is due again soon, and the others wait with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from supervisor.clock import Clock
from supervisor.core.blame import Death
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.lease import MS
from supervisor.core.registry import Registry
from supervisor.roles.agent.beats import LocalWorkers
from supervisor.roles.agent.reaper import Reaper
from supervisor.roles.agent.unwanted import Unwanted
from supervisor.roles.agent.watch import SessionWatch
from supervisor.roles.steps import Report
from supervisor.store.scripts import Call
from supervisor.store.sessions import Sessions

RETRY_NS = 300 * MS
DYING_PERIOD_NS = 10_000 * MS
ORPHAN_PERIOD_NS = 30_000 * MS
PUBLISH_MAX = 500
UNWANTED_PERIOD_NS = 1000 * MS  # asked only while something is executed here
PUBLISH_PERIOD_NS = 300_000 * MS  # again now and then, because Redis may have been emptied


@dataclass(slots=True)
class _Duty:
    name: str
    act: Callable[[int], None]
    period_ns: int
    due_ns: int = 0


class Duties:
    """Everything periodic, and the deaths that the board shows."""

    def __init__(
        self,
        *,
        run: Callable[[Call[Any]], Any],
        clock: Clock,
        workers: LocalWorkers,
        sessions: Sessions,
        reaper: Reaper,
        unwanted: Unwanted,
        registry: Registry,
        beat_period_ns: int,
        session_lease_ns: int,
        report: Report,
    ) -> None:
        self._run = run
        self._clock = clock
        self._workers = workers
        self._sessions = sessions
        self._reaper = reaper
        self._registry = registry
        self._report = report
        self._watch = SessionWatch(lease_ns=session_lease_ns, period_ns=beat_period_ns)
        self._session_lease_ns = session_lease_ns
        self._dying_since_ns: dict[str, int] = {}
        self._beaten: set[str] = set()  # sessions that were open at the last beat
        self._duties = [
            _Duty("beat", self._beat, beat_period_ns),
            _Duty("dying", self._finish_dying, DYING_PERIOD_NS),
            _Duty("orphans", self._sweep_orphans, ORPHAN_PERIOD_NS),
            _Duty("watch", self._watch_sessions, beat_period_ns),
            _Duty("publish", self._publish, PUBLISH_PERIOD_NS),
            _Duty("unwanted", unwanted.look, UNWANTED_PERIOD_NS),
        ]

    def next_ns(self) -> int:
        """Return when the next duty is due."""
        return min(duty.due_ns for duty in self._duties)

    def perform(self) -> bool:
        """Reclaim what died here, then do what is due; return whether Redis answered everything."""
        try:
            self.reclaim_local()
            for duty in self._duties:
                now_ns = self._clock.elapsed_ns()
                if now_ns >= duty.due_ns:
                    duty.due_ns = now_ns + RETRY_NS  # stands if the next line raises
                    duty.act(now_ns)
                    duty.due_ns = now_ns + duty.period_ns
        except (StoreUnavailableError, StoreRefusedError) as error:
            self._watch.interrupted()
            self._report("election_unanswered", operation="sessions", failures=1, error=str(error))
            return False
        return True

    def reclaim_local(self) -> None:
        """Give back what dead workers of this replica held."""
        for worker in self._workers.dead():
            self._reaper.reclaim(
                worker.session, death=worker.death, table=worker.table, now_ns=self._clock.elapsed_ns()
            )
            self._workers.mark_reclaimed(worker)

    def _beat(self, _now_ns: int) -> None:
        live = set(self._workers.live())
        gone = set(self._run(self._sessions.beat(sorted(live)))) if live else set()
        for session in sorted(gone & self._beaten):
            # Another replica took its runs. Its next turn tells the worker, which makes way for a fresh process.
            self._report("session_lost", session=session)
        self._beaten = live - gone

    def _watch_sessions(self, now_ns: int) -> None:
        counters = self._run(self._sessions.list())
        known = {*self._workers.live(), *(worker.session for worker in self._workers.dead())}
        for session in counters:
            # A late request of a dead process got through, or no agent saw it die.
            if session not in known and self._workers.is_over(session):
                self._reaper.reclaim(session, death=Death.CRASHED)
        for session, counter in self._watch.reading(counters, ours=known, now_ns=now_ns):
            self._reaper.reclaim(session, death=Death.NODE_LOST, counter=counter)

    def _finish_dying(self, now_ns: int) -> None:
        """Finish what another reaper began and did not end; give the owner time to do it with fair blame."""
        dying = self._run(self._sessions.dying())
        self._dying_since_ns = {session: self._dying_since_ns.get(session, now_ns) for session in dying}
        for session, since_ns in self._dying_since_ns.items():
            if self._workers.owns(session) or now_ns - since_ns >= self._session_lease_ns:
                self._reaper.reclaim(session, death=Death.NODE_LOST)

    def _sweep_orphans(self, _now_ns: int) -> None:
        self._reaper.sweep_orphans()

    def _publish(self, _now_ns: int) -> None:
        names = self._registry.names()
        for start in range(0, len(names), PUBLISH_MAX):
            jobs = [self._registry.get(name) for name in names[start : start + PUBLISH_MAX]]
            self._run(self._sessions.publish_jobs({job.name: msgspec.json.encode(job.card()) for job in jobs}))
