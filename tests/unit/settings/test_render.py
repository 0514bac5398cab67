"""Settings as text: what is printed loads to the same settings, and says where it came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from supervisor.settings.base import NAME, SCHEDULE_ID
from supervisor.settings.loader import load
from supervisor.settings.render import dump_yaml, inline_yaml, schema, sources, sources_text, to_yaml
from supervisor.settings.schedules.settings import ScheduleSettings
from supervisor.settings.sections.models import (
    ElectionSettings,
    PoolSettings,
    RedisSettings,
    Settings,
    WebSettings,
    WorkerKind,
)
from supervisor.settings.sections.telemetry import LogSettings
from supervisor.settings.yaml_source import parse_text

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_TRICKY = st.sampled_from(
    ["on", "012", "12:30", "1e3", "null", "~", "", " ", "${env:X}", "$${", "$", "${HOME}", "a: b", "# x", "- x", "\x85",
     "\u2028", "\ufeff", "a\nb\n", "\n a", "a \n", "x" * 200, "'", '"', "\\", "%", "@", "`", "!x", "&x", "*x", "<<", "=", "0x1F"]
)  # fmt: skip
_ANY_TEXT = _TEXT | _TRICKY
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _ANY_TEXT,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(_ANY_TEXT, children, max_size=3),
    max_leaves=8,
)
_NAMES = st.from_regex(NAME, fullmatch=True).filter(str.isascii)
_MILLISECONDS = st.integers(100, 10**9).map(lambda n: n / 1000)


@st.composite
def _schedules(draw: st.DrawFn) -> ScheduleSettings:
    every = draw(st.none() | _MILLISECONDS)
    return ScheduleSettings(
        job=draw(_ANY_TEXT),
        every_s=every,
        cron=None if every else "*/5 * * * *",
        timezone="UTC" if every else draw(st.sampled_from(["UTC", "Europe/Berlin"])),
        overlap=draw(st.sampled_from(["skip", "allow"])),
        queue=draw(st.none() | _NAMES),
        priority=draw(st.sampled_from([None, "high"])),
        args=draw(st.dictionaries(_ANY_TEXT, _JSON, max_size=3)),
        timeout_s=draw(st.none() | _MILLISECONDS),
        description=draw(_ANY_TEXT),
    )


@st.composite
def _settings(draw: st.DrawFn) -> Settings:
    pools = st.builds(
        PoolSettings,
        kind=st.sampled_from(WorkerKind),
        processes=st.integers(1, 64),
        queues=st.lists(_NAMES, min_size=1, max_size=3, unique=True).map(tuple),
    )
    return Settings(
        cluster=draw(_NAMES),
        replica=draw(st.none() | _NAMES),
        data_dir=draw(_ANY_TEXT.filter(bool)),
        redis=RedisSettings(username=draw(st.none() | _ANY_TEXT), url="redis://h:1/2"),
        election=ElectionSettings(lease_duration_s=draw(st.integers(5000, 300_000)) / 1000),
        workers=draw(st.dictionaries(_NAMES, pools, max_size=2)),
        jobs=draw(st.sampled_from([(), ("a",), ("a.b", "c")])),
        schedules=draw(
            st.dictionaries(st.from_regex(SCHEDULE_ID, fullmatch=True).filter(str.isascii), _schedules(), max_size=2)
        ),
        web=WebSettings(host=draw(_ANY_TEXT), port=draw(st.integers(0, 65535))),
        log=LogSettings(level=draw(st.sampled_from(["debug", "error"]))),
    )


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(settings=_settings())
def test_what_is_printed_loads_to_equal_settings(settings: Settings, tmp_path: Path) -> None:
    """`--write-config-to` freezes a configuration: the copy must mean the same, byte for byte of every text."""
    path = tmp_path / "written.yaml"
    path.write_text(to_yaml(settings), encoding="utf-8", newline="")
    assert load(files=[path], environ={}, flags={}).settings == settings


@given(_JSON)
def test_any_value_survives_the_way_through_yaml(value: Any) -> None:
    """The dumper quotes whatever our own reader would not read back as it was."""
    for text in (dump_yaml({"k": value}), inline_yaml({"k": value})):
        parsed = parse_text(text, str)
        assert not parsed.problems
        assert parsed.root is not None
        assert parsed.root.plain() == {"k": value}


def test_references_are_written_back_as_references(desk: Any) -> None:
    """A frozen configuration must not hold the secret, and must still find it."""
    secret = desk.write("secret", "hunter2\n")
    desk.add(
        f"redis: {{password: '${{file:{secret}}}', url: 'redis://app:${{env:PW}}@h/0'}}\nweb: {{port: '${{env:PORT}}'}}\n"
        "schedules: {a: {job: x, every: 1m, args: {t: ['$${env:NO}', '${env:PW}']}}}\n"
    )
    environ = {"PW": "hunter2", "PORT": "81"}
    first = desk.load(environ).settings
    assert first.redis.url.get_secret_value() == "redis://app:hunter2@h/0"
    assert first.schedules["a"].args == {"t": ["${env:NO}", "hunter2"]}
    assert first.web.port == 81

    desk.files = [desk.write("written.yaml", to_yaml(first))]
    assert desk.load(environ).settings == first
    assert desk.load({**environ, "PW": "other"}).settings.schedules["a"].args == {"t": ["${env:NO}", "other"]}


@pytest.mark.parametrize(
    "text", ["redis: {password: hunter2, url: 'redis://h'}", "redis: {url: 'redis://u:hunter2@h'}"]
)
def test_a_masked_secret_is_not_taken_for_the_secret(text: str, desk: Any) -> None:
    """Otherwise a copied configuration would knock on Redis with a row of asterisks."""
    desk.add(text)
    written = to_yaml(desk.load().settings)
    assert "hunter2" not in written
    desk.files = [desk.write("written.yaml", written)]
    assert desk.lines()[0].endswith(
        "is the mask of a secret in printed settings; put the secret back, or use ${file:…}"
    )


def test_arguments_of_a_plugins_program_are_masked_and_no_mask_is_taken_for_one(desk: Any) -> None:
    """One of them may be a password; what came from a variable is shown as it was written."""
    desk.add("plugins: {spy: {command: [/opt/spy, --key, hunter2, '${env:PW}']}}")
    loaded = desk.load({"PW": "hunter3"})
    written, told = to_yaml(loaded.settings), sources_text(loaded)
    assert loaded.settings.plugins["spy"].command == ("/opt/spy", "--key", "hunter2", "hunter3")
    for text in (written, told):
        assert "hunter" not in text
        assert "/opt/spy" in text
        assert "${env:PW}" in text
    desk.files = [desk.write("written.yaml", written)]
    assert "plugins.spy.command: is the mask of an argument" in desk.lines({"PW": "x"})[0]


def test_sources_name_the_layer_of_each_value(desk: Any) -> None:
    """The first question about any configuration is: who set this?"""
    desk.add("web:\n  port: 1\n  host: a\njobs: [a.b]\n")
    desk.write("conf.d/x.yaml", "log: {level: debug}\n")
    loaded = desk.load({"TENURE_WEB__PORT": "2", "TENURE_WORKERS__IO__PROCESSES": "3"}, {"web.host": "b"})
    found = {
        path: (entry["value"], entry["origin"].replace(f"{desk.directory}/", ""))
        for path, entry in sources(loaded).items()
    }
    assert found["web.port"] == (2, "TENURE_WEB__PORT")
    assert found["web.host"] == ("b", "--set web.host")
    assert found["jobs"] == (["a.b"], "tenure.yaml:4")
    assert found["log.level"] == ("debug", "conf.d/x.yaml:1")
    assert found["workers.io.processes"] == (3, "TENURE_WORKERS__IO__PROCESSES")
    assert found["workers.io.kind"] == ("async", "default")
    assert found["cluster"] == ("default", "default")
    assert "web.port: 2  " in sources_text(loaded)
    assert "  # TENURE_WEB__PORT\n" in sources_text(loaded)


def test_the_schema_describes_every_setting_and_allows_notes() -> None:
    """Editors complete and check with it; they must not redden x-… keys or show seconds as numbers."""
    found = schema()
    json.dumps(found)
    election = found["$defs"]["ElectionSettings"]
    assert election["properties"]["lease_duration"]["default"] == "5s"
    assert election["properties"]["lease_duration"]["description"].startswith("How long a dead leader blocks")
    assert election["additionalProperties"] is False
    assert "^x-" in election["patternProperties"]
    assert found["$defs"]["RedisSettings"]["properties"]["url"]["default"] == "embedded"
    for name, model in {"Settings": found, **found["$defs"]}.items():
        for key, field in model.get("properties", {}).items():
            assert field.get("description") or "$ref" in field, f"{name}.{key} has no description"
