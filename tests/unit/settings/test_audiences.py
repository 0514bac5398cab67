"""Secrets by role: each process of a tree is given what it uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from supervisor.reload.audiences import ROLES, SECRET_PLACES, Audience, forget_secrets
from supervisor.reload.packing import pack, pack_schedules, unpack, unpack_schedules
from supervisor.settings.interpolate import FollowedSecret
from supervisor.settings.loader import load
from supervisor.settings.schema import settings_shape
from supervisor.settings.sections.models import Settings

# One value for each place of the table, each with a secret that says where it stands.
EVERY_SECRET: Mapping[str, Any] = {
    "redis": {
        "url": "redis+sentinel://:secret-url@h:26379/main/0",
        "password": "secret-password",
        "sentinel_password": "secret-sentinel",
    },
    "commands": {"key": "secret-key-of-operators-0123456789"},
    "events": {
        "webhook_url": "https://secret-address/",
        "webhook_token": "secret-bearer",
        "webhook_secret": "secret-of-events-key",
    },
    "plugins": {
        "p": {
            "command": ["p"],
            "secrets": {"k": "secret-plugin"},
            "env": {"A": "secret-variable"},
            "options": {"nested": ["${env:OPTION}"]},
        }
    },
    "webhooks": {
        "w": {"url": "${env:URL}", "headers": {"Authorization": "secret-header"}, "secret": "secret-of-hooks-key"}
    },
    "profiles": {"x": {"hooks": {"config": {"w": {"k": "${env:HOOK}"}}}}},
    "cloudforet": {"token": "secret-cloudforet", "config": {"K": "secret-config"}},
}
ENVIRON = {"OPTION": "secret-option", "URL": "https://secret-webhook/", "HOOK": "secret-hook"}
HOLDS = {
    ("redis", "url"): "secret-url",
    ("redis", "password"): "secret-password",
    ("redis", "sentinel_password"): "secret-sentinel",
    ("commands", "key"): "secret-key",
    ("events", "webhook_url"): "secret-address",
    ("events", "webhook_token"): "secret-bearer",
    ("events", "webhook_secret"): "secret-of-events-key",
    ("plugins", "*", "secrets"): "secret-plugin",
    ("plugins", "*", "env"): "secret-variable",
    ("plugins", "*", "options"): "secret-option",
    ("webhooks", "*", "url"): "secret-webhook",
    ("webhooks", "*", "headers"): "secret-header",
    ("webhooks", "*", "secret"): "secret-of-hooks-key",
    ("profiles", "*", "hooks", "config"): "secret-hook",
    ("cloudforet", "token"): "secret-cloudforet",
    ("cloudforet", "config"): "secret-config",
}


@pytest.fixture
def settings() -> Settings:
    """A configuration with a secret in every place."""
    return load(files=(), environ=ENVIRON, flags=EVERY_SECRET).settings


def values(value: Any) -> Iterator[str]:
    """Yield every text below ``value``, secrets opened."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel):
        yield from values(list(value.__dict__.values()))
    elif isinstance(value, Mapping):
        yield from values(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from values(each)


def found_in(settings: Settings) -> set[str]:
    """Return which of the secrets are in ``settings``."""
    texts = list(values(settings))
    return {secret for secret in HOLDS.values() if any(secret in text for text in texts)}


def test_every_secret_setting_has_a_place_and_every_place_a_secret() -> None:
    """A setting added without saying who needs it fails here, and is nobody's until then."""
    shape = settings_shape()
    secret = {path for path in shape.paths() if (found := shape.at(path)) is not None and found.is_secret}
    assert secret
    assert secret <= {place for place in SECRET_PLACES if "*" not in place}
    assert HOLDS.keys() == SECRET_PLACES.keys()


@pytest.mark.parametrize("role", sorted(ROLES))
def test_each_role_is_given_its_secrets_and_no_others(settings: Settings, role: Audience) -> None:
    """A scheduler that is broken into has no token of the web endpoint, a worker no other webhook's."""
    packed = pack(settings, role)

    wanted = {HOLDS[place] for place, roles in SECRET_PLACES.items() if role in roles}
    assert found_in(unpack(packed)) == wanted
    assert {secret for secret in HOLDS.values() if secret.encode() in packed} == wanted


def test_the_check_of_a_reload_has_all_of_them(settings: Settings) -> None:
    """It compares; a mask would be a difference."""
    assert unpack(pack(settings, Audience.CHECK)) == settings
    assert unpack(pack(settings, Audience.CHECK)).references == settings.references


def test_the_parent_keeps_none(settings: Settings) -> None:
    """It speaks to nobody. Whoever holds these objects holds masks from then on; defaults stay whole."""
    plugin = settings.plugins["p"]
    forget_secrets(settings, settings.references)

    assert found_in(settings) == set()
    assert "secret" not in repr(list(values(plugin)))
    assert Settings().redis.url.get_secret_value() == "embedded"


def test_a_role_follows_the_file_of_a_password(tmp_path: Path) -> None:
    """Also where a variable stands beside the file, which nobody can read any more by then."""
    file = tmp_path / "password"
    file.write_text("old")
    written = {"redis": {"url": "redis://h", "password": f"${{env:HEAD}}-${{file:{file}}}"}}
    secret = unpack(pack(load(files=(), environ={"HEAD": "$"}, flags=written).settings, Audience.WEB)).redis.password
    assert isinstance(secret, FollowedSecret)

    file.write_text("new")

    assert secret.current() == "$-new"


def test_schedules_come_out_as_they_went_in() -> None:
    """With every kind of key."""
    written = {
        "schedules": {
            "a": {"job": "j", "when": [{"every": "90s"}, {"cron": "0 1 * * *"}], "exclude": ["2026-12-24/2027-01-01"]},
            "b": {"job": "j", "at": "2027-01-01T00:00:00Z", "args": {"deep": [{"k": None}, 1.5, True]}},
        }
    }
    schedules = load(files=(), environ={}, flags=written).settings.schedules

    assert unpack_schedules(pack_schedules(schedules)) == schedules
