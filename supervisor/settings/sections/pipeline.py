"""Profiles and webhooks as people write them. Their rules: rules/cross_rules.py; see docs/pipeline.md."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, StringConstraints, field_serializer

from supervisor.core.jobs.profile_policies import DEFAULT_PROFILE
from supervisor.settings.base import Name, Seconds, Section
from supervisor.settings.masking import mask_path

HOOK = r"^((gate|filter|reserve|dispatch|after)/)?(\*|[A-Za-z0-9][A-Za-z0-9._:-]{0,127})$"
HOOKS_MAX = 32
PROFILES_MAX = 200
WEBHOOKS_MAX = 100
_DAY_S = 86_400.0

HookEntry = Annotated[str, StringConstraints(pattern=HOOK)]


class RetrySettings(Section):
    """Retries of a failed run: after a delay drawn from 0 to min(cap, base * 2 ^ (attempt - 1))."""

    attempts: int = Field(default=3, ge=1, le=100)
    """Attempts in all, the first included."""

    base_s: Seconds = Field(default=2.0, ge=0, le=_DAY_S)
    """Upper bound of the first delay."""

    cap_s: Seconds = Field(default=600.0, ge=0, le=_DAY_S)
    """Upper bound of every delay; at least base."""


class HooksSettings(Section):
    """Hooks asked about runs of this profile, in this order. Omitted ones come from ``default``."""

    enabled: tuple[HookEntry, ...] = Field(default=(), max_length=HOOKS_MAX)
    """Names of hooks in the order in which they are asked, behind those of ``default``: in-tree checks, webhooks, entry
    points of the group ``tenure.hooks``, or module:class. ``filter/NAME``: at that point only."""

    disabled: tuple[HookEntry, ...] = Field(default=(), max_length=HOOKS_MAX)
    """Hooks of ``default`` that are not asked; ``*``: none of them is. ``after/NAME``: not at that point."""

    config: dict[str, dict[str, Any]] = Field(default_factory=dict, max_length=HOOKS_MAX)
    """Arguments of hooks, by their names, once for all points."""

    timeout_s: Seconds = Field(default=5.0, ge=0.01, le=60)
    """How long a hook may take to answer; then it has failed, and the run is asked about again."""

    defer_max_s: Seconds = Field(default=3600.0, ge=0, le=7 * _DAY_S)
    """How long a run is put off at most, by hooks that ask for that or fail; then it ends rejected."""


class ProfileSettings(Section):
    """Policies and hooks under one name. Omissions of a named profile come from ``default``."""

    missed: Literal["latest", "earliest", "all", "skip"] = "latest"
    """Which of several due times that passed while nobody led are run."""

    overlap: Literal["skip", "allow", "buffer_one", "buffer_all", "cancel_other", "terminate_other"] = "skip"
    """What a due run does while an earlier one of the same schedule is unfinished."""

    priority: Literal["high", "normal", "low"] = "normal"
    """Which runs of a queue are taken first."""

    timeout_s: Seconds = Field(default=300.0, gt=0, le=3660 * _DAY_S)
    """Hard timeout of a run."""

    start_deadline_s: Seconds | None = Field(default=None, ge=0.1, le=366 * _DAY_S)
    """A worker does not start a run later than this after its due time; it then ends expired."""

    retry: RetrySettings = RetrySettings()
    """When a failed run is tried again."""

    hooks: HooksSettings = HooksSettings()
    """Which hooks are asked about its runs."""


class WebhookSettings(Section):
    """A hook that is asked over HTTP, by POST of a JSON object. Profiles enable it by its name."""

    url: SecretStr = Field(max_length=2000)
    """http:// or https://, without user and password. Of many services its path is a secret, so only its server is
    shown."""

    verbs: tuple[Literal["filter", "after"], ...] = Field(default=("filter",), min_length=1, max_length=2)
    """What it is asked: ``filter``, whether a run may be executed now; ``after``, to hear how it ended."""

    timeout_s: Seconds = Field(default=3.0, ge=0.01, le=30)
    """How long one request may take."""

    retries: int = Field(default=1, ge=0, le=5)
    """How often a request that got no proper answer is sent again before the hook has failed."""

    ignorable: bool = False
    """Whether a run goes on when the hook failed; else it is put off, up to ``defer_max``."""

    headers: dict[str, SecretStr] = Field(default_factory=dict, max_length=32)
    """Sent with each request, and never shown. Write ${file:/run/secrets/token}."""

    secret: SecretStr | None = None
    """Signs each request (``Tenure-Signature``, docs/events.md); at least 16 characters."""

    ca_file: str | None = None
    """CA certificates to trust; default: those of the system."""

    cert_file: str | None = None
    """Client certificate."""

    key_file: str | None = None
    """Key of the client certificate."""

    @field_serializer("url")
    def _mask_url(self, url: SecretStr) -> str:
        return mask_path(url.get_secret_value())


Profiles = Annotated[dict[Name, ProfileSettings], Field(max_length=PROFILES_MAX)]
Webhooks = Annotated[dict[Name, WebhookSettings], Field(max_length=WEBHOOKS_MAX)]


def default_profiles() -> dict[str, ProfileSettings]:
    """Return the profiles of a configuration that names none."""
    return {DEFAULT_PROFILE: ProfileSettings()}
