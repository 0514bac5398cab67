"""Schedules, profiles and the timing of elections of a simulated cluster, as tests write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

import msgspec

from supervisor.core.errors import ConfigError, Problem
from supervisor.core.jobs.profile_policies import profile_field
from supervisor.core.jobs.registry import registry
from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.roles.agent.election.context import ElectionTiming
from supervisor.settings.document import format_path, wrap
from supervisor.settings.loader import Loaded
from supervisor.settings.schedules.calendars import calendar_faults, faults_of_calendars, with_ics_dates
from supervisor.settings.schedules.complete import complete, import_jobs
from supervisor.settings.schedules.declarations import with_declared
from supervisor.settings.schedules.definitions import definition_of
from supervisor.settings.schedules.profiles import expanded, policies_of
from supervisor.settings.schedules.rules import faults_of
from supervisor.settings.schedules.settings import NamedCalendarSettings, ScheduleSettings
from supervisor.settings.schedules.template import template_of
from supervisor.settings.schema import settings_shape
from supervisor.settings.sections.models import ElectionSettings, Settings
from supervisor.settings.sections.pipeline import ProfileSettings


def timing_of(lease_s: float) -> ElectionTiming:
    """Return the durations of the election in the proportions of the defaults."""
    return ElectionTiming.of(
        ElectionSettings(
            lease_duration_s=lease_s, renew_period_s=lease_s / 5, renew_timeout_s=min(30.0, 0.15 * lease_s)
        )
    )


def settings_of(profiles: Mapping[str, Mapping[str, Any]], calendars: Mapping[str, Mapping[str, Any]]) -> Settings:
    """Read profiles and calendars as people write them.

    Omissions of a named profile come from ``default``; the path of an ``ics`` counts from the working directory.

    Raises:
        ValueError: a calendar is wrong.
    """
    problems: list[Problem] = []
    written = wrap({"profiles": profiles, "calendars": calendars}, "calendars of the test")
    root = with_ics_dates(expanded(written, settings_shape()), problems)
    found = Settings.model_validate_json(msgspec.json.encode(root.plain()))
    wrong = [*map(str, problems), *(each.message for each in faults_of_calendars(found.calendars))]
    if wrong:
        raise ValueError("\n".join(wrong))
    return found


def definitions_of(
    schedules: Mapping[str, Mapping[str, Any]],
    profiles: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    calendars: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    jobs: Sequence[str] = (),
    *,
    until: ExitStack | None = None,
) -> tuple[ScheduleDef, ...]:
    """Return schedules as a test writes them, and below them those that the modules in ``jobs`` declare.

    Jobs follow the profiles from now on, if any are given, or ``until`` then.

    Raises:
        ConfigError: a module cannot be imported, or declares a schedule that is none.
        ValueError: a schedule of the test is none.
    """
    known = settings_of(profiles, calendars)
    if until is not None:
        until.callback(registry.use, registry.policies)
    if profiles:
        registry.use(policies_of(known.profiles))
    found = tuple(schedule_of(name, dict(entry), known.profiles, known.calendars) for name, entry in schedules.items())
    if not jobs:
        return found
    if problems := import_jobs(jobs):
        raise ConfigError(problems)
    settings = known.model_copy(update={"jobs": tuple(jobs), "workers": {}})
    declared = complete(with_declared(Loaded(settings, {}, ())), registry)
    return (*found, *(each for each in declared if each.id not in schedules))


def schedule_of(
    name: str,
    entry: dict[str, Any],
    profiles: Mapping[str, ProfileSettings] = MappingProxyType({}),
    calendars: Mapping[str, NamedCalendarSettings] = MappingProxyType({}),
) -> ScheduleDef:
    """Read a schedule as people write it. A job that no imported module registers may be fired, but not run."""
    settings = ScheduleSettings.model_validate(entry)
    wrong = [*faults_of(name, settings), *calendar_faults(("schedules", name), settings, calendars)]
    found = [f"{format_path(fault.paths[0])}: {fault.message}; {fault.remedy}" for fault in wrong]
    if settings.job in registry:
        template, faults = template_of(name, settings, registry, profiles=profiles)
        found += [f"{format_path(('schedules', name, *fault.path))}: {fault.message}" for fault in faults]
    else:
        queue, profile = settings.queue or "default", profile_field(settings.profile or "")
        template = Template(job=settings.job, kind=Kind.SYNC, queue=queue, args=settings.args, profile=profile)
    if found or template is None:
        raise ValueError("\n".join(found))
    return definition_of(name, settings, template, profiles, calendars)
