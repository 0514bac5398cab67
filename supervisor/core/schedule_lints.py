"""What to watch out for in a schedule that is right but may not mean what its author thinks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

from supervisor.core.cron import Cron
from supervisor.core.cron_dst import Gap, Overlap
from supervisor.core.model import ScheduleDef
from supervisor.core.trigger_kinds import Bounded, CronTrigger, Excluding, Trigger, Union
from supervisor.core.triggers import trigger_of

HORIZON_MS = 2 * 366 * 86_400_000
DATES_MAX = 2

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GAPS = {Gap.RUN: "runs as the gap ends", Gap.SKIP: "does not run", Gap.SHIFT: "runs later by the gap"}
_PASSES = {Overlap.FIRST: "on the first pass", Overlap.LAST: "on the last pass", Overlap.BOTH: "on both passes"}


def sentences(definition: ScheduleDef) -> list[str]:
    """Return in words when ``definition`` is due, one sentence for each of its triggers."""
    trigger = trigger_of(definition)
    found = [_sentence(part) for part in _parts(trigger)]
    if definition.exclude:
        found.append(f"Except {len(definition.exclude)} exclusion(s).")
    for name, at_ms in (("Not before", definition.start_at_ms), ("Not after", definition.end_at_ms)):
        if at_ms is not None:
            found.append(f"{name} {datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()}.")
    return found


def lints(definition: ScheduleDef, *, now_ms: int) -> list[str]:
    """Return what to watch out for within the next two years."""
    crons = [part.cron for part in _parts(trigger_of(definition)) if isinstance(part, CronTrigger)]
    notes = [note for note in map(_either_day, crons) if note is not None]
    return [*notes, *(note for cron in crons for note in _clock_changes(cron, now_ms))]


def _parts(trigger: Trigger) -> Iterator[Trigger]:
    if isinstance(trigger, Union):
        for part in trigger.parts:
            yield from _parts(part)
    elif isinstance(trigger, Excluding | Bounded):
        yield from _parts(trigger.inner)
    else:
        yield trigger


def _sentence(part: Trigger) -> str:
    if isinstance(part, CronTrigger):
        return part.cron.explain()
    words = part.describe()
    return f"{words[0].upper()}{words[1:]}."


def _either_day(cron: Cron) -> str | None:
    """Return a note where both day fields are restricted: cron then takes either, which surprises people."""
    if not cron.matches_either_day:
        return None
    day_of_month, _, day_of_week = cron.expression.split()[-3:]
    return (
        f"{cron.expression!r} is due on days that match day-of-month {day_of_month} OR day-of-week {day_of_week}, "
        f"as in every cron; for both at once, exclude the other days, or write the weekday as MON#1 (the first Monday)"
    )


def _clock_changes(cron: Cron, now_ms: int) -> Iterator[str]:
    """Yield where a change of the clock meets a fixed time, the next ones only."""
    gap, overlap = cron.policy
    for at, is_skipped in islice(cron.clock_changes(now_ms // 1000, HORIZON_MS // 1000), DATES_MAX):
        if is_skipped:
            yield (
                f"{cron.expression!r} falls into a gap of the clock on {_day(at)} in {cron.timezone}: "
                f"dst_gap {gap}, so it {_GAPS[gap]}"
            )
        else:
            yield (
                f"{cron.expression!r} comes twice on {_day(at)} in {cron.timezone}: "
                f"dst_overlap {overlap}, so it runs {_PASSES[overlap]}"
            )


def _day(at_s: int) -> str:
    return (_EPOCH + timedelta(seconds=at_s)).date().isoformat()
