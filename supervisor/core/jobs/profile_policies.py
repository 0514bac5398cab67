"""Policies of a profile for the runs of a job, where the job's own ``@job`` sets none.

Explicitly written options win over a profile, and a profile over the defaults. So a job's specification
remembers which options were written, and can follow another profile at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from supervisor.core.model import Template

DEFAULT_PROFILE = "default"
"""There always is one called so: what picks none goes by it, and the others build on it."""

POLICED = {"priority": "priority", "timeout": "timeout_s", "retry": "retry", "start_deadline": "start_deadline_s"}
"""Options of ``@job`` that a profile may say instead, and the field of the template that each is."""

Given = frozenset[str]
"""Options that were written."""

Policies = Mapping[str, Mapping[str, Any]]
"""Profile to fields of a template, all of ``POLICED``."""


def given_of(**options: object) -> Given:
    """Return which of the options were written: those that are not None."""
    return frozenset(name for name, value in options.items() if value is not None)


def profile_field(profile: str) -> str:
    """Return ``profile`` as a template carries it: nothing for the default."""
    return "" if profile == DEFAULT_PROFILE else profile


def said(policy: Mapping[str, Any], base: Template, given: Given) -> dict[str, Any]:
    """Return the fields of ``base`` that ``policy`` changes: a run carries only the differences through Redis."""
    fields = {name: policy[name] for option, name in POLICED.items() if option not in given and name in policy}
    if base.at_most_once:
        fields.pop("retry", None)
    return {name: value for name, value in fields.items() if value != getattr(base, name)}


def under(base: Template, given: Given, policies: Policies) -> Template:
    """Return ``base`` with its profile's values in place of those not ``given``.

    One that runs at most once is never retried, whatever its profile.
    A soft timeout beyond the timeout is derived anew.
    """
    policy = policies.get(base.profile or DEFAULT_PROFILE, {})
    fields = said(policy, base, given)
    changed = msgspec.structs.replace(base, **fields)
    soft_s = changed.soft_timeout_s
    if soft_s is not None and soft_s > changed.timeout_s:
        changed = msgspec.structs.replace(changed, soft_timeout_s=None)
    return changed if fields else base
