"""Decisions about one schedule, from its definition, its watermark and the time: fire items and its plan. Pure.

Every change reaches the leader in one way, a schedule to look at, and is answered by ``evaluate``: whoever changed it,
when it is due next is worked out here alone. Its moment is Redis': pauses, graces and retention were written down by
its clock.

Guarantees
    The items of one schedule are in nominal order, each on the watermark of the one before.
    A due time that was prepared ahead and is fired on time costs no evaluation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container
from typing import NamedTuple

import msgspec

from supervisor.core.model import scheduled_run_id
from supervisor.core.schedules.catchup import Owed, Planned, fire_of, following_fire, mark_at, next_fire, owed
from supervisor.core.schedules.neighbours import Neighbours
from supervisor.core.schedules.triggers import after_completion_ms, after_end_ms
from supervisor.roles.scheduler.schedule_cache import CompiledSchedule
from supervisor.store.schedules.fire import PlanItem
from supervisor.store.schedules.reads import LOST
from supervisor.store.wire.codec import unpack_json
from supervisor.store.wire.fire import NOTHING, Counters, FireItem, Seen, What

RECHECK_MS = 60_000
"""A schedule that waits for the end of a run is looked at as often all the same: nothing hangs on one message."""


class DueSchedule(NamedTuple):
    """A schedule and its next due time."""

    schedule: str
    known: CompiledSchedule
    mark_ms: int
    nominal_ms: int
    fire_ms: int
    following: Planned | None  # the due time after it
    previous_ms: int | None = None  # the due time before it, where that is known
    owed_ms: int | None = None  # its pause is over, and only what was due until then is decided now


class _Decision(NamedTuple):
    mark_ms: int
    nominal_ms: int
    new_mark_ms: int
    next_ms: int | None


class DecisionTime(NamedTuple):
    """Time of a decision, with the tolerances that apply to it."""

    now_ms: int  # this machine's wall clock; Redis' where it judges what was read
    grace_ms: int  # how late a run may be and still be on time
    doubtful_until_ms: int = 0  # what was due until then may have been fired before Redis lost it
    ahead_ms: int = 0  # how far this machine's wall clock is ahead of ``now_ms``
    begun: Container[str] = ()  # runs known to have left their buffer: Redis lost it, or its schedule follows another

    def doubted(self, until_ms: int) -> DecisionTime:
        """Return it with the doubt about what was due until ``until_ms``."""
        return self._replace(doubtful_until_ms=max(self.doubtful_until_ms, until_ms))


def prepare(
    schedule: str, known: CompiledSchedule, mark_ms: int, *, after_ms: int = 0, live: int = 0
) -> DueSchedule | None:
    """Return the next due time of ``schedule`` after ``mark_ms``; None when time alone makes none due.

    Args:
        schedule: its id.
        known: its definition.
        mark_ms: its watermark.
        after_ms: when the end of its last run makes the next one due; 0: it did not.
        live: unfinished runs; while there are some, none is due by the end of one.

    Raises:
        TenureError: its exclusions leave nothing.
    """
    definition, trigger = known.definition, known.trigger
    planned = next_fire(definition, trigger, mark_ms)
    ended = _after(known, mark_ms, after_ms, live) if "c" in known.wait else None
    if ended is not None and planned is not None and planned.nominal_ms <= ended < planned.fire_ms:
        planned = planned._replace(fire_ms=ended)  # jitter ends with the next due time, which then is one with it
    elif ended is not None and (planned is None or ended < planned.fire_ms):
        return DueSchedule(schedule, known, mark_ms, ended, ended, planned)
    if planned is None:
        return None
    following = following_fire(definition, trigger, planned.nominal_ms)
    return DueSchedule(schedule, known, mark_ms, planned.nominal_ms, planned.fire_ms, following)


def items(
    ready: DueSchedule, moment: DecisionTime, limit: int, show_life: Callable[[], None] = lambda: None,
    *, bytes_max: int = sys.maxsize,
) -> list[FireItem]:  # fmt: skip
    """Return the items of ``ready`` to decide now, at most ``limit``; none when it is not due yet.

    Args:
        ready: a schedule and its next due time.
        moment: of the decision.
        limit: greatest number of items.
        show_life: called before each of several runs is made; arguments with many placeholders take 25 ms.
        bytes_max: no more are made once their runs have so many; the others are found again behind them.
    """
    now_ms, known = moment.now_ms, ready.known
    until_ms = now_ms if ready.owed_ms is None else min(now_ms, ready.owed_ms)
    if until_ms < ready.fire_ms:
        return []
    following = ready.following
    window = known.definition.catchup_window_ms
    is_alone = following is None or until_ms < following.fire_ms
    found = None
    if not is_alone or (window is not None and now_ms - ready.fire_ms > window):
        found = owed(
            known.definition, known.trigger, mark_ms=ready.mark_ms, now_ms=now_ms, on_time_grace_ms=moment.grace_ms,
            until_ms=until_ms,
        )  # fmt: skip
    if found is None:
        decision = _Decision(ready.mark_ms, ready.nominal_ms, ready.nominal_ms, _next(ready, moment))
        return [_asked(ready, moment, decision)]
    return _chain(ready, moment, found, limit, show_life, bytes_max=bytes_max)


def advanced(ready: DueSchedule, mark_ms: int) -> DueSchedule | None:
    """Return the due time after a decision that left the watermark at ``mark_ms``; None when time makes none due."""
    if "c" in ready.known.wait:  # what the end of its run makes due is read when that has ended
        return prepare(ready.schedule, ready.known, mark_ms, live=1)
    planned = ready.following
    if planned is None or mark_ms != ready.nominal_ms:
        return prepare(ready.schedule, ready.known, mark_ms)
    following = following_fire(ready.known.definition, ready.known.trigger, planned.nominal_ms)
    return DueSchedule(
        ready.schedule, ready.known, mark_ms, planned.nominal_ms, planned.fire_ms, following,
        previous_ms=ready.nominal_ms,
    )  # fmt: skip


def starts(seen: Seen, known: CompiledSchedule, counters: Counters, moment: DecisionTime) -> list[FireItem]:
    """Return items for runs without a due time: the initial run, and runs waiting in the buffer."""
    found = []
    definition, until_ms = known.definition, moment.doubtful_until_ms
    if definition.run_on_create and not counters.has_begun:
        # A schedule that was there before Redis went back may have begun then.
        found.append(_extra(seen, known, moment, moment.now_ms, What.INITIAL, is_doubtful=seen.mark_ms <= until_ms))
    is_forced = definition.overlap == "cancel_other" and 0 < counters.force_ms <= moment.now_ms
    for nominal_ms in seen.waiting:
        window = definition.catchup_window_ms
        is_old = window is not None and moment.now_ms - fire_of(definition, known.trigger, nominal_ms) > window
        is_doubtful = nominal_ms <= until_ms or scheduled_run_id(seen.schedule, nominal_ms) in moment.begun
        is_old = is_old or (known.is_at_most_once and is_doubtful)
        if definition.after is not None and known.checks is not None:  # of others they were asked when it was due
            is_old = is_old or known.checks.refusal(nominal_ms, moment.now_ms, known.trigger) is not None
        what = What.DROP if is_old else What.FORCE if is_forced else What.START
        found.append(_extra(seen, known, moment, nominal_ms, what, is_doubtful=is_doubtful))
    return found


def _after(known: CompiledSchedule, mark_ms: int, after_ms: int, live: int) -> int | None:
    delay = after_completion_ms(known.definition)
    if live or delay is None:
        return None
    # Without an end on record it counts from the watermark: a chain that could break would stop for ever.
    ended_ms = after_ms - delay if after_ms else mark_ms
    found = after_end_ms(known.definition, ended_ms)
    return found if found is None else max(found, mark_ms + 1)


def _next(ready: DueSchedule, moment: DecisionTime) -> int | None:
    if ready.following is not None:
        return ready.following.fire_ms
    delay = after_completion_ms(ready.known.definition) if "c" in ready.known.wait else None
    return None if delay is None else moment.now_ms + max(delay, RECHECK_MS)


def _chain(
    ready: DueSchedule, moment: DecisionTime, found: Owed, limit: int, show_life: Callable[[], None], *, bytes_max: int
) -> list[FireItem]:
    missed, why = sum(found.missed.values()), "".join(sorted(reason[0] for reason in found.missed))
    if missed and ready.nominal_ms <= moment.doubtful_until_ms:
        why = "".join(sorted({*why, LOST}))  # those that are left out may have run: for a backfill
    next_ms = found.next_fire_ms
    if next_ms is None:
        next_ms = _next(ready._replace(following=None), moment)
    if not found.nominals:
        decision = _Decision(ready.mark_ms, found.new_mark_ms, found.new_mark_ms, next_ms)
        item = _item(ready, moment, decision, is_missed=True)
        return [item._replace(missed=missed, why=why)]
    chain: list[FireItem] = []
    mark_ms = ready.mark_ms
    for index, nominal in enumerate(found.nominals[:limit]):
        if chain and bytes_max <= 0:
            break
        show_life()
        is_last = index == len(found.nominals) - 1
        new_mark_ms = found.new_mark_ms if is_last else nominal
        after = next_ms if is_last else found.nominals[index + 1]
        chain.append(_asked(ready, moment, _Decision(mark_ms, nominal, new_mark_ms, after)))
        bytes_max -= len(chain[-1].run.data)
        mark_ms = new_mark_ms
    first = chain[0]
    chain[0] = first._replace(missed=missed + first.missed, why="".join(sorted({*why, *first.why})))
    return chain


def _asked(ready: DueSchedule, moment: DecisionTime, decision: _Decision) -> FireItem:
    """Return the item of one due time: its run, or that a check or the doubt about data lost by Redis is against it."""
    known = ready.known
    if known.is_at_most_once and decision.nominal_ms <= moment.doubtful_until_ms:
        return _item(ready, moment, decision, is_missed=True)._replace(missed=1, why=LOST)
    if known.checks is not None:
        refusal = known.checks.refusal(decision.nominal_ms, moment.now_ms, known.trigger)
        if refusal is not None:
            item = _item(ready, moment, decision, is_missed=True)
            return item._replace(missed=1, why=refusal.letter + item.why, refusal=refusal)
    return _item(ready, moment, decision)


def _item(ready: DueSchedule, moment: DecisionTime, decision: _Decision, *, is_missed: bool = False) -> FireItem:
    known, schedule = ready.known, ready.schedule
    mark_ms, nominal_ms, new_mark_ms, next_ms = decision
    next_ms = next_ms if ready.owed_ms is None else ready.owed_ms  # to look again at once
    is_doubtful = nominal_ms <= moment.doubtful_until_ms
    run, what = NOTHING, What.MISSED
    if not is_missed:
        around, previous_ms = None, ready.previous_ms
        after_ms = ready.following.nominal_ms if ready.following is not None else 0
        if ready.nominal_ms == nominal_ms < after_ms:
            is_known = previous_ms is not None
            around = Neighbours(previous_ms, after_ms) if is_known else known.trigger.neighbours(nominal_ms, after_ms)
        run = known.run(schedule, nominal_ms, moment.now_ms, is_doubtful=is_doubtful, around=around)
        what = What.DUE
    delay_ms = ready.fire_ms - ready.nominal_ms
    if nominal_ms != ready.nominal_ms and not is_missed:
        delay_ms = fire_of(known.definition, known.trigger, nominal_ms) - nominal_ms
    return FireItem(
        schedule, known.revision, mark_ms, nominal_ms, new_mark_ms, next_ms, run, known.policy, what,
        why=LOST if is_doubtful else "", job=known.job, is_doubtful=is_doubtful, delay_ms=delay_ms,
    )  # fmt: skip


def _extra(
    seen: Seen, known: CompiledSchedule, moment: DecisionTime, nominal_ms: int, what: What, *, is_doubtful: bool
) -> FireItem:
    is_initial = what is What.INITIAL
    is_lost = is_initial and is_doubtful and known.is_at_most_once
    delay_ms = 0 if is_initial else fire_of(known.definition, known.trigger, nominal_ms) - nominal_ms
    run = NOTHING
    if what is not What.DROP and not is_lost:
        cause = "initial" if is_initial else "buffered" if known.definition.after is None else "after"
        run = known.run(seen.schedule, nominal_ms, moment.now_ms, cause=cause, is_doubtful=is_doubtful)
    item = FireItem(
        seen.schedule, known.revision, seen.mark_ms, nominal_ms, nominal_ms, None, run, known.policy, what,
        why=LOST if is_doubtful else "", job=known.job, is_doubtful=is_doubtful, delay_ms=delay_ms,
    )  # fmt: skip
    return item._replace(missed=1) if is_lost else item


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
    is_spent = definition.max_runs is not None and counters.fired >= definition.max_runs
    if seen.pause:
        return _paused(seen, known, moment, is_spent=is_spent)
    if 0 < definition.pause_after_failures <= counters.failed:
        pause = {"reason": f"{counters.failed} runs failed in a row", "by": BY}
        text = msgspec.json.encode(pause | dict.fromkeys(("at_ms", "due_ms"), moment.now_ms)).decode()
        return Evaluation(PlanItem(seen, None, wait=known.wait, set_pause=text))
    begin = tuple(starts(seen, known, counters, moment))
    ready = prepare(seen.schedule, known, seen.mark_ms, after_ms=counters.after_ms, live=seen.live)
    is_waiting = definition.after is not None or ("c" in known.wait and seen.live > 0)
    if is_spent or (ready is None and not is_waiting):
        return Evaluation(_completed(seen, known, counters, moment), None, begin)
    if counters.completed_ms:
        # It goes on: since an edit, which moved the watermark to its moment, or since now, as by a calendar. What would
        # have been due while it was completed is not made up for.
        mark_ms = seen.mark_ms if seen.mark_ms > counters.completed_ms else moment.now_ms
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


def _paused(seen: Seen, known: CompiledSchedule, moment: DecisionTime, *, is_spent: bool) -> Evaluation:
    pause = unpack_json(seen.pause)
    until_ms, due_ms = pause.get("until_ms"), pause.get("due_ms")
    if not isinstance(until_ms, int):
        return Evaluation(_unless_there(seen, PlanItem(seen, None, wait=known.wait)))
    if until_ms > moment.now_ms:
        return Evaluation(_unless_there(seen, PlanItem(seen, until_ms, wait=known.wait)))
    # The time of the pause never counts as missed, unless that is wanted. What was due before and after it does.
    is_owed = known.definition.on_resume == "catchup"
    if isinstance(due_ms, int) and due_ms < 10**15 and not (is_owed or is_spent or seen.counters.completed_ms):
        owed_ms = min(due_ms, until_ms)
        ready = prepare(seen.schedule, known, seen.mark_ms, after_ms=seen.counters.after_ms, live=seen.live)
        if ready is not None and ready.fire_ms <= owed_ms:
            plan = PlanItem(seen, ready.fire_ms, wait=known.wait)
            return Evaluation(_unless_there(seen, plan), ready._replace(owed_ms=owed_ms))
    mark_ms = None if is_owed else mark_at(known.definition, known.trigger, seen.mark_ms, until_ms)
    plan = PlanItem(seen, until_ms, new_mark_ms=mark_ms, wait=known.wait, set_pause="-")
    return Evaluation(plan, is_to_repeat=True)


def _completed(seen: Seen, known: CompiledSchedule, counters: Counters, moment: DecisionTime) -> PlanItem | None:
    since_ms = counters.completed_ms or moment.now_ms
    next_ms = None if known.keep_ms is None else since_ms + known.keep_ms
    if next_ms is not None and next_ms <= moment.now_ms and counters.completed_ms:
        return PlanItem(seen, next_ms, completed="-")
    if counters.force_ms > moment.now_ms:  # the grace of the run that its last one waits for
        next_ms = min(next_ms or counters.force_ms, counters.force_ms)
    completed = "" if counters.completed_ms else str(moment.now_ms)
    plan = PlanItem(seen, next_ms, wait=known.wait, completed=completed)
    return plan if completed else _unless_there(seen, plan)


def _unless_there(seen: Seen, plan: PlanItem) -> PlanItem | None:
    return None if seen.score == plan.next_ms else plan
