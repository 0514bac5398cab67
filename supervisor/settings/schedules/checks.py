"""Arguments of the leader's checks (core/schedules/checks.py), as people write them under ``hooks.config``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from supervisor.core.cron.zones import zone
from supervisor.core.jobs.hooks import order
from supervisor.core.model import Check
from supervisor.core.schedules.checks import DAYS, LETTERS, POINT, QUOTA_MAX
from supervisor.settings.base import Path, Seconds, Section, Violation
from supervisor.settings.schedules.instants import parse_instant
from supervisor.settings.schedules.rules import Faults, exclusion_faults, exclusion_of
from supervisor.settings.schedules.settings import ExcludeSettings, Text
from supervisor.settings.sections.pipeline import HooksSettings


class BlackoutSettings(Section):
    """``blackout``: due times in a window are not fired."""

    windows: tuple[ExcludeSettings, ...] = Field(min_length=1, max_length=1000)
    """Days, ranges or expressions, as in ``exclude`` of a schedule."""

    timezone: Text | None = None
    """Zone of the windows; default: the schedule's."""

    reason: Text = "in a blackout window"
    """For people."""


class WeekdaysSettings(Section):
    """``weekdays``: only due times on these days are fired."""

    days: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = Field(min_length=1, max_length=7)
    """In any order."""

    timezone: Text | None = None
    """Zone in which a day begins; default: the schedule's."""


class QuotaSettings(Section):
    """``quota``: only the first so many due times of each period are fired."""

    runs: int = Field(ge=1, le=QUOTA_MAX)
    """How many."""

    per_s: Seconds = Field(ge=1, le=366 * 86_400)
    """Periods on a grid from 1970-01-01T00:00Z, as ``every`` is."""


class ClosedSettings(Section):
    """``closed``: nothing of the profile is fired."""

    reason: Text = "closed"
    """For people."""

    until: Text | None = None
    """An instant after which it is; default: never."""


MODELS: Mapping[str, type[Section]] = {
    "blackout": BlackoutSettings,
    "weekdays": WeekdaysSettings,
    "quota": QuotaSettings,
    "closed": ClosedSettings,
}
assert MODELS.keys() == LETTERS.keys()


def enabled_checks(hooks: HooksSettings) -> list[str]:
    """Return the checks that ``hooks`` enables, in their order."""
    found = [(name, POINT[name]) for name in dict.fromkeys(entry.rpartition("/")[2] for entry in hooks.enabled)
             if name in LETTERS]  # fmt: skip
    return [name for name, point in found if name in order(hooks.enabled, hooks.disabled, point)]


def checks_of(hooks: HooksSettings, timezone: str) -> tuple[Check, ...]:
    """Return the checks that ``hooks`` of a profile enables, with their arguments, which must be without faults.

    Windows without a zone of their own are read in ``timezone``, the schedule's.
    """
    return tuple(_check(name, hooks.config.get(name, {}), timezone) for name in enabled_checks(hooks))


def faults_of_checks(path: Path, hooks: HooksSettings) -> Iterator[Violation]:
    """Yield the faults in the arguments of checks, with ``path`` of the profile's ``hooks`` in front."""
    for name in enabled_checks(hooks):
        place: Path = (*path, "config", name)
        try:
            settings = _read(name, hooks.config.get(name, {}))
        except ValidationError as error:
            for details in error.errors(include_url=False):
                message = details["msg"].replace("Input should", "should").replace("Field required", "is missing")
                yield Violation(((*place, *details["loc"]), place), message, "see docs/pipeline.md")
            continue
        yield from _faults(place, settings)


def _read(name: str, config: Mapping[str, Any]) -> Section:
    return MODELS[name].model_validate_json(json.dumps(config), strict=True)


def _faults(place: Path, settings: Section) -> Faults:
    faults, timezone = Faults(), getattr(settings, "timezone", None) or "UTC"
    if faults.tried((*place, "timezone"), zone, timezone) is None:
        return faults
    if isinstance(settings, BlackoutSettings):
        for index, window in enumerate(settings.windows):
            faults += exclusion_faults((*place, "windows", index), window, timezone)
    if isinstance(settings, ClosedSettings) and settings.until is not None:
        faults.tried((*place, "until"), parse_instant, settings.until, "UTC")
    return faults


def _check(name: str, config: Mapping[str, Any], timezone: str) -> Check:
    settings = _read(name, config)
    match settings:
        case BlackoutSettings():
            of = settings.timezone or timezone
            windows = tuple(exclusion_of(window, of) for window in settings.windows)
            return Check(hook=name, timezone=settings.timezone or "", exclude=windows, reason=settings.reason)
        case WeekdaysSettings():
            days = tuple(sorted({DAYS.index(day) for day in settings.days}))
            return Check(hook=name, timezone=settings.timezone or "", days=days)
        case QuotaSettings():
            return Check(hook=name, count=settings.runs, per_ms=round(settings.per_s * 1000))
        case ClosedSettings():
            until_ms = None if settings.until is None else parse_instant(settings.until, "UTC")
            return Check(hook=name, until_ms=until_ms, reason=settings.reason)
    raise AssertionError(name)
