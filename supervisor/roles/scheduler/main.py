"""Runs the scheduler: one thread, a connection for questions and one that listens for changes, woken by signals too.

Guarantees
    It beats at least every half second, also while it waits and while Redis is away.
    TERM, or a board that drains, ends it after the batch in flight; QUIT ends it too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from operator import itemgetter
from random import Random
from typing import Any

import structlog

from supervisor.clock import Clock, SystemClock
from supervisor.core.cron import zones
from supervisor.core.effects import RunScript, Step, Watch, drive
from supervisor.core.errors import EXIT_OK
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.checks import FireRefusal
from supervisor.core.supervision.scoreboard import Row
from supervisor.core.supervision.states import ChildState, Phase
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.reload.config_memfd import HandoverError
from supervisor.roles.child import ChildContext, ConfigFollower, Wakeup
from supervisor.roles.scheduler.backfill import Backfills
from supervisor.roles.scheduler.firing import Decided
from supervisor.roles.scheduler.scheduler import Scheduler
from supervisor.settings.schedules.complete import schedules_digest
from supervisor.store.client.sync_client import ParkedStore
from supervisor.store.keys import Keys
from supervisor.store.schedules.fire import Schedules
from supervisor.store.schedules.reads import REASONS
from supervisor.store.wire.fire import FireCode, FireItem
from supervisor.telemetry import event_catalogue
from supervisor.telemetry.metrics import (
    CONFIG_SCHEDULES_IN_PLACE,
    ELECTION_FENCED,
    ELECTION_PROMOTION_TO_FIRST_FIRE_SECONDS,
    ENQUEUED,
    FIRES,
    FIRES_DOUBTFUL,
    HOOK_ANSWERS,
    MISSED,
    REDIS_ERRORS,
    SCHEDULE_LATE,
    SCHEDULE_LATENESS_SECONDS,
    SCHEDULES,
    SCHEDULES_INVALID,
    SCHEDULES_LATE,
    SCHEDULES_OVERDUE,
    SCHEDULES_PAUSED,
    SCHEDULES_REFUSED,
)

BEAT_NS = 400 * MILLISECOND_NS
CALL_TIMEOUT_S = 1.0


class Driver:
    """Carries out the steps of the scheduler."""

    def __init__(self, child: ChildContext, definitions: Sequence[ScheduleDef]) -> None:
        self._child = child
        self._clock = child.clock
        self._beating = _beating(child)
        settings = child.settings
        self._keys = Keys(settings.cluster)
        self._store = ParkedStore.connect(
            child.redis_url,
            settings=settings.redis,
            name=f"{settings.cluster}:scheduler",
            timeout_s=CALL_TIMEOUT_S,
            clock=child.clock,
            follow=child.board,
        )
        self._wakeup = Wakeup(child.clock)
        self._following = ConfigFollower(child)
        self._digest = schedules_digest(definitions) if definitions else ""
        report = SchedulerReport()
        rate = settings.scheduler.catchup_rate
        self._scheduler = Scheduler(
            schedules=Schedules(self._keys),
            board=child.board,
            clock=child.clock,
            definitions=definitions,
            lease_ms=int(settings.election.lease_duration_s * 1000),
            is_stopping=self._is_stopping,
            report=report,
            rng=Random(os.urandom(16)),  # noqa: S311 - it spreads retries
            catchup_rate=rate,
            allow_empty=settings.scheduler.allow_empty_static,
            backfills=Backfills(self._keys, clock=child.clock, report=report, rate_per_s=rate),
            zones_version=zones.database_version(),
            show_life=self._beating,
        )

    def run(self) -> int:
        """Serve terms until asked to stop."""
        try:
            self._child.announce(ChildState.READY)
            drive(self._scheduler.run(), self._execute)
            self._child.announce(ChildState.DRAINING)
            return EXIT_OK
        finally:
            self._wakeup.close()
            self._store.close()

    def _is_stopping(self) -> bool:
        return self._wakeup.is_draining or self._child.board.header.phase >= Phase.DRAINING

    def _execute(self, step: Step) -> Any:
        self._beat()
        now_ns, row = self._clock.elapsed_ns(), self._child.row
        if isinstance(step, RunScript):
            row.asking_ns = row.asking_ns or now_ns
            answer = self._store.run(step.call, timeout_s=step.timeout_ns / 1e9, meanwhile=step.meanwhile)
            row.asking_ns, row.redis_ok_ns = 0, self._clock.elapsed_ns()
            return answer
        if not self._child.board.term().is_trusted(now_ns):
            row.asking_ns = 0  # standing by it waits for none
        if isinstance(step, Watch):
            also = self._store.park(self._keys.schedule_changes, step.last_id)
            self._wakeup.wait(min(step.until_ns, now_ns + BEAT_NS), also)
            self._beat()
            return self._store.collect()
        # One slice: the scheduler looks at everything again after each wake, and each wake is a beat.
        self._wakeup.wait(min(step.until_ns, now_ns + BEAT_NS))
        return None

    def _beat(self) -> None:
        self._child.row.progress += 1
        self._beating()
        if number := self._following.poll():
            self._follow(number)

    def _follow(self, number: int) -> None:
        """Bring in the schedules of configuration ``number``, under the same term."""
        assert self._child.handover is not None
        with suppress(HandoverError):  # else the one after the next is there already, and the next look finds it
            digest = self._child.handover.brief(number).schedules_digest
            if digest != self._digest:
                self._scheduler.redeclare(self._child.handover.definitions(number))
                self._digest = digest


def _beating(child: ChildContext) -> Callable[[], None]:
    """Return the function that shows that this process does not hang: called several times for each fire."""
    words, beat, elapsed_ns = child.row.words, Row.beat_ns.index, child.clock.elapsed_ns

    def beating() -> None:
        words[beat] = elapsed_ns()

    return beating


def main(child: ChildContext, definitions: Sequence[ScheduleDef]) -> int:
    """Run the scheduler of ``child`` with the schedules of its configuration; return the exit code."""
    return Driver(child, definitions).run()


LINES_PER_S = 50
"""Decisions of a second that get a line of their own; the others share one, once it is over."""

_EXPECTED = {
    FireCode.FIRED, FireCode.SKIPPED, FireCode.BUFFERED, FireCode.REPLACED, FireCode.COMPLETED, FireCode.INITIAL,
    FireCode.HELD, FireCode.PAUSED,
}  # fmt: skip
_EVENTS = {FireCode.DROPPED, FireCode.SKEWED}
_UNDECIDED = {FireCode.DUP, FireCode.STALE, FireCode.PAUSED, FireCode.SKEWED, FireCode.REFUSED}
_OF_LEADER = (
    SCHEDULES, SCHEDULES_OVERDUE, SCHEDULES_PAUSED, SCHEDULES_INVALID, SCHEDULES_REFUSED, SCHEDULES_LATE
)  # fmt: skip
"""Gauges that say what a leader last saw. One that leads no more says nothing that a later one does not know better."""

_LEVELS = {
    "fenced": "warning",
    "schedule_invalid": "error",
    "clock_ahead_of_redis": "warning",
    "schedule_overdue": "warning",
    "schedule_auto_paused": "warning",
    "schedule_late": "warning",
    "watermarks_seeded": "warning",
    "due_times_lost": "error",
    "fires_doubtful": "warning",
    "backfill_unanswered": "warning",
    "declaring_unanswered": "warning",
    "schedules_refused": "error",
    "schedules_put_off": "error",
    "reading_refused": "error",
}


class SchedulerReport:
    """Log and metrics of the scheduler."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._log = structlog.get_logger()
        self._clock = clock or SystemClock()
        self._second = 0
        self._lines = 0
        self._unwritten: Counter[str] = Counter()  # decisions without a line, by code
        self._acquired_ns = 0  # when the term was granted; 0 once something was fired in it
        for code in (FireCode.DROPPED, FireCode.REFUSED, FireCode.SKEWED):
            FIRES.labels(code=code.lower())  # from 0 on: an alarm sees growth alone

    def __call__(self, event: str, **fields: Any) -> None:
        """Report one decision, or a batch of them."""
        if event == "fires":
            self._fires(fields["decided"])
            return
        if self._unwritten:
            self._room(0)
        if event == "term_begun":
            self._acquired_ns = fields["acquired_ns"]
            return
        if event == "term_left":
            self._write_rest()
            for gauge in _OF_LEADER:
                gauge.set(0)
            return
        if event == "plan":
            SCHEDULES.set(fields["defined"])
            SCHEDULES_OVERDUE.set(fields["overdue"])
            SCHEDULES_PAUSED.set(fields["paused"])
            SCHEDULES_INVALID.set(fields["invalid"])
            SCHEDULES_REFUSED.set(fields["refused"])
            return
        if event in {"schedule_paused", "schedule_resumed"} and not self._room(1):  # many by one request
            event_catalogue.record(event, fields)
            return
        if event == "schedules_late":
            SCHEDULES_LATE.set(fields["count"])
            return
        if event == "backfilled":
            ENQUEUED.labels(queue=fields["queue"], job=fields["job"]).inc(fields["count"])
            return
        if event == "scheduler_refused":
            REDIS_ERRORS.labels(op=fields["script"]).inc()
            return
        if event == "scheduler_unanswered":
            REDIS_ERRORS.labels(op=fields["script"]).inc()
            if fields["failures"] > 1:
                return  # one line for each outage
        elif event == "schedules_declared":
            CONFIG_SCHEDULES_IN_PLACE.set(int(not fields["is_refused"]))
        elif event == "fires_doubtful":
            FIRES_DOUBTFUL.inc(fields["count"])
        elif event == "schedule_late":
            SCHEDULE_LATE.labels(promise=fields["promise"]).inc(fields["count"])
        elif event == "due_times_lost":
            MISSED.labels(reason="data_loss").inc(fields["count"])
        elif event == "fenced":
            ELECTION_FENCED.inc()
        elif event == "schedule_planned":
            next_ms = fields.pop("next_ms")
            fields["next"] = None if next_ms is None else _moment(next_ms)
        event_catalogue.log(event, fields, level=_LEVELS.get(event, "info"))

    def _fires(self, decided: Sequence[Decided]) -> None:
        codes = Counter(map(itemgetter(1), decided))
        enqueued: Counter[tuple[str, str]] = Counter()
        late_s: list[float] = []
        for item, code, late_ms in decided:
            if code is FireCode.FIRED:
                enqueued[item.run.queue, item.job] += 1
                late_s.append(max(0, late_ms) / 1000)
            if item.missed and code not in _UNDECIDED:
                self._missed(item)
            if code in _EVENTS:
                event_catalogue.record(_name(code), {"schedule": item.schedule}, level="warning")
        if enqueued and self._acquired_ns:
            seconds = (self._clock.elapsed_ns() - self._acquired_ns) / SECOND_NS
            ELECTION_PROMOTION_TO_FIRST_FIRE_SECONDS.observe(seconds)
            self._acquired_ns = 0
        SCHEDULE_LATENESS_SECONDS.observe_all(late_s)
        for code, count in codes.items():
            FIRES.labels(code=code.lower()).inc(count)
        for (queue, job), count in enqueued.items():
            ENQUEUED.labels(queue=queue, job=job).inc(count)
        room = self._room(len(decided))
        for each in decided[:room]:
            self._line(each)
        self._unwritten.update(code.lower() for _, code, _ in decided[room:])

    def _write_rest(self) -> None:
        if self._unwritten:
            self._log.info("schedules_decided", decisions=self._unwritten.total(), **self._unwritten)
            self._unwritten.clear()

    def _missed(self, item: FireItem) -> None:
        schedule, missed, why, refusal = item.schedule, item.missed, item.why, item.refusal
        if refusal is not None:
            HOOK_ANSWERS.labels(refusal.hook, refusal.point.value, "reject").inc()
            MISSED.labels(reason=refusal.hook).inc()
            event_catalogue.record("fire_rejected", {"of": schedule, **_rejection(refusal)})
            missed, why = missed - 1, why.replace(refusal.letter, "")
            if missed == 0:
                return
        reasons = [REASONS.get(letter, letter) for letter in why] or ["policy"]
        MISSED.labels(reason="+".join(reasons)).inc(missed)
        fields = {"schedule": schedule, "missed": missed, "reason": "+".join(reasons)}
        event_catalogue.log("schedule_missed", fields, level="warning")

    def _room(self, wanted: int) -> int:
        """Return how many of ``wanted`` lines may still be written in this second."""
        second = self._clock.elapsed_ns() // SECOND_NS
        if second != self._second:
            self._second, self._lines = second, 0
            self._write_rest()
        room = min(wanted, max(0, LINES_PER_S - self._lines))
        self._lines += room
        return room

    def _line(self, decided: Decided) -> None:
        item, code, late_ms = decided
        if code is FireCode.REFUSED:
            return  # told once, as schedules_put_off
        if code is FireCode.MISSED and item.refusal is not None:
            fields = {"nominal_ms": item.nominal_ms, **_rejection(item.refusal)}
            self._log.info("fire_rejected", schedule=item.schedule, **fields)
            return
        tell = self._log.info if code in _EXPECTED else self._log.warning
        tell(
            _name(code),
            schedule=item.schedule,
            run=item.run.run_id or f"{item.schedule}@{item.nominal_ms}",
            nominal_ms=item.nominal_ms,
            late_ms=late_ms,
        )


def _name(code: FireCode) -> str:
    """Return the name of a decision in the log; a due time of a paused schedule is not the pause itself."""
    return "fire_paused" if code is FireCode.PAUSED else f"schedule_{code.value.lower()}"


def _moment(at_ms: int) -> str:
    """Return a time for people; of one behind every calendar, by a watermark that a hand wrote, the last one."""
    return datetime.fromtimestamp(min(at_ms / 1000, zones.SECOND_MAX), UTC).isoformat()


def _rejection(refusal: FireRefusal) -> dict[str, str]:
    return {"point": refusal.point.value, "hook": refusal.hook, "reason": refusal.reason}
