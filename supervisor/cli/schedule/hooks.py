"""Output of ``tenure schedule explain`` about a profile: its hooks and checks, and the due times they keep back."""

from __future__ import annotations

from supervisor.cli.output import moment
from supervisor.core.errors import TenureError
from supervisor.core.jobs.profile_policies import DEFAULT_PROFILE
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.catchup import next_fire
from supervisor.settings.sections.models import Settings

LOOKED_AT_MAX = 100
NAMED_MAX = 3


def profile_sentences(definition: ScheduleDef, settings: Settings) -> list[str]:
    """Return hooks and checks in words: checks as Redis keeps them with ``definition``, hooks by this configuration."""
    from supervisor.core.schedules import checks as fire_checks
    from supervisor.settings.schedules.hook_sources import UnusableHookError, find_hook, known_hooks, points_of

    name = definition.template.profile or DEFAULT_PROFILE
    found = [f"Goes by profile {name}."] if definition.template.profile else []
    found += fire_checks.sentences(definition.checks)
    profile = settings.profiles.get(name)
    if profile is None:
        return [*found, f"The configuration here has no profile {name}, so its other hooks are not known."]
    try:
        known = known_hooks(settings)
        hooks = [find_hook(entry.rpartition("/")[2], known) for entry in dict.fromkeys(profile.hooks.enabled)]
    except (TenureError, UnusableHookError) as error:
        return [*found, f"Its hooks cannot be looked up here: {error}."]
    for hook in {each.name: each for each in hooks if not each.is_check}.values():
        points = points_of(profile.hooks, hook)
        found += [f"A worker asks {hook.name} at {', '.join(points)}."] if points else []
    return found


def kept_back(definition: ScheduleDef, *, now_ms: int) -> list[str]:
    """Return which of the next due times a check keeps back, and why."""
    from supervisor.core.schedules.checks import checks_of_definition
    from supervisor.core.schedules.triggers import trigger_of

    checks = checks_of_definition(definition)
    if checks is None:
        return []
    trigger, at_ms, found, count = trigger_of(definition), now_ms, [], 0
    for _ in range(LOOKED_AT_MAX):
        planned = next_fire(definition, trigger, at_ms)
        if planned is None:
            break
        at_ms = planned.nominal_ms
        refusal = checks.refusal(at_ms, planned.fire_ms, trigger)
        if refusal is not None:
            count += 1
            if count <= NAMED_MAX:
                found.append(f"{moment(at_ms)} will not be fired: {refusal.point} {refusal.hook}: {refusal.reason}")
    if count > NAMED_MAX:
        found.append(f"and {count - NAMED_MAX} more of the next {LOOKED_AT_MAX} due times")
    return found
