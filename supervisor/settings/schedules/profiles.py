"""Profiles put together: omissions of a named one come from ``default``; omissions of that are built in.

Precedence, for each policy by itself: the schedule's value, that of ``@job``, then that of the profile the schedule
picks (else the one that the job picks, else ``default``). Hooks come from that profile alone.

Guarantees
    Profiles that were put together once come out the same when they are put together again, so the configuration
    that ``--write-config-to`` writes has the same meaning as its source.
    A value keeps the place where it was written, also where it was inherited.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor.core.jobs.hooks import inherited
from supervisor.core.jobs.profile_policies import DEFAULT_PROFILE, Policies
from supervisor.core.model import PRIORITIES
from supervisor.core.retry import Retry
from supervisor.core.suggestions import suggestion
from supervisor.settings.document import DEFAULT_ORIGIN, Node, merge
from supervisor.settings.schema import Shape
from supervisor.settings.sections.pipeline import ProfileSettings, RetrySettings

_BUILT_IN = ProfileSettings()


def expanded(root: Node, shape: Shape) -> Node:
    """Return the merged tree with complete profiles."""
    profiles, table = root.child("profiles"), shape.child("profiles")
    if profiles is None or not isinstance(profiles.value, dict) or table is None or table.item is None:
        return root
    base = profiles.child(DEFAULT_PROFILE) or Node({}, DEFAULT_ORIGIN)
    entries = {DEFAULT_PROFILE: base}
    for name, node in profiles.value.items():
        if name != DEFAULT_PROFILE:
            entries[name] = _over(base, node, table.item)
    return Node({**root.value, "profiles": Node(entries, profiles.origin)}, root.origin)


def _over(base: Node, node: Node, shape: Shape) -> Node:
    merged = merge(base, node, shape)
    if merged is None or not isinstance(merged.value, dict):
        return Node({}, node.origin) if merged is None else merged
    hooks = merged.child("hooks")
    if hooks is None or not isinstance(hooks.value, dict):
        return merged
    own, off, known = _entries(node, "enabled"), _entries(node, "disabled"), dict(_entries(base, "enabled"))
    kept = inherited(known, _names(off), _names(own))
    enabled = [known[entry] for entry in kept if entry not in _names(own)] + [entry for _, entry in own]
    lists = {"enabled": Node(enabled, hooks.origin), "disabled": Node([entry for _, entry in off], hooks.origin)}
    return Node({**merged.value, "hooks": Node({**hooks.value, **lists}, hooks.origin)}, merged.origin)


def _names(entries: list[tuple[str, Node]]) -> list[str]:
    return [name for name, _ in entries]


def _entries(profile: Node, name: str) -> list[tuple[str, Node]]:
    """Return the entries of one list of hooks, with the places where they were written."""
    hooks = profile.child("hooks")
    found = None if hooks is None else hooks.child(name)
    if found is None or not isinstance(found.value, list):
        return []
    return [(str(entry.plain()), entry) for entry in found.value]


def profile_of(profiles: Mapping[str, ProfileSettings], name: str) -> ProfileSettings:
    """Return the profile called ``name``, empty for the default; the built-in policies where there is none."""
    return profiles.get(name or DEFAULT_PROFILE, _BUILT_IN)


def policies_of(profiles: Mapping[str, ProfileSettings]) -> Policies:
    """Return the policies of each profile for the runs of a job, as fields of their template.

    A ``default`` that is as built in is left out: jobs that replicas published keep the policies of the default there.
    """
    known = {name: template_fields(profile) for name, profile in profiles.items()}
    if known.get(DEFAULT_PROFILE) == template_fields(_BUILT_IN):
        del known[DEFAULT_PROFILE]
    return known


def template_fields(profile: ProfileSettings) -> dict[str, Any]:
    """Return the policies of ``profile`` for a run, as fields of its template."""
    return {
        "priority": PRIORITIES[profile.priority],
        "timeout_s": profile.timeout_s,
        "retry": retry_of(profile.retry),
        "start_deadline_s": profile.start_deadline_s,
    }


def retry_of(retry: RetrySettings) -> Retry:
    """Return ``retry`` as runs carry it."""
    plain = Retry()
    fields = {"attempts": retry.attempts, "base_s": retry.base_s, "cap_s": retry.cap_s}
    return Retry(**{name: value for name, value in fields.items() if value != getattr(plain, name)})  # type: ignore[arg-type]


def unknown_profile(name: str, profiles: Mapping[str, ProfileSettings]) -> tuple[str, str]:
    """Return that there is no profile of that name, and which might be meant."""
    names = sorted({DEFAULT_PROFILE, *profiles})
    return f"no profile is called {name!r}", suggestion(name, names, f"known: {', '.join(names)}")
