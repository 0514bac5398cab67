"""Schedules from the written form to Redis' form: one way, for files, for the command line and for the API.

Guarantees
    ``validate_schedules`` returns a definition for each entry, or every problem of every entry,
    each with its path, the value and a remedy. The returned definitions can be fired.

Does not guarantee
    That a pool somewhere runs the queue of a schedule: complete.py asks that of a configuration,
    whoever adds a schedule at run time may know better.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from supervisor.core.calendars.days import OverExcludedError
from supervisor.core.cron.fields import interval_of, split_zone
from supervisor.core.durations import parse_duration
from supervisor.core.errors import Fault, Problem
from supervisor.core.jobs.registry import Registry, registry
from supervisor.core.model import OWN_TRIGGER, PAYLOAD_BYTES_MAX, After, ScheduleDef, Template, When
from supervisor.core.schedules.diff import ANCHORS, settled
from supervisor.core.schedules.triggers import after_completion_ms, trigger_of
from supervisor.settings.document import Node, format_path, wrap
from supervisor.settings.schedules.calendars import exclusions_of_schedule
from supervisor.settings.schedules.checks import checks_of
from supervisor.settings.schedules.instants import parse_instant
from supervisor.settings.schedules.profiles import policies_of, profile_of
from supervisor.settings.schedules.rules import calendar_of, faults_of_renames, zone_of
from supervisor.settings.schedules.settings import NamedCalendarSettings, ScheduleSettings, WhenSettings
from supervisor.settings.schedules.template import template_of
from supervisor.settings.schema import settings_shape
from supervisor.settings.sections.models import Settings
from supervisor.settings.sections.pipeline import ProfileSettings
from supervisor.settings.validation import conform, validate

CHUNK = 1000
"""Entries that are validated together."""

_NO_PROFILES: Mapping[str, ProfileSettings] = {}
_NO_CALENDARS: Mapping[str, NamedCalendarSettings] = {}
_REFERENCE_MS = 1_767_225_600_000  # 2026, from where exclusions must leave a due time
_INFINITE_MS = 1 << 62
_A_YEAR_LATER_MS = _REFERENCE_MS + 366 * 86_400_000
_MOVED_MAX = 366 * 24 + 1
_AS_WRITTEN = (
    "anchor", "dst_gap", "dst_overlap", "on_excluded", "jitter_mode", "max_runs", "max_running", "buffer_limit",
    "max_catchup", "paused", "pause_reason", "on_resume", "on_change", "pause_after_failures", "run_on_create",
    "labels", "owner", "description",
)  # fmt: skip
_STEP = re.compile(r"[.\[]")
_TEN_YEARS_MS = 3660 * 86_400_000


class Validated(NamedTuple):
    """Result of a validation. There are definitions of the entries that are right also beside problems."""

    definitions: tuple[ScheduleDef, ...]
    problems: tuple[Problem, ...]


def validate_schedules(
    entries: Mapping[str, Any],
    *,
    known: Registry = registry,
    where: str = "input",
    progress: Callable[[int], None] | None = None,
    profiles: Mapping[str, ProfileSettings] = _NO_PROFILES,
    calendars: Mapping[str, NamedCalendarSettings] = _NO_CALENDARS,
) -> Validated:
    """Return the definitions of ``entries`` and everything that is wrong with them.

    Args:
        entries: by id, as under ``schedules`` of a configuration: plain data, or nodes that know their line.
        known: the jobs; they follow ``profiles`` from now on, if any are given.
        where: the origin of plain data, for problems: a file, ``--set``, ``POST /api/v1/schedules``.
        progress: called with the number of entries done so far, after each thousand.
        profiles: of the configuration.
        calendars: of the configuration.
    """
    if profiles:
        known.use(policies_of(profiles))
    given = {name: each.model_dump(mode="json", by_alias=True) for name, each in calendars.items()}
    definitions: list[ScheduleDef] = []
    problems: list[Problem] = []
    names = iter(entries)
    done = 0
    while chunk := list(islice(names, CHUNK)):
        nodes = {name: _node(entries[name], where) for name in chunk}
        tree = Node({"schedules": Node(nodes, where), "calendars": wrap(given, where)}, where)
        found, wrong = _validate_chunk(tree, nodes, known, profiles)
        definitions += found
        problems += wrong
        done += len(chunk)
        if progress is not None:
            progress(done)
    problems += _renames(entries, definitions, where)
    return Validated(tuple(definitions), tuple(problems))


def definition_of(
    name: str,
    schedule: ScheduleSettings,
    template: Template,
    profiles: Mapping[str, ProfileSettings] = _NO_PROFILES,
    calendars: Mapping[str, NamedCalendarSettings] = _NO_CALENDARS,
) -> ScheduleDef:
    """Return ``schedule`` as Redis keeps it. It must have passed ``faults_of`` in rules.py.

    The profile that ``template`` names has the policies which the schedule does not set, and its checks.
    """
    timezone, profile = zone_of(schedule), profile_of(profiles, template.profile)
    deadlines = (schedule.start_deadline_s, template.start_deadline_s, profile.start_deadline_s)
    own, *others = [*_own(schedule)] or [When()]
    interval = schedule.calendar_interval
    calendar = () if interval is None else (When(calendar_interval=calendar_of(interval)),)
    return ScheduleDef(
        id=name,
        template=template,
        **{field: getattr(own, field) for field in OWN_TRIGGER},
        when=(*others, *calendar, *(_when(entry, timezone) for entry in schedule.when)),
        timezone=timezone,
        after=After(schedule=schedule.after.schedule, outcome=schedule.after.outcome) if schedule.after else None,
        exclude=exclusions_of_schedule(schedule, timezone, calendars),
        start_at_ms=_instant(schedule.start_at, timezone),
        end_at_ms=_instant(schedule.end_at, timezone),
        jitter_ms=_ms(schedule.jitter_s),
        overlap=schedule.overlap or profile.overlap,
        cancel_grace_ms=_ms(schedule.cancel_grace_s),
        missed=schedule.missed or profile.missed,
        catchup_window_ms=_optional_ms(schedule.catchup_window_s),
        start_deadline_ms=_optional_ms(next((each for each in deadlines if each is not None), None)),
        finish_within_ms=_optional_ms(schedule.finish_within_s),
        expect_success_every_ms=_optional_ms(schedule.expect_success_every_s),
        retain_completed_ms=_ms(schedule.retain_completed_s),
        renamed_from=schedule.renamed_from or "",
        checks=checks_of(profile.hooks, timezone),
        **{name: getattr(schedule, name) for name in _AS_WRITTEN},
    )


def faults_of_definition(definition: ScheduleDef) -> list[Fault]:
    """Return faults that show only once everything is put together: it is too large, or never due."""
    found = []
    size = len(msgspec.json.encode(settled(definition, None, _REFERENCE_MS)))
    if size > PAYLOAD_BYTES_MAX:
        message = f"has {size} bytes as Redis keeps it, of {PAYLOAD_BYTES_MAX} allowed"
        found.append(Fault((), message, "shorten args, exclude, labels or the description"))
    never = _never_due(definition)
    return [*found, *([never] if never is not None else []), *_moves_too_often(definition)]


def _moves_too_often(definition: ScheduleDef) -> Iterator[Fault]:
    """Yield that due times move from day to day, and there are too many of them to be meant."""
    if definition.on_excluded == "skip":
        return
    still = trigger_of(msgspec.structs.replace(definition, exclude=(), start_at_ms=None, end_at_ms=None))
    if still.count(_REFERENCE_MS, _A_YEAR_LATER_MS, _MOVED_MAX) >= _MOVED_MAX:
        message = f"is {definition.on_excluded}, but the schedule is due more than 24 times a day"
        yield Fault(("on_excluded",), message, "use on_excluded: skip, or a schedule of days")


def _never_due(definition: ScheduleDef) -> Fault | None:
    """Return the reason why ``definition`` is never due; None when it is, or was, or follows runs."""
    if after_completion_ms(definition) is not None or definition.after is not None:
        return None
    whens = (definition.at_ms, *(when.at_ms for when in definition.when))
    start_ms = definition.start_at_ms
    begin = min((at for at in whens if at is not None), default=_INFINITE_MS)
    begin = min(begin, _REFERENCE_MS if start_ms is None else start_ms, definition.end_at_ms or _INFINITE_MS) - 1
    if definition.end_at_ms is not None and start_ms is None:
        begin = min(begin, definition.end_at_ms - _TEN_YEARS_MS)
    try:
        if trigger_of(definition).next_ms(begin) is not None:
            return None
    except OverExcludedError:
        return Fault(("exclude",), "leaves no due time", "exclude less")
    if definition.exclude:
        key = "only" if any(item.days is not None and item.days.is_only for item in definition.exclude) else "exclude"
        return Fault((key,), "leaves no due time", "exclude less, or name calendars with later days")
    return Fault(("end_at",), "leaves no due time", "move start_at and end_at apart")


def _validate_chunk(
    tree: Node, nodes: Mapping[str, Node], known: Registry, profiles: Mapping[str, ProfileSettings]
) -> tuple[list[ScheduleDef], list[Problem]]:
    shape = settings_shape()
    problems: list[Problem] = []
    settings = validate(conform(tree, shape, problems), shape, problems) or Settings()
    definitions: list[ScheduleDef] = []
    wrong = owners((problem.path for problem in problems), nodes)
    for name, schedule in settings.schedules.items():
        if name in wrong:
            continue
        template, faults = template_of(name, schedule, known, profiles=profiles)
        if template is not None:
            definition = definition_of(name, schedule, template, profiles, settings.calendars)
            faults = faults_of_definition(definition)
            if template.profile and template.profile not in profiles:
                message = f"{template.job} goes by profile {template.profile!r}, which is not in this configuration"
                faults.append(Fault(("job",), message, "add it under profiles, or name another profile"))
            if definition.anchor in ANCHORS:
                message = f"is {definition.anchor}, which is for schedules of the configuration"
                faults.append(Fault(("anchor",), message, "use anchor: start_at with start_at"))
            definitions += [] if faults else [definition]
        problems += (_problem(fault, name, nodes[name]) for fault in faults)
    return definitions, _in_order(problems, nodes)


def _in_order(problems: list[Problem], names: Iterable[str]) -> list[Problem]:
    """Return ``problems`` in the order of the entries that they are about."""
    if not problems:
        return problems
    place = {format_path(("schedules", name)): index for index, name in enumerate(names)}
    return sorted(problems, key=lambda problem: place.get(_owner(problem.path, place) or "", -1))


def owners(paths: Iterable[str], names: Iterable[str]) -> set[str]:
    """Return which of the schedules ``names`` formatted paths are about."""
    by_path = {format_path(("schedules", name)): name for name in names}
    found = (_owner(path, by_path) for path in paths)
    return {by_path[owner] for owner in found if owner is not None}


def _owner(path: str, known: Mapping[str, object]) -> str | None:
    """Return the longest start of ``path``, up to one of its steps, that is in ``known``."""
    ends = [match.start() for match in _STEP.finditer(path)]
    return next((path[:end] for end in (len(path), *reversed(ends)) if path[:end] in known), None)


def _problem(fault: Fault, name: str, node: Node) -> Problem:
    _, nearest = node.nearest(fault.path)
    return Problem(nearest.origin, format_path(("schedules", name, *fault.path)), fault.message, fault.remedy)


def _renames(entries: Mapping[str, Any], definitions: list[ScheduleDef], where: str) -> Iterator[Problem]:
    """Yield faults that ``faults_of_set`` cannot see, because the other schedule lies in another chunk."""
    renamed = dict.fromkeys(entries, "") | {each.id: each.renamed_from for each in definitions}
    for name, (message, remedy) in faults_of_renames(renamed).items():
        yield _problem(Fault(("renamed_from",), message, remedy), name, _node(entries[name], where))


def _node(value: Any, where: str) -> Node:
    return value if isinstance(value, Node) else wrap(value, where)


def _own(schedule: ScheduleSettings) -> Iterator[When]:
    """Yield the triggers that are written beside the other fields."""
    if schedule.every_s is not None:
        yield When(every_ms=_ms(schedule.every_s), phase_ms=_ms(schedule.phase_s))
    if schedule.cron is not None:
        # A prefix is the zone of the whole schedule.
        yield _cron(split_zone(schedule.cron)[1], phase_ms=_ms(schedule.phase_s), timezone="")
    if schedule.at is not None:
        yield When(at_ms=_instant(schedule.at, zone_of(schedule)))
    if schedule.after_completion_s is not None:
        yield When(after_completion_ms=_ms(schedule.after_completion_s))


def _when(entry: WhenSettings, timezone: str) -> When:
    """Return one entry of ``when``; ``timezone`` is the schedule's."""
    if entry.cron is not None:
        prefix, expression = split_zone(entry.cron)
        return _cron(expression, phase_ms=_ms(entry.phase_s), timezone=entry.timezone or prefix or "")
    if entry.calendar_interval is not None:
        return When(calendar_interval=calendar_of(entry.calendar_interval), timezone=entry.timezone or "")
    return When(
        every_ms=_optional_ms(entry.every_s),
        phase_ms=_ms(entry.phase_s),
        at_ms=_instant(entry.at, timezone),
        after_completion_ms=_optional_ms(entry.after_completion_s),
    )


def _cron(expression: str, *, phase_ms: int, timezone: str) -> When:
    interval = interval_of(expression)
    if interval is not None:
        return When(every_ms=_ms(parse_duration(interval)), phase_ms=phase_ms)
    return When(cron=expression.strip(), timezone=timezone)


def _instant(text: str | None, timezone: str) -> int | None:
    return None if text is None else parse_instant(text, timezone)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _optional_ms(seconds: float | None) -> int | None:
    return None if seconds is None else _ms(seconds)
