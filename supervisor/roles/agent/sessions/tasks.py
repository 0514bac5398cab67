"""Periodic tasks of the agent for worker sessions: beat, reclaim, sweep, forget, publish."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor.clock import Clock
from supervisor.core.jobs.registry import Registry
from supervisor.core.supervision.crash_blame import Death
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.agent.sessions.local_workers import LocalWorkers
from supervisor.roles.agent.sessions.reaper import Reaper
from supervisor.roles.agent.sessions.session_monitor import SessionWatch
from supervisor.roles.effects import Reporter
from supervisor.store.queues.sessions import Sessions
from supervisor.store.scripts import Call

Run = Callable[[Call[Any]], Any]
"""Sends one call and returns its reply."""

NEVER_NS = 1 << 62
WATCH_PERIOD_NS_MAX = 900 * MILLISECOND_NS  # while there are foreign sessions: a beat is seen so late at most
WATCH_PERIOD_NS_MIN = 50 * MILLISECOND_NS
FORGET_PERIOD_NS = 600_000 * MILLISECOND_NS
FORGET_PAGE_NS = 1000 * MILLISECOND_NS
PUBLISH_MAX = 500


@dataclass(eq=False)
class SessionBeats:
    """Beats for the live workers of this replica."""

    name = "beat"

    call: Run
    sessions: Sessions
    workers: LocalWorkers
    report: Reporter
    period_ns: int
    beaten: set[str] = field(default_factory=set)
    """Sessions that were open at the last beat."""

    def run(self, _now_ns: int) -> None:
        """Beat once for all of them."""
        live = set(self.workers.live())
        gone = set(self.call(self.sessions.beat(sorted(live)))) if live else set()
        for session in sorted(gone & self.beaten):
            # Another replica took its runs. Its next turn tells the worker, which makes way for a fresh process.
            self.report("session_lost", session=session)
        self.beaten = live - gone


@dataclass(eq=False)
class LocalReclaim:
    """Gives back runs of dead workers of this replica: due when somebody died here."""

    name = "reclaim"
    period_ns = NEVER_NS

    workers: LocalWorkers
    reaper: Reaper
    clock: Clock

    @property
    def is_due(self) -> bool:
        """True if a process died whose runs were not given back."""
        return bool(self.workers.dead())

    def run(self, _now_ns: int) -> None:
        """Give back the runs of each."""
        for worker in self.workers.dead():
            now_ns = self.clock.elapsed_ns()
            self.reaper.reclaim(worker.session, death=worker.death, how=worker.how, table=worker.table, now_ns=now_ns)
            self.workers.mark_reclaimed(worker)


class ForeignSessions:
    """Finds dead sessions of other replicas, and such of this one that nobody saw die."""

    name = "watch"

    def __init__(
        self,
        call: Run,
        sessions: Sessions,
        workers: LocalWorkers,
        reaper: Reaper,
        clock: Clock,
        *,
        lease_ns: int,
        period_ns: int,
    ) -> None:
        self._call = call
        self._sessions = sessions
        self._workers = workers
        self._reaper = reaper
        self._clock = clock
        self._watch = SessionWatch(lease_ns=lease_ns, period_ns=period_ns)
        self._period_ns_max = self.period_ns = period_ns
        self.interrupted = self._watch.interrupted

    def run(self, now_ns: int) -> None:
        """Read all counters; reclaim the sessions that stood still for a lease."""
        counters = self._call(self._sessions.list())
        answered_ns = self._clock.elapsed_ns()
        known = {*self._workers.live(), *(worker.session for worker in self._workers.dead())}
        for session in counters:
            # A late request of a dead process got through, or no agent saw it die.
            if session not in known and self._workers.is_over(session):
                self._reaper.reclaim(session, death=Death.CRASHED)
        silent = self._watch.reading(counters, ours=known, now_ns=now_ns, answered_ns=answered_ns)
        for session, counter in silent:
            self._reaper.reclaim(session, death=Death.NODE_LOST, counter=counter)
        due_ns = self._watch.due_ns()  # a lost replica is to be found a second after its lease at the latest
        self.period_ns = self._period_ns_max
        if due_ns is not None:
            self.period_ns = max(WATCH_PERIOD_NS_MIN, min(self._period_ns_max, WATCH_PERIOD_NS_MAX, due_ns - now_ns))


@dataclass(eq=False)
class DyingSessions:
    """Finishes the work of a reaper that did not end; gives the owner time to do it with fair blame."""

    name = "dying"
    period_ns = 10_000 * MILLISECOND_NS

    call: Run
    sessions: Sessions
    workers: LocalWorkers
    reaper: Reaper
    lease_ns: int
    since_ns: dict[str, int] = field(default_factory=dict)

    def run(self, now_ns: int) -> None:
        """Reclaim those that are ours, or have been dying for a lease."""
        dying = self.call(self.sessions.dying())
        self.since_ns = {session: self.since_ns.get(session, now_ns) for session in dying}
        for session, since_ns in self.since_ns.items():
            if self.workers.owns(session) or now_ns - since_ns >= self.lease_ns:
                self.reaper.reclaim(session, death=Death.NODE_LOST)


@dataclass(eq=False)
class OrphanSweep:
    """Gives back runs whose session is not open and not dying."""

    name = "orphans"
    period_ns = 30_000 * MILLISECOND_NS

    reaper: Reaper

    def run(self, _now_ns: int) -> None:
        """Sweep all queues."""
        self.reaper.sweep_orphans()


@dataclass(eq=False)
class RecordCleanup:
    """Forgets records that no other task removes, page by page."""

    name = "forget"
    period_ns = FORGET_PERIOD_NS

    reaper: Reaper
    cursor: str = "0"

    def run(self, _now_ns: int) -> None:
        """Forget a page."""
        self.cursor = self.reaper.forget(self.cursor)
        self.period_ns = FORGET_PERIOD_NS if self.cursor == "0" else FORGET_PAGE_NS


@dataclass(eq=False)
class JobPublisher:
    """Publishes the jobs of this replica, and the bound of queues, to producers."""

    name = "publish"
    period_ns = 300_000 * MILLISECOND_NS  # again now and then, because Redis may have been emptied

    call: Run
    sessions: Sessions
    registry: Registry
    cards: Mapping[str, str] | None = None
    """Name to card; None: of the jobs that were imported before the fork."""
    length_max: int = 0
    """Number of runs that may wait in a queue; 0: any."""

    def run(self, _now_ns: int) -> None:
        """Publish all of them."""
        self.call(self.sessions.bound_queues(self.length_max))
        cards = self.registry.cards() if self.cards is None else self.cards
        names = sorted(cards)
        for start in range(0, len(names), PUBLISH_MAX):
            self.call(self.sessions.publish_jobs({name: cards[name] for name in names[start : start + PUBLISH_MAX]}))
