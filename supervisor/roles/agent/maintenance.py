"""Periodic tasks of the agent, performed one after the other between two beats of its main thread.

Guarantees
    Beats go first, and between the calls of other tasks: a slow Redis makes each of them long. Between those of the
    reaper beats of other replicas are read too, so that no silence is forgotten meanwhile.
    A task that Redis refuses, or has no memory for, is reported once and tried again each second; the others go on. One
    that it does not answer ends the round: they wait with it, and come before it in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import Any, Protocol

from supervisor.clock import Clock
from supervisor.core.effects import Call, Reporter
from supervisor.core.errors import StoreFullError, StoreRefusedError, StoreUnavailableError
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Template
from supervisor.core.units import MILLISECOND_NS, NEVER_NS
from supervisor.roles.agent.sessions.tasks import FORGET_PERIOD_NS, SessionTasks
from supervisor.settings.sections.queues import QueueSettings
from supervisor.store.queues.bridges import INGEST_MAX, Bridges
from supervisor.store.queues.jobs import published_registry
from supervisor.store.queues.runs import Queues
from supervisor.telemetry.metrics import CLOUDFORET_INGESTED, ENQUEUED, REDIS_ERRORS

RETRY_NS = 300 * MILLISECOND_NS
REFUSED_NS = 1000 * MILLISECOND_NS


class PeriodicTask(Protocol):
    """One task of the agent."""

    name: str

    @property
    def period_ns(self) -> int:
        """Time until it is due again, asked when it has run."""
        ...

    def run(self, now_ns: int) -> None:
        """Do it once. Raises StoreRefusedError or StoreUnavailableError."""
        ...


@dataclass(slots=True, eq=False)
class _Scheduled:
    task: PeriodicTask
    due_ns: int = 0
    is_refused: bool = False


class Duties:
    """The periodic tasks of one agent."""

    def __init__(self, sessions: SessionTasks, others: Sequence[PeriodicTask] = ()) -> None:
        """Build it with the tasks for worker sessions, and ``others`` after them."""
        self._sessions = sessions
        self._clock = sessions.clock
        self._report = sessions.report
        self._beating = _Scheduled(sessions.beating)
        self._reclaiming = _Scheduled(sessions.reclaiming, NEVER_NS)
        self._publishing = _Scheduled(sessions.publishing)
        self._lost_ms = 0
        self._tasks = [
            _Scheduled(sessions.forgetting, self._clock.elapsed_ns() + FORGET_PERIOD_NS),
            self._beating,
            self._reclaiming,
            _Scheduled(sessions.finishing),
            _Scheduled(sessions.sweeping),
            _Scheduled(sessions.watching),
            self._publishing,
            *(_Scheduled(task) for task in others),
        ]
        sessions.reaper.between = self._between

    def next_ns(self) -> int:
        """Return when the next task is due."""
        return min(scheduled.due_ns for scheduled in self._tasks)

    def publish_first(self) -> None:
        """Publish the jobs, so that whoever sees this replica ready may enqueue them; later if Redis is silent."""
        try:
            self._do(self._publishing)
        except StoreUnavailableError:
            self._publishing.due_ns = 0

    def publish(self, cards: Mapping[str, str]) -> None:
        """Publish these jobs to producers from now on, and these at once."""
        self._sessions.cards = cards
        self._publishing.due_ns = 0

    def notice_loss(self, lost_ms: int) -> None:
        """Publish at once if Redis lost data since: ``lost_ms`` is when it did last, as the elector found."""
        if lost_ms != self._lost_ms:
            self._lost_ms, self._publishing.due_ns = lost_ms, 0

    def perform(self) -> bool:
        """Reclaim runs of dead workers here, then perform due tasks; return whether Redis answered everything."""
        if self._reclaiming.due_ns == NEVER_NS and self._sessions.workers.dead():
            self._reclaiming.due_ns = 0
        now_ns = self._clock.elapsed_ns()
        due = [scheduled for scheduled in self._tasks if scheduled.due_ns <= now_ns]
        try:
            for scheduled in sorted(due, key=lambda each: (each is not self._beating, each.due_ns)):
                self._do(scheduled)
        except StoreUnavailableError as error:
            self._sessions.watch.interrupted()
            self._report("election_unanswered", operation="sessions", failures=1, error=str(error))
            return False
        return not self._reclaiming.is_refused

    def _do(self, scheduled: _Scheduled) -> None:
        task, now_ns = scheduled.task, self._clock.elapsed_ns()
        scheduled.due_ns = now_ns + RETRY_NS  # stands if the next line raises
        try:
            task.run(now_ns)
        except (StoreRefusedError, StoreFullError) as error:
            scheduled.due_ns = now_ns + REFUSED_NS
            if task is self._sessions.watching:
                self._sessions.watch.interrupted()
            self._report("duty_refused", duty=task.name, error=str(error), is_new=not scheduled.is_refused)
            scheduled.is_refused = True
        else:
            scheduled.due_ns = min(now_ns + task.period_ns, NEVER_NS)
            scheduled.is_refused = False

    def beat_between(self) -> None:
        """Beat if that is due, before the next call of a task that makes many; one under way is not due."""
        if self._clock.elapsed_ns() >= self._beating.due_ns:
            self._do(self._beating)

    def _between(self) -> None:
        """Beat if that is due, and see whether others do."""
        self.beat_between()
        if self._sessions.watch.needs_reading(now_ns := self._clock.elapsed_ns()):
            try:
                self._sessions.observe(now_ns)
            except StoreRefusedError:
                self._sessions.watch.interrupted()  # its own task reports that


PERIOD_NS = 60_000 * MILLISECOND_NS
SLICE, SLICE_PERIOD_NS = 50, 500 * MILLISECOND_NS


class Retention:
    """The task of one agent. There is none where no age is set.

    Guarantees
        Each run makes at most ``SLICE`` calls, one for each queue, which drops up to 500 entries of each kind, and
        other duties go on in between. Every agent may do it: a second removal finds nothing. A queue that Redis
        refuses is counted and left out.

    Does not guarantee
        That an entry goes at the second: each queue is looked at once a minute, or as often as their number allows.
    """

    name = "retention"

    def __init__(self, *, run: Callable[[Call[Any]], Any], queues: Queues, limits: QueueSettings) -> None:
        self._run = run
        self._queues = queues
        self._limits = limits
        self._left: list[str] = []  # queues of this round

    @property
    def period_ns(self) -> int:
        """Time until the next run."""
        return SLICE_PERIOD_NS if self._left else PERIOD_NS

    @classmethod
    def of(cls, *, run: Callable[[Call[Any]], Any], queues: Queues, limits: QueueSettings) -> Retention | None:
        """Return the duty; None if nothing goes by its age."""
        if limits.history_age_s is None and limits.dead_age_s is None:
            return None
        return cls(run=run, queues=queues, limits=limits)

    def run(self, _now_ns: int) -> None:
        """Drop records that are too old, up to a bound for each queue."""
        self._left = self._left or self._run(self._queues.names())
        queues, self._left = self._left[:SLICE], self._left[SLICE:]
        for name in queues:
            try:
                self._trim(name)
            except StoreRefusedError as error:
                if error.concerns_client:
                    raise
                REDIS_ERRORS.labels(op="queue_trim").inc()

    def _trim(self, name: str) -> None:
        limits = self._limits
        self._run(
            self._queues.trim(
                name,
                history=limits.history,
                dead_cap=limits.dead,
                dead_age_ms=round(1000 * (limits.dead_age_s or 0)),
                history_age_ms=round(1000 * (limits.history_age_s or 0)),
            )
        )


RUN_JOB, REFUSED_JOB = "cloudforet.stp", "cloudforet.refused"
INGEST_PERIOD_NS = 500 * MILLISECOND_NS
REFUSED_PERIOD_NS = 30_000 * MILLISECOND_NS  # a key of another type, or no right to it: somebody has to act
CALLS_MAX = 5


@dataclass(eq=False, kw_only=True)
class Ingest:
    """Takes task messages out of the lists of SpaceONE into our queues: docs/cloudforet-services.md.

    Guarantees
        Every agent of the cluster may do it at once: a message is moved in one step, by whoever comes first.
        One run moves at most ``CALLS_MAX * INGEST_MAX`` messages of a queue, so that beats are not kept waiting.

    Does not guarantee
        Anything of a message before it is moved: until then it lies where SpaceONE left it.
    """

    call: Callable[[Call[Any]], Any]
    bridges: Bridges
    channels: InitVar[Mapping[str, str]]
    registry: Registry
    clock: Clock
    report: Reporter

    name = "ingest"
    period_ns = INGEST_PERIOD_NS

    def __post_init__(self, channels: Mapping[str, str]) -> None:
        self._channels = dict(channels)
        self._refused_until_ns: dict[str, int] = {}

    def follow(self, cards: Mapping[str, str]) -> None:
        """Make runs by the jobs that a reload left: those that are imported here follow the profiles of the start."""
        found = published_registry({name: card.encode() for name, card in cards.items()})
        if RUN_JOB in found:
            self.registry = found

    def run(self, now_ns: int) -> None:
        """Move the messages of each list."""
        for queue, channel in self._channels.items():
            if now_ns < self._refused_until_ns.get(queue, 0):
                continue
            try:
                self._drain(queue, channel)
            except StoreRefusedError as error:
                self._refused_until_ns[queue] = now_ns + REFUSED_PERIOD_NS
                self.report("ingest_refused", queue=queue, channel=channel, error=str(error))

    def _drain(self, queue: str, channel: str) -> None:
        run, refused = self._template(RUN_JOB), self._template(REFUSED_JOB)
        for _ in range(CALLS_MAX):
            now_ms = self.clock.wall_ms()
            found = self.call(
                self.bridges.ingest(
                    channel=channel, queue=queue, run=run, refused=refused, now_ms=now_ms, most=INGEST_MAX
                )
            )
            if found.moved:
                ENQUEUED.labels(queue, RUN_JOB).inc(found.moved)
                CLOUDFORET_INGESTED.labels(queue, "moved").inc(found.moved - found.set_aside)
            if found.set_aside:
                CLOUDFORET_INGESTED.labels(queue, "set_aside").inc(found.set_aside)
                self.report("messages_set_aside", queue=queue, channel=channel, count=found.set_aside)
            if not found.left:
                return

    def _template(self, job: str) -> Template:
        return self.registry.get(job).base
