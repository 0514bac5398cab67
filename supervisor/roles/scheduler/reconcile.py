"""Evaluation of a schedule that was read: a place in the plan, runs to begin, a pause to end. Pure.

The moment is Redis': pauses, graces and retention were written down by its clock.

Every change reaches the leader in one way, a schedule to look at, and is answered here: whoever
changed it, when it is due next is worked out by this code alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from supervisor.roles.effects import Reporter
from supervisor.roles.scheduler.fire_items import RECHECK_MS, DecisionTime, DueSchedule, prepare, starts
from supervisor.roles.scheduler.schedule_cache import CompiledSchedule
from supervisor.store.schedules.state import Counters
from supervisor.store.wire.codec import unpack_json
from supervisor.store.wire.fire import DueReply, FireItem, PlanItem, Seen

BY = "tenure"
REASON_MAX = 500
UNUSABLE_MS = 60_000
"""How long a schedule that cannot be used is left alone: a newer version may lead then."""


class Evaluation(NamedTuple):
    """Evaluation of one schedule: its plan, its next due time, and the runs that begin now."""

    plan: PlanItem | None = None
    ready: DueSchedule | None = None  # its next due time
    begin: tuple[FireItem, ...] = ()  # what begins now without a due time
    is_to_repeat: bool = False  # read it again when that is done


def evaluate(seen: Seen, known: CompiledSchedule, moment: DecisionTime) -> Evaluation:
    """Return the evaluation of ``seen``.

    Raises:
        TenureError: its exclusions leave nothing, or its arguments cannot be filled in.
    """
    definition, counters = known.definition, seen.counters
    if seen.pause:
        return _paused(seen, known, moment)
    if 0 < definition.pause_after_failures <= counters.failed:
        pause = {"reason": f"{counters.failed} runs failed in a row", "by": BY, "at_ms": moment.now_ms}
        text = msgspec.json.encode(pause).decode()
        return Evaluation(PlanItem(seen, None, wait=known.wait, set_pause=text))
    begin = tuple(starts(seen, known, moment))
    ready = prepare(seen.schedule, known, seen.mark_ms, after_ms=counters.after_ms, live=seen.live)
    is_spent = definition.max_runs is not None and counters.fired >= definition.max_runs
    is_waiting = definition.after is not None or ("c" in known.wait and seen.live > 0)
    if is_spent or (ready is None and not is_waiting):
        return Evaluation(_completed(seen, known, counters, moment), None, begin)
    if counters.completed_ms:
        # Somebody let it go on. What would have been due while it was completed is not made up for.
        mark_ms = max(seen.mark_ms, moment.now_ms)
        plan = PlanItem(seen, moment.now_ms, new_mark_ms=mark_ms, wait=known.wait, completed="0")
        return Evaluation(plan, is_to_repeat=True)
    next_ms = ready.fire_ms if ready else moment.now_ms + RECHECK_MS
    if counters.force_ms > moment.now_ms:
        next_ms = min(next_ms, counters.force_ms)
    plan = PlanItem(seen, next_ms, wait=known.wait)
    is_planned = seen.score is not None and seen.score > 0
    if is_planned and ready and (seen.score == next_ms or next_ms <= moment.now_ms):
        return Evaluation(None, ready, begin)  # what is due now is planned anew by its fire
    return Evaluation(plan, ready, begin)


def unusable(seen: Seen, moment: DecisionTime, reason: str) -> PlanItem:
    """Return the plan for a schedule whose definition cannot be used."""
    return PlanItem(seen, moment.now_ms + UNUSABLE_MS, invalid=reason[:REASON_MAX] or "it cannot be used")


def _paused(seen: Seen, known: CompiledSchedule, moment: DecisionTime) -> Evaluation:
    until_ms = unpack_json(seen.pause).get("until_ms")
    if not isinstance(until_ms, int):
        return Evaluation(_unless_there(seen, PlanItem(seen, None, wait=known.wait)))
    if until_ms > moment.now_ms:
        return Evaluation(_unless_there(seen, PlanItem(seen, until_ms, wait=known.wait)))
    # The time of the pause never counts as missed, unless that is wanted. What came due since it ended does.
    mark_ms = None if known.definition.on_resume == "catchup" else max(seen.mark_ms, until_ms)
    plan = PlanItem(seen, until_ms, new_mark_ms=mark_ms, wait=known.wait, set_pause="-")
    return Evaluation(plan, is_to_repeat=True)


def _completed(seen: Seen, known: CompiledSchedule, counters: Counters, moment: DecisionTime) -> PlanItem | None:
    since_ms = counters.completed_ms or moment.now_ms
    if known.keep_ms is None:
        next_ms = None
    elif since_ms + known.keep_ms <= moment.now_ms and counters.completed_ms:
        return PlanItem(seen, since_ms + known.keep_ms, completed="-")
    else:
        next_ms = since_ms + known.keep_ms
    completed = "" if counters.completed_ms else str(moment.now_ms)
    plan = PlanItem(seen, next_ms, wait=known.wait, completed=completed)
    return plan if completed else _unless_there(seen, plan)


def _unless_there(seen: Seen, plan: PlanItem) -> PlanItem | None:
    return None if seen.score == plan.next_ms else plan


ANNOUNCED_MAX = 200  # schedules that get a log line of their own in a term
NAMED_MAX = 10  # schedules named in one line


class CappedReports:
    """Reports changes since its last report."""

    def __init__(self, report: Reporter) -> None:
        self._report = report
        self._overdue = 0
        self.begin()

    def begin(self) -> None:
        """Start a term."""
        self._is_first = True
        self._announced = 0

    def read(self, reply: DueReply, *, refused: int) -> None:
        """Report how many schedules there are, and that some are overdue."""
        if self._is_first:
            self._report("term_read", schedules=reply.defined)
            self._is_first = False
        if reply.overdue and not self._overdue:
            self._report("schedule_overdue", count=reply.overdue, reason="due more than a minute ago")
        self._overdue = reply.overdue
        counts = {name: getattr(reply, name) for name in ("defined", "planned", "overdue", "paused", "invalid")}
        self._report("plan", **counts, refused=refused)

    def planned(self, plan: PlanItem, ready: DueSchedule | None) -> None:
        """Report that a schedule has a place in the plan."""
        if plan.set_pause and plan.set_pause != "-":
            self._report("schedule_auto_paused", schedule=plan.seen.schedule, reason="its runs keep failing")
        if ready is None or self._announced >= ANNOUNCED_MAX:
            return
        self._announced += 1
        self._report(
            "schedule_planned",
            schedule=plan.seen.schedule,
            trigger=ready.known.trigger.describe(),
            next_ms=ready.nominal_ms,
        )

    def put_off(self, schedules: Sequence[str], error: str) -> None:
        """Report that Redis refuses ``schedules``."""
        if schedules:
            self._report("schedules_put_off", schedules=schedules[:NAMED_MAX], count=len(schedules), reason=error)

    def accepted(self, schedules: Sequence[str]) -> None:
        """Report that Redis refuses ``schedules`` no longer."""
        if schedules:
            self._report("schedules_accepted_again", schedules=schedules[:NAMED_MAX], count=len(schedules))
