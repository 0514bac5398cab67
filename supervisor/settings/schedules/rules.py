"""Rules between the fields of a schedule, and between all schedules.

Whatever passes can be turned into a definition (definitions.py) and has a due time, or had one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from supervisor.core.cron.expression import CronError, compile_cron
from supervisor.core.cron.fields import interval_of, split_zone
from supervisor.core.cron.zones import zone
from supervisor.core.durations import format_duration, parse_duration
from supervisor.core.errors import TenureError
from supervisor.core.model import CalendarInterval, Exclusion
from supervisor.core.schedules.triggers import loop_of
from supervisor.settings.base import Path, Violation, split
from supervisor.settings.schedules.instants import is_date, parse_clock, parse_date, parse_day, parse_instant
from supervisor.settings.schedules.settings import CalendarSettings, ExcludeSettings, ScheduleSettings, WhenSettings

T = TypeVar("T")
EVERY_MS_MIN = 100
LEASE_S = 5.0
"""The default lease duration: for checks of a schedule without a configuration."""
_TRIGGERS = ("every", "cron", "calendar_interval", "at", "after_completion")
_UNITS = ("days", "weeks", "months")

FOLLOWERS_MAX = 100
"""How many may follow one schedule: the step that ends its run looks at each."""

_TIMES = ("when", "exclude", "only", "start_at", "end_at", "jitter_s", "phase_s")


class Faults(list[Violation]):
    """The broken rules of one subject, such as a schedule."""

    def add(self, path: Path, message: str, remedy: str = "") -> None:
        """Note one."""
        self.append(Violation((path,), message, remedy))

    def tried(self, path: Path, read: Callable[..., T], *texts: Any) -> T | None:
        """Return what ``read`` makes of ``texts``; None once it is noted why it refuses them."""
        try:
            return read(*texts)
        except (TenureError, ValueError) as error:
            self.add(path, *split(str(error)))
            return None


def faults_of_set(schedules: Mapping[str, ScheduleSettings], *, lease_s: float = LEASE_S) -> Iterator[Violation]:
    """Yield every broken rule of every schedule, and between them."""
    for name, schedule in schedules.items():
        yield from faults_of(name, schedule, lease_s=lease_s)
    renamed = {name: schedule.renamed_from for name, schedule in schedules.items()}
    for name, (message, remedy) in faults_of_renames(renamed).items():
        yield Violation((("schedules", name, "renamed_from"),), message, remedy)
    yield from loops(schedules)


def faults_of_renames(renamed: Mapping[str, str | None]) -> dict[str, tuple[str, str]]:
    """Return message and remedy of each schedule that cannot be the new name of what it says."""
    found, heirs = {}, dict[str, str]()
    for name, old in renamed.items():
        if not old:
            continue
        if old in renamed:
            what = "is this schedule itself" if old == name else "is another schedule, still defined"
            found[name] = f"{old!r} {what}", "remove renamed_from, or the old schedule"
        elif (heir := heirs.setdefault(old, name)) != name:
            found[name] = f"{old!r} was renamed to {heir!r}", "remove renamed_from of one of the two"
    return found


def faults_of(name: str, schedule: ScheduleSettings, *, lease_s: float = LEASE_S) -> list[Violation]:
    """Return every broken rule of one schedule, in a cluster with this lease duration in seconds."""
    path: Path = ("schedules", name)
    faults = Faults()
    timezone = zone_of(schedule)
    if faults.tried((*path, "cron" if schedule.timezone is None else "timezone"), zone, timezone) is None:
        return faults
    _triggers(path, schedule, timezone, name, faults)
    start_ms = _instant((*path, "start_at"), schedule.start_at, timezone, faults)
    end_ms = _instant((*path, "end_at"), schedule.end_at, timezone, faults)
    _order(path, schedule, (start_ms, end_ms), timezone, faults)
    for index, item in enumerate(schedule.exclude):
        _exclusion((*path, "exclude", index), item, timezone, name, faults)
    if schedule.buffer_limit is not None and schedule.overlap not in {"buffer_all", None}:
        faults.add((*path, "buffer_limit"), f"has no effect on overlap: {schedule.overlap}", "use overlap: buffer_all")
    window_s = schedule.catchup_window_s
    if window_s is not None and window_s < 2 * lease_s:
        least = format_duration(2 * lease_s)
        message = (
            f"{format_duration(window_s)} is shorter than two lease durations ({least}), which a hand-over may take"
        )
        remedy = f"write {least} or more, or leave it out for no limit"
        faults.add((*path, "catchup_window"), message, remedy)
    return faults


def zone_of(schedule: ScheduleSettings) -> str:
    """Return the name of the zone of ``schedule``: of a prefix of its expression where ``timezone`` is absent."""
    if schedule.timezone is not None:
        return schedule.timezone
    prefix = None if schedule.cron is None else split_zone(schedule.cron)[0]
    return "UTC" if prefix is None else prefix


def _triggers(path: Path, schedule: ScheduleSettings, timezone: str, seed: str, faults: Faults) -> None:
    if schedule.after is not None:
        faults += times_beside_after(path, schedule, _named(schedule))
        return
    has_grid = schedule.every_s is not None or _is_interval(schedule.cron)
    if not _named(schedule) and not schedule.when:
        paths = (path, *((*path, name) for name in (*_TRIGGERS, "when", "after")))
        seen = f"has none of {', '.join(_TRIGGERS)}, when and after"
        faults.append(Violation(paths, seen, "add one, e.g. every: 10m"))
    _trigger(path, schedule, timezone, seed, faults)
    for index, when in enumerate(schedule.when):
        place = (*path, "when", index)
        named = _named(when)
        if len(named) != 1:
            none = f"has none of {', '.join(_TRIGGERS[:-1])} and {_TRIGGERS[-1]}"
            seen = f"has {' and '.join(named)}" if named else none
            faults.add(place, seen, "give each entry of the list exactly one")
            continue
        has_grid = has_grid or "every" in named or _is_interval(when.cron)
        own = timezone if when.timezone is None else when.timezone
        is_known = faults.tried((*place, "timezone"), zone, own) is not None
        if when.timezone is not None and when.cron is None and when.calendar_interval is None:
            faults.add((*place, "timezone"), "is for cron and calendar_interval only", "remove it")
        if is_known:
            _trigger(place, when, own, seed, faults)
    if schedule.anchor != "epoch":
        if schedule.anchor == "start_at" and schedule.start_at is None:
            faults.add((*path, "anchor"), "is start_at, which is not set", "set start_at, or remove anchor")
        elif not has_grid:
            faults.add((*path, "anchor"), "has no effect without every", "remove it")
        elif schedule.anchor != "start_at" and schedule.start_at is not None:
            faults.add((*path, "anchor"), f"is {schedule.anchor}, but start_at is set too", "remove one of them")


def _named(entry: ScheduleSettings | WhenSettings) -> list[str]:
    values = (entry.every_s, entry.cron, entry.calendar_interval, entry.at, entry.after_completion_s)
    return [name for name, value in zip(_TRIGGERS, values, strict=True) if value is not None]


def _is_interval(cron: str | None) -> bool:
    return cron is not None and interval_of(cron) is not None


def _trigger(path: Path, entry: ScheduleSettings | WhenSettings, timezone: str, seed: str, faults: Faults) -> None:
    is_interval = _is_interval(entry.cron)
    if entry.phase_s and entry.every_s is None and not is_interval:
        faults.add((*path, "phase"), "has no effect without every", "remove it")
    if is_interval and entry.every_s is not None:
        faults.add((*path, "cron"), "is an interval, as every is", "remove one of them")
    if entry.calendar_interval is not None:
        _calendar((*path, "calendar_interval"), entry.calendar_interval, faults)
    if entry.at is not None:
        _instant((*path, "at"), entry.at, timezone, faults)
    if entry.cron is not None:
        _cron((*path, "cron"), entry.cron, None if entry.timezone is None else timezone, seed, faults)


def _calendar(path: Path, entry: CalendarSettings, faults: Faults) -> None:
    units = [unit for unit in _UNITS if getattr(entry, unit) is not None]
    if len(units) != 1:
        seen = f"has {' and '.join(units)}" if units else "has none of days, weeks and months"
        paths = (path, *((*path, unit) for unit in _UNITS))
        faults.append(Violation(paths, seen, "give exactly one, such as weeks: 2"))
    if entry.short_month != "last" and "months" not in units:
        faults.add((*path, "short_month"), "has no effect without months", "remove it")
    if entry.from_ is None:
        faults.add(path, "has no first day", "add one to count from, such as from: 2026-11-23")
    for key, text, parse in (("time", entry.time, parse_clock), ("from", entry.from_, parse_date)):
        if text is not None:
            faults.tried((*path, key), parse, text)


def calendar_of(entry: CalendarSettings) -> CalendarInterval:
    """Return an interval of the calendar as Redis keeps it. It must have no faults."""
    return CalendarInterval(
        from_day=parse_date(entry.from_ or ""),
        days=(entry.days or 0) + 7 * (entry.weeks or 0),
        months=entry.months or 0,
        time_s=parse_clock(entry.time),
        skips_short_months=entry.short_month == "skip",
    )


def _cron(path: Path, expression: str, timezone: str | None, seed: str, faults: Faults) -> None:
    """Check an expression; ``timezone`` is None where a prefix may name it."""
    interval = interval_of(split_zone(expression)[1])
    try:
        if interval is None:
            compile_cron(expression, timezone, seed=seed)
        elif round(parse_duration(interval) * 1000) < EVERY_MS_MIN:
            faults.add(path, f"{expression!r} is shorter than 100ms", "use @every 100ms or more")
    except CronError as error:
        faults.add(path, *split(str(error)))
    except ValueError as error:
        faults.add(path, f"@every: {str(error).rpartition(': ')[0]}", str(error).rpartition(": ")[2])


def _instant(path: Path, text: str | None, timezone: str, faults: Faults) -> int | None:
    return None if text is None else faults.tried(path, parse_instant, text, timezone)


def _order(
    path: Path, schedule: ScheduleSettings, bounds: tuple[int | None, int | None], timezone: str, faults: Faults
) -> None:
    """Check that the bounds leave room, and that every instant lies within them."""
    start_ms, end_ms = bounds
    if start_ms is not None and end_ms is not None and start_ms > end_ms:
        message = f"{schedule.end_at} lies before start_at, {schedule.start_at}"
        faults.append(Violation(((*path, "end_at"), (*path, "start_at")), message, "swap them"))
        return
    instants: Iterable[tuple[Path, str | None]] = [
        ((*path, "at"), schedule.at),
        *(((*path, "when", index, "at"), when.at) for index, when in enumerate(schedule.when)),
    ]
    for place, text in instants:
        at_ms = _instant(place, text, timezone, Faults())
        if at_ms is None:
            continue
        if (start_ms is not None and at_ms < start_ms) or (end_ms is not None and at_ms > end_ms):
            faults.add(place, f"{text} lies outside start_at and end_at, so it is never due", "change one of them")


def _exclusion(path: Path, item: ExcludeSettings, timezone: str, seed: str, faults: Faults) -> None:
    is_range = item.from_ is not None or item.until is not None
    if (item.calendar is not None) + (item.cron is not None) + (item.date is not None) + is_range != 1:
        faults.add(path, "must have exactly one of calendar, cron, date, and from with until", "make several entries")
    elif item.calendar is not None:
        return  # whether there is one: see calendars.py
    elif item.cron is not None and " " not in item.cron.strip():
        message = f"{item.cron!r} is neither a day nor an expression of five fields"
        faults.add(path, message, "a day is 2026-12-25, weekends are '* * * * SAT,SUN'")
    elif item.cron is not None:
        _cron((*path, "cron"), item.cron, timezone, seed, faults)
        if _is_interval(item.cron):
            faults.add((*path, "cron"), "is an interval, which excludes nothing", "write an expression of five fields")
    elif item.date is not None:
        faults.tried((*path, "date"), parse_day, item.date, timezone)
    else:
        edges = [
            faults.tried((*path, key), edge_of, text, timezone)
            for key, text in (("from", item.from_), ("until", item.until))
            if text is not None
        ]
        if len(edges) < 2:
            faults.add(path, "has only one end", "give both from and until; or use start_at, end_at")
        elif edges[0] is not None and edges[1] is not None and edges[0][0] >= edges[1][1]:
            faults.add((*path, "until"), f"{item.until} lies before from, {item.from_}", "swap them")


def exclusion_faults(path: Path, item: ExcludeSettings, timezone: str) -> list[Violation]:
    """Return the faults of one stretch of time that is left out."""
    faults = Faults()
    _exclusion(path, item, timezone, "", faults)
    if item.calendar is not None:
        faults.add(path, f"{item.calendar!r} is neither a day nor an expression", "exclude calendars in the schedules")
    return faults


def exclusion_of(item: ExcludeSettings, timezone: str) -> Exclusion:
    """Return one stretch of time that is left out as Redis keeps it. It must have no faults."""
    if item.cron is not None:
        return Exclusion(cron=item.cron.strip())
    from_text = item.date or item.from_ or ""
    until_text = item.date or item.until or ""
    return Exclusion(from_ms=edge_of(from_text, timezone)[0], until_ms=edge_of(until_text, timezone)[1])


def edge_of(text: str, timezone: str) -> tuple[int, int]:
    """Return the begin of the time named by ``text``, and the first millisecond behind it: of a day, or of an instant.

    Raises:
        ValueError: as for ``parse_instant``.
    """
    if is_date(text):
        return parse_day(text, timezone)
    at_ms = parse_instant(text, timezone)
    return at_ms, at_ms + 1


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
