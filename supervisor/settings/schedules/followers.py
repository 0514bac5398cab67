"""Rules of schedules that follow others (``after``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from supervisor.core.schedules.triggers import loop_of
from supervisor.settings.base import Path, Violation
from supervisor.settings.schedules.settings import ScheduleSettings

FOLLOWERS_MAX = 100
"""How many may follow one schedule: the step that ends its run looks at each."""

_TIMES = ("when", "exclude", "only", "start_at", "end_at", "jitter_s", "phase_s")


def times_beside_after(path: Path, schedule: ScheduleSettings, triggers: Sequence[str]) -> Iterator[Violation]:
    """Yield the times that ``schedule`` names beside ``after``; ``triggers`` are those in front of ``when``."""
    for key in (*triggers, *(key.removesuffix("_s") for key in _TIMES if getattr(schedule, key))):
        message = "has no effect beside after, which takes the times of the other schedule"
        yield Violation(((*path, key),), message, "remove it, or after")


def loops(schedules: Mapping[str, ScheduleSettings]) -> Iterator[Violation]:
    """Yield which schedules follow themselves, by way of others."""
    followed = {name: each.after.schedule for name, each in schedules.items() if each.after is not None}
    for name in followed:
        if loop := loop_of(name, followed.get):
            message = f"follows itself: {' after '.join(loop)}, so none of them is ever due"
            yield Violation((("schedules", name, "after", "schedule"),), message, "give one of them times of its own")


def unfollowable(schedules: Mapping[str, ScheduleSettings]) -> Iterator[Violation]:
    """Yield who follows a schedule that the configuration does not have, or that too many follow."""
    followers: Counter[str] = Counter()
    for name, schedule in schedules.items():
        if schedule.after is None:
            continue
        followed, path = schedule.after.schedule, ("schedules", name, "after", "schedule")
        followers[followed] += 1
        if followed not in schedules:
            near = get_close_matches(followed, schedules, 1)
            remedy = (
                f"did you mean {near[0]}?" if near else "follow one that it has; those of other clusters end unseen"
            )
            yield Violation((path,), f"{followed!r} is no schedule of this configuration", remedy)
        elif followers[followed] > FOLLOWERS_MAX:
            yield Violation((path,), f"{FOLLOWERS_MAX} others follow {followed!r} already", "follow one of those")
