"""Periodic duties of the agent for worker sessions: beat, reclaim, sweep, publish.

Each duty has a period; the main thread runs those that are due between two beats of its own.

Guarantees
    Beats go first, and between the calls of other long duties.
    A duty that Redis refuses is reported once and tried again each second; the others go on. One that it does not
    answer ends the round: they wait with it, and come before it in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.clock import Clock
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.jobs.registry import Registry
from supervisor.core.supervision.crash_blame import Death
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.agent.commands import CommandDuty
from supervisor.roles.agent.ingest import Ingest
from supervisor.roles.agent.retention import Retention
from supervisor.roles.agent.sessions.cancellations import Unwanted
from supervisor.roles.agent.sessions.local_workers import LocalWorkers
from supervisor.roles.agent.sessions.reaper import Reaper
from supervisor.roles.agent.sessions.session_monitor import SessionWatch
from supervisor.roles.effects import Reporter
from supervisor.store.queues.sessions import Sessions
from supervisor.store.scripts import Call

RETRY_NS = 300 * MILLISECOND_NS
REFUSED_NS = 1000 * MILLISECOND_NS
NEVER_NS = 1 << 62
DYING_PERIOD_NS = 10_000 * MILLISECOND_NS
ORPHAN_PERIOD_NS = 30_000 * MILLISECOND_NS
WATCH_PERIOD_NS_MAX = 900 * MILLISECOND_NS  # while there are foreign sessions: a beat is seen so late at most
WATCH_PERIOD_NS_MIN = 50 * MILLISECOND_NS
FORGET_PERIOD_NS = 600_000 * MILLISECOND_NS
FORGET_PAGE_NS = 1000 * MILLISECOND_NS
PUBLISH_MAX = 500
PUBLISH_PERIOD_NS = 300_000 * MILLISECOND_NS  # again now and then, because Redis may have been emptied


@dataclass(slots=True)
class _Duty:
    name: str
    act: Callable[[int], None]
    period_ns: int
    due_ns: int = 0
    is_refused: bool = False


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
        commands: CommandDuty | None = None,
        ingest: Ingest | None = None,
        retention: Retention | None = None,
        registry: Registry,
        beat_period_ns: int,
        session_lease_ns: int,
        report: Reporter,
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
        self._beat_period_ns = beat_period_ns
        self._cards: Mapping[str, str] | None = None  # None: of the jobs that were imported before the fork
        self._publishing = _Duty("publish", self._publish, PUBLISH_PERIOD_NS)
        self._watching = _Duty("watch", self._watch_sessions, beat_period_ns)
        self._unwanted = unwanted
        self._ending = _Duty("unwanted", self._end_unwanted, unwanted.period_ns)
        self._beating = _Duty("beat", self._beat, beat_period_ns)
        self._reclaiming = _Duty("reclaim", self.reclaim_local, NEVER_NS, NEVER_NS)  # due when somebody died here
        self._forgetting = _Duty("forget", self._forget, FORGET_PERIOD_NS, clock.elapsed_ns() + FORGET_PERIOD_NS)
        self._forget_cursor = "0"
        self._duties = [
            self._forgetting,
            self._beating,
            self._reclaiming,
            _Duty("dying", self._finish_dying, DYING_PERIOD_NS),
            _Duty("orphans", self._sweep_orphans, ORPHAN_PERIOD_NS),
            self._watching,
            self._publishing,
            self._ending,
        ]
        self._commands = commands
        if commands is not None:
            self._obeying = _Duty("commands", self._obey, commands.period_ns)
            self._duties.append(self._obeying)
        if ingest is not None:
            self._duties.append(_Duty("ingest", ingest.look, ingest.period_ns))
        if retention is not None:
            self._retention = retention
            self._retaining = _Duty("retention", self._retain, retention.period_ns)
            self._duties.append(self._retaining)
        reaper.between = self._beat_between

    def next_ns(self) -> int:
        """Return when the next duty is due."""
        return min(duty.due_ns for duty in self._duties)

    def publish_first(self) -> None:
        """Publish the jobs, so that whoever sees this replica ready may enqueue them; later if Redis is silent."""
        try:
            self._do(self._publishing)
        except StoreUnavailableError:
            self._publishing.due_ns = 0

    def perform(self) -> bool:
        """Reclaim runs of dead workers here, then perform due duties; return whether Redis answered everything."""
        if self._reclaiming.due_ns == NEVER_NS and self._workers.dead():
            self._reclaiming.due_ns = 0
        now_ns = self._clock.elapsed_ns()
        due = [duty for duty in self._duties if duty.due_ns <= now_ns]
        try:
            for duty in sorted(due, key=lambda duty: (duty is not self._beating, duty.due_ns)):
                self._do(duty)
        except StoreUnavailableError as error:
            self._watch.interrupted()
            self._report("election_unanswered", operation="sessions", failures=1, error=str(error))
            return False
        return not self._reclaiming.is_refused

    def _do(self, duty: _Duty) -> None:
        now_ns = self._clock.elapsed_ns()
        duty.due_ns = now_ns + RETRY_NS  # stands if the next line raises
        try:
            duty.act(now_ns)
        except StoreRefusedError as error:
            duty.due_ns = now_ns + REFUSED_NS
            if duty is self._watching:
                self._watch.interrupted()
            self._report("duty_refused", duty=duty.name, error=str(error), is_new=not duty.is_refused)
            duty.is_refused = True
        else:
            duty.due_ns = min(now_ns + duty.period_ns, NEVER_NS)
            duty.is_refused = False

    def _beat_between(self) -> None:
        """Beat if that is due, before the next call of a duty that makes many."""
        if self._clock.elapsed_ns() >= self._beating.due_ns:
            self._do(self._beating)

    def publish(self, cards: Mapping[str, str]) -> None:
        """Publish these jobs to producers from now on, and these at once."""
        self._cards = cards
        self._publishing.due_ns = 0

    def reclaim_local(self, _now_ns: int = 0) -> None:
        """Give back runs of dead workers of this replica."""
        for worker in self._workers.dead():
            self._reaper.reclaim(
                worker.session,
                death=worker.death,
                how=worker.how,
                table=worker.table,
                now_ns=self._clock.elapsed_ns(),
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
        answered_ns = self._clock.elapsed_ns()
        known = {*self._workers.live(), *(worker.session for worker in self._workers.dead())}
        for session in counters:
            # A late request of a dead process got through, or no agent saw it die.
            if session not in known and self._workers.is_over(session):
                self._reaper.reclaim(session, death=Death.CRASHED)
        silent = self._watch.reading(counters, ours=known, now_ns=now_ns, answered_ns=answered_ns)
        for session, counter in silent:
            self._reaper.reclaim(session, death=Death.NODE_LOST, counter=counter)
        self._watching.period_ns = self._until_next_look_ns(now_ns)

    def _until_next_look_ns(self, now_ns: int) -> int:
        """Return how long to wait: a lost replica is to be found a second after its lease at the latest."""
        due_ns = self._watch.due_ns()
        if due_ns is None:
            return self._beat_period_ns
        return max(WATCH_PERIOD_NS_MIN, min(self._beat_period_ns, WATCH_PERIOD_NS_MAX, due_ns - now_ns))

    def _obey(self, now_ns: int) -> None:
        assert self._commands is not None
        self._commands.look(now_ns)
        self._obeying.period_ns = self._commands.period_ns

    def _end_unwanted(self, now_ns: int) -> None:
        self._unwanted.look(now_ns)
        self._ending.period_ns = self._unwanted.period_ns

    def _retain(self, now_ns: int) -> None:
        self._retention.look(now_ns)
        self._retaining.period_ns = self._retention.period_ns

    def _forget(self, _now_ns: int) -> None:
        """Forget a page of records that no other duty removes."""
        self._forget_cursor = self._reaper.forget(self._forget_cursor)
        self._forgetting.period_ns = FORGET_PERIOD_NS if self._forget_cursor == "0" else FORGET_PAGE_NS

    def _finish_dying(self, now_ns: int) -> None:
        """Finish the work of a reaper that did not end; give the owner time to do it with fair blame."""
        dying = self._run(self._sessions.dying())
        self._dying_since_ns = {session: self._dying_since_ns.get(session, now_ns) for session in dying}
        for session, since_ns in self._dying_since_ns.items():
            if self._workers.owns(session) or now_ns - since_ns >= self._session_lease_ns:
                self._reaper.reclaim(session, death=Death.NODE_LOST)

    def _sweep_orphans(self, _now_ns: int) -> None:
        self._reaper.sweep_orphans()

    def _publish(self, _now_ns: int) -> None:
        cards = self._cards if self._cards is not None else self._registry.cards()
        names = sorted(cards)
        for start in range(0, len(names), PUBLISH_MAX):
            self._run(self._sessions.publish_jobs({name: cards[name] for name in names[start : start + PUBLISH_MAX]}))
