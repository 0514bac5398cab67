"""Options of a producer without a configuration: the settings' model decides the same, and is not needed."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from supervisor.core.errors import ConfigError, StoreRefusedError
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.base import options, wait_ms
from supervisor.store.client.redis_options import PlainRedisOptions, PlainSecret
from supervisor.store.client.sync_client import Store
from supervisor.store.producer.connection import settings_from_environment

NAMES = [each.name for each in fields(PlainRedisOptions)]
KEYS = [(field.alias or name) for name, field in RedisSettings.model_fields.items()]
_TIMES = ("0", "0s", "1ms", "49ms", "50ms", "0.5s", "10s", "10001ms", "30s", "30001ms", "PT5S", "2", "-1s", "soon")
_TEXTS = st.sampled_from([*_TIMES, "", "none", "replica", "Replica", "true", "always", "512", "\udcff"]) | st.text()


def shown(settings: Any) -> dict[str, Any]:
    """Return the options as plain values."""
    found = {name: getattr(settings, name) for name in NAMES}
    return {
        name: value.get_secret_value() if hasattr(value, "get_secret_value") else value for name, value in found.items()
    }


def told(texts: dict[str, str]) -> tuple[list[str], RedisSettings | None]:
    """Return the options that the model refuses, or its settings."""
    try:
        return [], RedisSettings.model_validate(texts)
    except ValidationError as error:
        return [str(details["loc"][0]) for details in error.errors()], None


@given(st.dictionaries(st.sampled_from(KEYS), _TEXTS), st.text(min_size=1))
@example({"durability": "replica", "durability_timeout": "250ms"}, "redis://h")
@example({"command_timeout": "49ms"}, "redis://h")
def test_variables_mean_what_they_mean_to_a_tree(given_: dict[str, str], url: str) -> None:
    """A program that enqueues has the same variables as the tree, and gets the same values; wrong ones are named."""
    texts = {**given_, "url": url}
    environment = {f"TENURE_REDIS__{key.upper()}": value for key, value in texts.items()}
    wrong, expected = told(texts)
    if wrong and url != "embedded":
        with pytest.raises(ConfigError) as refused:
            settings_from_environment(environment)
        assert [each.where for each in refused.value.problems] == [f"TENURE_REDIS__{key.upper()}" for key in wrong]
    elif url != "embedded":
        assert shown(settings_from_environment(environment)) == shown(expected)


def test_a_wrong_variable_is_told_with_its_value_and_never_a_password() -> None:
    """In one line each, as a tree tells it."""
    wrong = {"COMMAND_TIMEOUT": "soon", "DURABILITY": "all", "PASSWORD": "hunter2"}
    environment = {f"TENURE_REDIS__{key}": value for key, value in {"URL": "redis://h", **wrong}.items()}
    with pytest.raises(ConfigError) as refused:
        settings_from_environment(environment)
    timeout, durability = str(refused.value).splitlines()
    assert timeout == (
        "TENURE_REDIS__COMMAND_TIMEOUT: redis.command_timeout: 'soon' is not a duration: write 250ms, 15s, 5m, 2h or 7d"
    )
    assert durability == "TENURE_REDIS__DURABILITY: redis.durability: should be 'none' or 'replica', got 'all'"
    assert "hunter2" not in str(refused.value)


def test_plain_options_cover_what_clients_read() -> None:
    """Times at the ends of their ranges, texts and durability need no model; defaults are the model's."""
    texts = {"url": "rediss://h", "durability": "replica", "tls_ca_file": "/ca", "username": "u", "password": "p"}
    for limit in ("50ms", "30s"):
        times = {"connect_timeout": limit, "command_timeout": limit, "durability_timeout": "10s"}
        plain = PlainRedisOptions.parse({**texts, **times})
        assert plain is not None
        assert shown(plain) == shown(RedisSettings.model_validate({**texts, **times}))
        assert wait_ms(plain) == 10_000
        found = options("rediss://h", plain, client_name="x", timeout_s=1)
        assert (found["username"], found["password"], found["ssl_ca_certs"]) == ("u", "p", "/ca")
    assert shown(PlainRedisOptions.parse({"url": "redis://h"})) == shown(RedisSettings(url=SecretStr("redis://h")))
    assert [each.name for each in fields(PlainRedisOptions) if each.default is MISSING] == ["url"]


def test_options_show_no_credential() -> None:
    """They are in the locals of every frame that a monitor of errors collects."""
    found = PlainRedisOptions.parse({"url": "redis://u:hunter2@h", "password": "hunter2", "username": "hunter2"})
    assert found is not None
    assert "hunter2" not in f"{found} {found!r} {found.url} {found.password!r}"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://u:hunter2@h/0?retries=0", r"everything but \?db=N is a setting"),
        ("redis+sentinel://u:hun/ter2@h:1/0", "is not a URL"),
        ("redis+cluster://u:hunter2@h?db=1", "takes nothing after its path"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_with_the_reason(url: str, why: str) -> None:
    """Of a program, whose URL no configuration validated; options of the client library are none of ours."""
    with pytest.raises(StoreRefusedError, match=f"redis.url cannot be read .*{why}") as refused:
        Store.connect(url, settings=PlainRedisOptions(url=PlainSecret(url)), name="c:test")
    assert "hun" not in str(refused.value)
