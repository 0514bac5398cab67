"""Periodic tasks of the agent for worker sessions: beat, reclaim, sweep, forget, publish, end runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import InitVar, dataclass
from typing import Any

from supervisor.clock import Clock
from supervisor.core.effects import Call, Reporter
from supervisor.core.jobs.registry import Registry
from supervisor.core.supervision.crash_blame import Death
from supervisor.core.supervision.scoreboard import Row, execution_hash
from supervisor.core.supervision.states import UnwantedReason, Verb
from supervisor.core.units import MILLISECOND_NS, NEVER_NS, SECOND_NS
from supervisor.roles.agent.sessions.local_workers import LocalWorkers
from supervisor.roles.agent.sessions.reaper import Reaper
from supervisor.roles.child import ChildContext
from supervisor.settings.sections.models import WorkerKind
from supervisor.store.queues.runs import Queues, UnwantedRun
from supervisor.store.queues.sessions import Sessions

Run = Callable[[Call[Any]], Any]
"""Sends one call and returns its reply."""

WATCH_PERIOD_NS_MAX = 900 * MILLISECOND_NS  # while there are foreign sessions: a beat is seen so late at most
WATCH_PERIOD_NS_MIN = 50 * MILLISECOND_NS
FORGET_PERIOD_NS = 600_000 * MILLISECOND_NS
FORGET_PAGE_NS = 1000 * MILLISECOND_NS
DYING_PERIOD_NS = 10_000 * MILLISECOND_NS
SWEEP_PERIOD_NS = 30_000 * MILLISECOND_NS
SWEEP_SLICE_NS = 300 * MILLISECOND_NS  # while a round is not over: other tasks go on in between
PUBLISH_PERIOD_NS = 300_000 * MILLISECOND_NS  # again now and then: a loss of a part of the data is found by nobody
PUBLISH_MAX = 500


@dataclass(slots=True, eq=False)
class SessionTask:
    """A task and the time until it is due again, which it may change."""

    name: str
    period_ns: int
    run: Callable[[int], None]


@dataclass(eq=False, kw_only=True)
class SessionTasks:
    """The tasks of one agent for worker sessions, and their tools."""

    run: Run
    clock: Clock
    workers: LocalWorkers
    sessions: Sessions
    reaper: Reaper
    registry: Registry
    length_max: int = 0
    """Number of runs that may wait in a queue; 0: any."""

    note_cluster: Callable[[], None] = lambda: None
    """Writes the cluster's name down for producers that name another one by mistake."""

    beat_period_ns: int
    session_lease_ns: int
    predecessor: str = ""
    report: Reporter

    def __post_init__(self) -> None:
        self.beating = SessionTask("beat", self.beat_period_ns, self._beat)
        self.reclaiming = SessionTask("reclaim", NEVER_NS, self._reclaim)  # due when somebody died here
        self.watching = SessionTask("watch", self.beat_period_ns, self._watch_others)
        self.finishing = SessionTask("dying", DYING_PERIOD_NS, self._finish_dying)
        self.sweeping = SessionTask("orphans", SWEEP_PERIOD_NS, self._sweep_orphans)
        self.forgetting = SessionTask("forget", FORGET_PERIOD_NS, self._forget)
        self.publishing = SessionTask("publish", PUBLISH_PERIOD_NS, self._publish)
        self.cards: Mapping[str, str] | None = None
        """Jobs to publish, name to card; None: those that were imported before the fork."""

        self.watch = SessionWatch(
            lease_ns=self.session_lease_ns, period_ns=self.beat_period_ns, predecessor=self.predecessor
        )
        self._beaten: set[str] = set()  # sessions that were open at the last beat
        self._dying_since_ns: dict[str, int] = {}
        self._cursor = "0"  # of the records to forget

    def _beat(self, _now_ns: int) -> None:
        """Beat once for all live workers of this replica."""
        live = set(self.workers.live())
        gone = set(self.run(self.sessions.beat(sorted(live)))) if live else set()
        for session in sorted(gone & self._beaten - self.workers.draining()):
            # Another replica took its runs. Its next turn tells the worker, which makes way for a fresh process.
            self.report("session_lost", session=session)
        self._beaten = live - gone

    def _reclaim(self, _now_ns: int) -> None:
        """Give back the runs of each dead worker of this replica."""
        for worker in self.workers.dead():
            now_ns = self.clock.elapsed_ns()
            self.reaper.reclaim(
                worker.session, death=worker.death, how=worker.how, table=worker.table, now_ns=now_ns,
                turned_ns=worker.turned_ns, turn_ms=worker.turn_ms,
            )  # fmt: skip
            self.workers.mark_reclaimed(worker)

    def observe(self, now_ns: int) -> tuple[list[str], list[tuple[str, int]]]:
        """Read all beats; return the sessions that are not this agent's, and of them those silent for a lease."""
        counters = self.run(self.sessions.list())
        answered_ns = self.clock.elapsed_ns()
        known = {*self.workers.live(), *(worker.session for worker in self.workers.dead())}
        silent = self.watch.reading(counters, ours=known, now_ns=now_ns, answered_ns=answered_ns)
        return [session for session in counters if session not in known], silent

    def _watch_others(self, now_ns: int) -> None:
        """Find dead sessions of other replicas, by counters that stood still, and such of this one nobody saw die."""
        strangers, silent = self.observe(now_ns)
        for session in strangers:
            # No agent saw it die; or its death was judged, and a late request of it got through, or Redis went back.
            if self.workers.is_over(session):
                if self.workers.is_reclaimed(session):
                    self.reaper.reclaim(session, death=Death.NODE_LOST, how="its death was judged before")
                else:
                    self.reaper.reclaim(session, death=Death.CRASHED)
        for session, counter in silent:
            self.reaper.reclaim(session, death=Death.NODE_LOST, counter=counter)
        due_ns = self.watch.due_ns()  # a lost replica is to be found a second after its lease at the latest
        period_ns = self.beat_period_ns
        if due_ns is not None:
            period_ns = max(WATCH_PERIOD_NS_MIN, min(period_ns, WATCH_PERIOD_NS_MAX, due_ns - now_ns))
        self.watching.period_ns = period_ns

    def _finish_dying(self, now_ns: int) -> None:
        """Finish the work of a reaper that did not end; the owner of a session has time to do it with fair blame."""
        dying = set(self.run(self.sessions.dying())) - {worker.session for worker in self.workers.dead()}
        self._dying_since_ns = {session: self._dying_since_ns.get(session, now_ns) for session in sorted(dying)}
        for session, since_ns in self._dying_since_ns.items():
            if self.workers.owns(session) or now_ns - since_ns >= self.session_lease_ns:
                self.reaper.reclaim(session, death=Death.NODE_LOST)

    def _sweep_orphans(self, _now_ns: int) -> None:
        """Give back some of the runs that no session holds."""
        self.sweeping.period_ns = SWEEP_PERIOD_NS if self.reaper.sweep_orphans() else SWEEP_SLICE_NS

    def _forget(self, _now_ns: int) -> None:
        """Forget a page of records that no other task removes."""
        self._cursor = self.reaper.forget(self._cursor)
        self.forgetting.period_ns = FORGET_PERIOD_NS if self._cursor == "0" else FORGET_PAGE_NS

    def _publish(self, _now_ns: int) -> None:
        """Publish the jobs of this replica, the bound of queues and the name of the cluster to producers."""
        self.run(self.sessions.bound_queues(self.length_max))
        cards = self.registry.cards() if self.cards is None else self.cards
        names = sorted(cards)
        for start in range(0, len(names), PUBLISH_MAX):
            self.run(self.sessions.publish_jobs({name: cards[name] for name in names[start : start + PUBLISH_MAX]}))
        self.note_cluster()


PREDECESSOR_PERIODS = 2  # beats that a session fails to show, where the lock of its tree is known to be free
GAP_PERIODS_MAX = 3  # readings further apart than so many periods prove nothing about the time between


@dataclass(slots=True)
class _Seen:
    counter: int
    since_ns: int


class SessionWatch:
    """Remembers the last counter of each foreign session, and since when.

    Guarantees
        A session is called dead only after its counter was seen unchanged, in readings that
        followed one another without a gap, for a whole session lease. So an outage of Redis,
        a suspended machine or a step of any wall clock calls nobody dead. Two periods of beats
        are enough for sessions of the tree that held this one's place before: the kernel gave
        up its lock.

    Does not guarantee
        That the session is dead when its runs are given back: it may beat at that moment. The
        script that condemns it compares the counter once more.
    """

    def __init__(self, *, lease_ns: int, period_ns: int, predecessor: str = "") -> None:
        """Build it; ``predecessor``: the replica that was here before, which is no more; empty: not known."""
        self._lease_ns = lease_ns
        self._predecessor = f"{predecessor}/" if predecessor else ""
        self._predecessor_ns = min(lease_ns, PREDECESSOR_PERIODS * period_ns)
        self._period_ns = period_ns
        self._seen: dict[str, _Seen] = {}
        self._read_ns = 0

    def reading(
        self, counters: Mapping[str, int], *, ours: Container[str], now_ns: int, answered_ns: int = 0
    ) -> list[tuple[str, int]]:
        """Take in one reading; return the (session, counter) that stood still for a whole lease.

        Args:
            counters: of every open session.
            ours: sessions that are not judged.
            now_ns: when Redis was asked; silence ends there at the latest.
            answered_ns: when it had answered, if later; silence begins there at the earliest.
        """
        if now_ns - self._read_ns > GAP_PERIODS_MAX * self._period_ns:
            self._seen.clear()
        self._read_ns = now_ns
        known, self._seen = self._seen, {}
        silent = []
        for session, counter in counters.items():
            if session in ours:
                continue
            seen = known.get(session)
            if seen is None or seen.counter != counter:
                seen = _Seen(counter, max(now_ns, answered_ns))
            self._seen[session] = seen
            if now_ns >= self._lapse_ns(session, seen):
                silent.append((session, counter))
        return silent

    def needs_reading(self, now_ns: int) -> bool:
        """Return whether it is time for a reading, or there will be a gap; never where nothing was seen."""
        return bool(self._seen) and now_ns - self._read_ns >= self._period_ns

    def due_ns(self) -> int | None:
        """Return when the first session will have been silent for a lease, unless it beats; None without any."""
        return min((self._lapse_ns(session, seen) for session, seen in self._seen.items()), default=None)

    def _lapse_ns(self, session: str, seen: _Seen) -> int:
        is_predecessors = self._predecessor and session.startswith(self._predecessor)
        return seen.since_ns + (self._predecessor_ns if is_predecessors else self._lease_ns)

    def interrupted(self) -> None:
        """Count everything afresh: Redis did not answer."""
        self._seen.clear()


UNWANTED_PERIOD_NS = SECOND_NS  # asked only while something is executed here
BETWEEN_NS = 250_000_000  # a worker has one place for such a request, and looks at it every 200 ms


def exclusive_slots(child: ChildContext) -> list[int]:
    """Return the worker slots whose processes execute one run at a time."""
    pools = {name for name, pool in child.settings.workers.items() if pool.kind is WorkerKind.SYNC}
    return [
        slot for slot, name in enumerate(child.slot_names) if name.removeprefix("worker-").rpartition("-")[0] in pools
    ]


@dataclass(eq=False, kw_only=True)
class Unwanted:
    """Makes runs of this replica end: in favour of newer ones of their schedule, or because a person cancelled them.

    It passes requests on from Redis to workers, and to the parent, who alone kills.

    Guarantees
        A request is repeated until it is withdrawn, so that a missed one is made up for. Several of one worker are
        passed on one after the other, so that none hides another.
        Only a process in the very execution that is meant is asked or killed, as far as the scoreboard shows.

    Does not guarantee
        That a coroutine that refuses its cancellation ends before its hard timeout: the process is not killed,
        because its neighbours would die with it. Its later reports are refused.
    """

    call: Callable[[Call[Any]], Any]
    queues: Queues
    workers: LocalWorkers
    row: Row  # the agent's own, for requests to the parent
    wake_parent: Callable[[], None]
    exclusive: InitVar[Collection[int]]  # slots whose process executes one run at a time, so that a kill hits no other
    report: Reporter
    history: int  # ended attempts that each queue remembers

    name = "unwanted"

    def __post_init__(self, exclusive: Collection[int]) -> None:
        self._exclusive = frozenset(exclusive)
        self._waiting: list[UnwantedRun] = []
        self._position: tuple[str, str] | None = None  # where the next page begins; None: a round is over

    @property
    def period_ns(self) -> int:
        """Time until the next run."""
        return BETWEEN_NS if self._waiting or self._position else UNWANTED_PERIOD_NS

    def run(self, _now_ns: int) -> None:
        """Pass on requests to end runs, one run of each worker; ask for a page if none waits and one is busy."""
        slots = self.workers.busy()
        if slots and not self._waiting:
            position = self._position or ("", "0")
            page = self.call(self.queues.unwanted(sorted(slots), history=self.history, position=position))
            self._waiting, self._position = page, page.position
        told: set[str] = set()
        later: list[UnwantedRun] = []
        for request in self._waiting:
            if request.session not in slots:
                continue
            is_busy = self.row.request_number != self.row.handled_number
            if request.session in told or (is_busy and request.ended is not None):  # its end is told as it is killed
                later.append(request)
            elif self._pass_on(request, slots[request.session]):
                told.add(request.session)
        self._waiting = later

    def _pass_on(self, request: UnwantedRun, slot: int) -> bool:
        """Notify the worker in ``slot``; return whether it executes the run."""
        reason = UnwantedReason.CANCELLED if request.is_cancelled else UnwantedReason.REPLACED
        wanted = execution_hash((request.queue, request.run_id), request.fetched_ms)
        if not self.workers.end_run(slot, wanted, reason):
            return False
        is_killed = request.is_killed and slot in self._exclusive
        self.report(
            "run_unwanted", run=request.run_id, session=request.session, why=reason.name.lower(), kill=is_killed
        )
        if is_killed and request.ended is not None:  # else its worker tells its end
            self.report("runs_ended", runs=[request.ended], how="it did not end in time, so it was let go of")
        # Where the parent has not seen the request before it, this one comes again.
        if is_killed and self.row.request(Verb.KILL, slot, int(request.session.rpartition("/")[2])):
            self.wake_parent()
        return True
