"""Operations on schedules that follow others (``after``)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.triggers import loop_of
from supervisor.operations import Operation, one, slices
from supervisor.store.keys import Keys
from supervisor.store.schedules.definitions import BATCH_MAX
from supervisor.store.schedules.reads import Inspection, Record, Views

AWAITED_MAX = 10  # unfinished runs that are named
CHAIN_MAX = 100  # schedules that follow each other: more are not looked at


def awaited_words(keys: Keys, found: Inspection, definition: ScheduleDef) -> Operation[list[str]]:
    """Return in sentences what a schedule that follows another waits for; none for others."""
    if definition.after is None:
        return []
    name = definition.after.schedule
    (other,) = yield from one(Views(keys).inspect([name]))
    if other.record is None:
        return [f"There is no schedule {name}: it is never due."]
    words = [f"Its nominal times are those of {name}: see tenure schedule next {name}."]
    if other.live:
        words.append(f"It waits for the end of {', '.join(run for _, run in other.live[:AWAITED_MAX])}.")
    if found.buffered:
        words.append(f"{found.buffered} of its runs wait for their turn.")
    return words


def unfollowable(keys: Keys, wanted: Sequence[ScheduleDef]) -> Operation[list[tuple[str, str]]]:
    """Return which of ``wanted`` follow a schedule that is not there, or themselves by way of others, and why."""
    followed = {each.id: None if each.after is None else each.after.schedule for each in wanted}
    absent = set()
    for _ in range(CHAIN_MAX):
        others = sorted({name for name in followed.values() if name is not None} - followed.keys())
        if not others:
            break
        for batch in slices(others, BATCH_MAX):
            for found in (yield from one(Views(keys).inspect(batch))):
                if found.record is None:
                    absent.add(found.id)
                followed[found.id] = _followed(found.record)
    faults = []
    for each in wanted:
        name = followed[each.id]
        if name in absent:
            faults.append((each.id, f"follows {name!r}, which is no schedule of this cluster"))
        elif loop := loop_of(each.id, followed.get):
            faults.append((each.id, f"follows itself: {' after '.join(loop)}, so none of them is ever due"))
    return faults


def _followed(record: Record | None) -> str | None:
    try:
        after = None if record is None else record.definition().after
    except msgspec.DecodeError:
        return None
    return None if after is None else after.schedule
