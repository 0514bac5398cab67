"""Template of a schedule's runs: the job's own settings, overridden by those of the schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec

from supervisor.core.errors import ArgumentsError, Fault
from supervisor.core.jobs.limits import limits_of
from supervisor.core.jobs.profile_policies import DEFAULT_PROFILE, profile_field, under
from supervisor.core.jobs.registry import JobSpec, Registry
from supervisor.core.json_values import check_arguments
from supervisor.core.model import ENVELOPE_BYTES, PAYLOAD_BYTES_MAX, PRIORITIES, Template
from supervisor.core.schedules import templating
from supervisor.core.suggestions import suggestion
from supervisor.settings.schedules.profiles import profile_of, template_fields, unknown_profile
from supervisor.settings.schedules.rules import zone_of
from supervisor.settings.schedules.settings import ScheduleSettings
from supervisor.settings.sections.pipeline import ProfileSettings


def template_of(
    name: str,
    schedule: ScheduleSettings,
    known: Registry,
    *,
    has_secrets: bool = False,
    profiles: Mapping[str, ProfileSettings] = MappingProxyType({}),
) -> tuple[Template | None, list[Fault]]:
    """Return the template of the runs of ``schedule``, or None and the reason why there is none.

    With ``has_secrets`` its arguments hold values that no message may show.
    """
    if schedule.job not in known:
        return None, [Fault(("job",), *_unknown_job(schedule.job, known))]
    spec = known.get(schedule.job)
    faults = _placeholder_faults(schedule, has_secrets=has_secrets) + _profile_faults(schedule, spec, profiles)
    if schedule.retries and spec.base.at_most_once:
        remedy = "remove it, or let the job be delivered at least once"
        faults.append(Fault(("retries",), f"{schedule.retries} cannot be: job {spec.name} runs at most once", remedy))
    if faults:
        return None, faults
    try:
        template = _template(name, schedule, spec, profiles)
        filled = msgspec.structs.replace(template, args=_filled(name, schedule, template.args))
        limits_of(filled)
        body = msgspec.json.encode(template)
        check_arguments(spec.name, template.args, body, around=2)
        size = max(len(body), len(msgspec.json.encode(filled))) + ENVELOPE_BYTES
    except (ArgumentsError, msgspec.EncodeError) as error:
        return None, [Fault(("args",), *_arguments_message(spec, error, has_secrets=has_secrets))]
    if size > PAYLOAD_BYTES_MAX:
        message = f"are {size} bytes with the rest of the run, of {PAYLOAD_BYTES_MAX} allowed"
        return None, [Fault(("args",), message, "put them into a file, and pass its path")]
    return template, []


def _placeholder_faults(schedule: ScheduleSettings, *, has_secrets: bool) -> list[Fault]:
    found = templating.check(schedule.args)
    if has_secrets:
        return [Fault(("args",), "hold a placeholder that cannot be filled in", "write it without a reference")] * bool(
            found
        )
    return [Fault(("args", *fault.path), fault.message, fault.remedy) for fault in found]


def _profile_faults(schedule: ScheduleSettings, spec: JobSpec, profiles: Mapping[str, ProfileSettings]) -> list[Fault]:
    """Return the faults of the profile: that there is none of its name, and its conflicts with other settings."""
    name = schedule.profile or spec.base.profile or DEFAULT_PROFILE
    if name != DEFAULT_PROFILE and name not in profiles:
        if schedule.profile is None:
            return []  # it is the job's, and told with the jobs
        return [Fault(("profile",), *unknown_profile(name, profiles))]
    profile, found = profile_of(profiles, name), []
    if schedule.buffer_limit is not None and (schedule.overlap or profile.overlap) != "buffer_all":
        message = f"has no effect on overlap: {schedule.overlap or profile.overlap}"
        found.append(Fault(("buffer_limit",), message, "use overlap: buffer_all"))
    return found


def _template(
    name: str, schedule: ScheduleSettings, spec: JobSpec, profiles: Mapping[str, ProfileSettings]
) -> Template:
    spec = _following(schedule, spec, profiles)
    # The signature is asked about what a run will get; what is kept has the placeholders.
    filled = _filled(name, schedule, schedule.args)
    attempts = None if schedule.retries is None else schedule.retries + 1
    template = spec.template(
        filled,
        queue=schedule.queue,
        priority=None if schedule.priority is None else PRIORITIES[schedule.priority],
        timeout_s=schedule.timeout_s,
        retry=None if attempts is None else msgspec.structs.replace(spec.base.retry, attempts=attempts),
    )
    soft_s = (spec.declared or template).soft_timeout_s
    return msgspec.structs.replace(
        template,
        args={**spec.base.args, **schedule.args},  # the defaults that limits need, under what the schedule says
        # The schedule may shorten the hard timeout below the job's soft one: derive that anew.
        soft_timeout_s=None if soft_s is not None and soft_s > template.timeout_s else soft_s,
    )


def _filled(name: str, schedule: ScheduleSettings, args: Mapping[str, Any]) -> Mapping[str, Any]:
    if not templating.needs_rendering(args):
        return args
    return templating.sample(args, schedule=name, timezone=zone_of(schedule))


def _following(schedule: ScheduleSettings, spec: JobSpec, profiles: Mapping[str, ProfileSettings]) -> JobSpec:
    """Return the job as it goes by the profile that the schedule picks. Else it follows its own."""
    name = schedule.profile
    if name is None:
        return spec
    declared = msgspec.structs.replace(spec.declared or spec.base, profile=profile_field(name))
    return replace(spec, base=under(declared, spec.given, {name: template_fields(profile_of(profiles, name))}))


def _unknown_job(job: str, known: Registry) -> tuple[str, str]:
    names = known.names()
    if not names:
        return f"no job is called {job!r}: no modules are listed under jobs", "list the module that defines it"
    return f"no job is called {job!r}", suggestion(job, names, f"known: {', '.join(names)}")


def _arguments_message(spec: JobSpec, error: Exception, *, has_secrets: bool) -> tuple[str, str]:
    if has_secrets:
        return f"do not fit job {spec.name}{spec.signature} (values from references are not shown)", ""
    text, _, remedy = str(error).rpartition("; ")
    return (text, remedy) if text else (str(error), "")
