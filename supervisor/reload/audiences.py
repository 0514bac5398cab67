"""Audiences of secrets: the processes of a tree that are given each secret of its configuration.

Guarantees
    A role has the secrets that it uses, and of every other a mask. A secret setting without a place in the table
    below is nobody's: a test walks all of them.

Does not guarantee
    That arguments of schedules are kept from any role: they travel through Redis, which all of them read.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import SecretStr

from supervisor.settings.base import Path, Section, key_of
from supervisor.settings.masking import EMBEDDED, MASK


class Audience(StrEnum):
    """A process that is given secrets; the roles among them are called as the groups of their slots."""

    AGENT = "agent"
    SCHEDULER = "scheduler"
    WEB = "web"
    WORKER = "worker"
    CHECK = "check"  # the throw-away child that compares the next configuration with this one: all of them


ROLES = frozenset(Audience) - {Audience.CHECK}
_ANY = "*"

SECRET_PLACES: Mapping[tuple[str, ...], frozenset[Audience]] = {
    ("redis", "url"): ROLES,
    ("redis", "password"): ROLES,
    ("redis", "sentinel_password"): frozenset({Audience.AGENT}),  # it alone searches for Redis
    ("commands", "key"): frozenset({Audience.AGENT, Audience.WEB}),  # the one obeys, the other asks
    ("events", "webhook_url"): frozenset({Audience.WEB}),
    ("events", "webhook_token"): frozenset({Audience.WEB}),
    ("events", "webhook_secret"): frozenset({Audience.WEB}),
    ("plugins", _ANY, "secrets"): frozenset({Audience.WORKER}),
    ("plugins", _ANY, "env"): frozenset({Audience.WORKER}),
    ("plugins", _ANY, "options"): frozenset({Audience.WORKER}),
    ("webhooks", _ANY, "url"): frozenset({Audience.WORKER}),
    ("webhooks", _ANY, "headers"): frozenset({Audience.WORKER}),
    ("webhooks", _ANY, "secret"): frozenset({Audience.WORKER}),
    ("profiles", _ANY, "hooks", "config"): frozenset({Audience.WORKER}),
    ("cloudforet", "token"): frozenset({Audience.WORKER}),
    ("cloudforet", "config"): frozenset({Audience.WORKER}),
}
"""Settings by path as the fields are named; what lies below one belongs to it."""

_SECRET_WHOLE = frozenset({("cloudforet", "config")})
"""Whose values count as secrets however they were written, as everywhere that settings are shown."""


def is_withheld(path: Path, value: object, *, is_reference: bool, audience: Audience | None) -> bool:
    """Return whether one value is a secret that ``audience`` is not given; None means the parent, which has none.

    Sections and mappings are never secret as such. ``is_reference``: it came from ``${file:…}`` or ``${env:…}``.
    """
    if audience is Audience.CHECK:
        return False
    place = _place(path)
    if isinstance(value, SecretStr):
        if value.get_secret_value() == EMBEDDED:
            return False
        return place is None or audience not in SECRET_PLACES[place]
    if place is None or audience in SECRET_PLACES[place] or not isinstance(value, str):
        return False
    return is_reference or place in _SECRET_WHOLE


def forget_secrets(settings: Section, references: Mapping[Path, str]) -> None:
    """Put a mask in the place of every secret, in these very objects, so that nothing that refers to them shows one.

    Defaults are left alone, which all settings of the program share; so are schedules.
    """
    for name in sorted(settings.model_fields_set - {"schedules"}):
        settings.__dict__[name] = _forgotten(settings.__dict__[name], (name,), references)


def _forgotten(value: Any, path: Path, references: Mapping[Path, str]) -> Any:
    if is_withheld(path, value, is_reference=path in references, audience=None):
        if isinstance(value, SecretStr):
            value._secret_value = MASK  # noqa: SLF001 - it has no setter, and others hold this object
            return value
        return MASK
    if isinstance(value, Section):
        for name in sorted(value.model_fields_set):
            value.__dict__[name] = _forgotten(value.__dict__[name], (*path, key_of(name)), references)
    elif isinstance(value, dict):
        for key in value:
            value[key] = _forgotten(value[key], (*path, key), references)
    elif isinstance(value, list | tuple):
        return type(value)(_forgotten(each, (*path, index), references) for index, each in enumerate(value))
    return value


def _place(path: Path) -> tuple[str, ...] | None:
    for place in SECRET_PLACES:
        if len(path) >= len(place) and all(want in (_ANY, step) for want, step in zip(place, path, strict=False)):
            return place
    return None
