"""/configz shows settings and no secret."""

from __future__ import annotations

import asyncio
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.config.setting_flags import flag_paths
from supervisor.roles.web.configz import (
    SCHEDULES_MAX,
    Configuration,
    flags,
    masked_settings,
    schedules_page,
    where,
    with_sources,
)
from supervisor.settings import loader
from supervisor.settings.loader import load
from supervisor.settings.sections.models import Settings
from tests.kit.tables import table

SECRET = "hunter2"


def test_no_secret_of_any_setting_is_shown() -> None:
    """Not the typed ones, not those in a URL, not those a schedule passes to its job."""
    settings = Settings.model_validate(
        {
            "events": {"webhook_url": f"https://hooks.example/{SECRET}", "webhook_token": SECRET},
            "redis": {"url": f"rediss://app:{SECRET}@redis.example:6380/1?password={SECRET}", "password": SECRET},
            "schedules": {
                "sync": {
                    "job": "http.request",
                    "every": "5m",
                    "args": {"url": f"https://x/?t={SECRET}", "headers": {"X-Key": SECRET}, "innocent": SECRET},
                    "description": f"calls https://u:{SECRET}@host/",
                }
            },
        }
    )

    shown = masked_settings(settings)

    page = page_of(settings)
    assert SECRET not in json.dumps([shown, page])
    assert (shown["schedules_count"], "schedules" in shown) == (1, False)
    assert shown["redis"]["url"] == "rediss://***@redis.example:6380/1"
    assert shown["redis"]["password"] == "***"
    assert page["schedules"]["sync"]["args"] == ["headers", "innocent", "url"]


def test_no_entry_of_a_setting_is_left_out() -> None:
    """A page of what is in effect has all of it, however many modules or rules there are."""
    many = {f"m.j{number}": ["to"] for number in range(150)}
    settings = Settings.model_validate({"jobs": [f"m{number}" for number in range(150)], "log": {"mask": many}})

    shown = masked_settings(settings)

    assert (len(shown["jobs"]), list(shown["log"]["mask"])) == (150, list(many))


def test_values_from_references_are_shown_as_written(tmp_path: Path) -> None:
    """A schedule may take a cron expression or a queue from a variable; the page has its name, as that of the others has."""
    file = tmp_path / "tenure.yaml"
    file.write_text("schedules: {s: {job: x, cron: '${env:CRON}', queue: 'of-${env:KEY}', args: {a: '${env:KEY}'}}}")

    settings = load(files=[file], environ={"CRON": "0 3 * * *", "KEY": SECRET}, flags={}).settings

    page = page_of(settings)
    assert SECRET not in json.dumps(page)
    shown = page["schedules"]["s"]
    assert (shown["cron"], shown["queue"], shown["args"]) == ("${env:CRON}", "of-${env:KEY}", ["a"])


def test_what_no_name_marks_as_a_secret_is_not_shown_either() -> None:
    """The path of a webhook, and words and environment of a plugin's program, are secrets of many services."""
    settings = Settings.model_validate(
        {
            "webhooks": {"audit": {"url": f"https://hooks.example:8443/services/{SECRET}"}},
            "plugins": {"cloud": {"command": ["collector", "--key", SECRET], "env": {"REGION_ID": SECRET}}},
        }
    )

    shown = masked_settings(settings)

    assert SECRET not in json.dumps(shown) + flags(settings)
    assert shown["webhooks"]["audit"]["url"] == "***"
    assert shown["plugins"]["cloud"]["command"] == ["collector", "***", "***"]
    assert shown["plugins"]["cloud"]["env"] == {"REGION_ID": "***"}


def page_of(settings: Settings, after: str = "", *, has_sources: bool = False) -> dict[str, Any]:
    """Return a page of schedules."""
    return schedules_page(settings, sorted(settings.schedules), after, has_sources=has_sources)


def test_schedules_come_in_pages_and_each_once() -> None:
    """However many there are, one request costs what a hundred of them cost."""
    names = [f"s{number:03}" for number in range(2 * SCHEDULES_MAX + 50)]
    settings = Settings.model_validate({"schedules": {name: {"job": "j", "every": "5m"} for name in names}})

    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = page_of(settings, cursor)
        assert len(page["schedules"]) <= SCHEDULES_MAX
        seen += page["schedules"]
        cursor = page["cursor"]

    assert seen == names
    assert page_of(settings, "zzz") == {"schedules": {}, "cursor": None}


async def test_pages_are_made_once_and_one_at_a_time() -> None:
    """Anonymous clients that ask over and over cost an answer from memory."""
    made: list[Settings] = []

    def make(settings: Settings) -> bytes:
        made.append(settings)
        return b"page"

    configuration = Configuration(Settings())

    assert await asyncio.gather(*(configuration.page("p", make) for _ in range(50))) == [b"page"] * 50
    assert len(made) == 1


def test_the_rest_is_shown_as_people_write_it() -> None:
    """So that it can be compared with the file."""
    shown = masked_settings(Settings())

    assert shown["redis"]["url"] == "embedded"
    assert shown["redis"]["password"] is None
    assert shown["election"]["lease_duration"] == "5s"
    pool = shown["workers"]["cpu"]
    assert (pool["kind"], pool["processes"], pool["queues"]) == ("sync", 2, ["default", "shell"])
    assert pool["recycle_age"] is None


@table(
    ("url", "shown"),
    [
        ("embedded", "embedded"),
        ("redis://host", "redis://host"),
        ("redis://:pw@host:1/0", "redis://***@host:1/0"),
        ("redis://:p@w@host:1/0", "redis://***@host:1/0"),
        ("unix:///run/redis.sock?password=pw", "unix:///run/redis.sock"),
        ("redis://[::1", "***"),
        ("redis://:pw/x@host:port", "***"),
        ("just-a-password", "***"),
    ],
)
def test_a_url_is_reduced_to_the_server_it_means(url: str, shown: str) -> None:
    """Which server is worth knowing; what cannot be read is not shown at all."""
    assert where(url) == shown


def test_every_feature_is_shown_with_its_state() -> None:
    """Not only those that somebody named: /configz is where one looks whether a feature is on."""
    assert masked_settings(Settings())["features"] == {"FastCrashDetection": False}
    settings = Settings.model_validate({"features": {"AllBeta": True}})
    assert masked_settings(settings)["features"] == {"FastCrashDetection": True}


def test_flags_are_the_settings_sorted_and_without_secrets() -> None:
    """Those that the command line takes, each with its value in effect; what is under a chosen name by ``--set``."""
    settings = Settings.model_validate(
        {
            "redis": {"url": f"redis://app:{SECRET}@redis.example:6380/1", "password": SECRET},
            "events": {"webhook_url": f"https://hooks.example/{SECRET}"},
            "election": {"lease_duration": "7s"},
            "schedules": {"sync": {"job": "http.request", "every": "5m", "args": {"innocent": SECRET}}},
        }
    )

    shown = flags(settings)

    lines = dict(line.split("=", 1) for line in shown.splitlines() if not line.startswith("--set="))
    assert SECRET not in shown
    assert "schedules" not in shown
    assert sorted(lines) == list(lines) == sorted(flag_paths())
    assert lines["--election-lease-duration"] == "7s"
    assert (lines["--redis-url"], lines["--redis-password"]) == ("redis://***@redis.example:6380/1", "***")
    assert "--set=workers.cpu.queues=[default, shell]\n" in shown


def test_each_value_has_its_source(tmp_path: Path) -> None:
    """File and line, variable, flag or default; also after the settings were handed to another process."""
    file = tmp_path / "t.yaml"
    file.write_text(
        "workers: {io: {kind: async, queues: [default]}}\nlog:\n  level: debug\nredis:\n  password: ${env:PW}\n  url: redis://host\n"
        "schedules:\n  sync: {job: http.request, every: 5m, args: {innocent: 1}}\n"
    )
    environ = {"PW": SECRET, "TENURE_WEB__HOST": "::1"}
    loaded = load(files=[file], environ=environ, flags={"redis.username": SECRET})
    carried = pickle.loads(pickle.dumps(loaded.settings))

    shown = with_sources(carried)

    found = shown.pop("sources")
    assert SECRET not in json.dumps(found)
    assert shown.pop("sources_left_out") == 0
    assert shown == masked_settings(loaded.settings)
    found |= page_of(carried, has_sources=True)["sources"]
    assert found["log.level"] == f"{file}:3"
    assert found["redis.password"] == f"{file}:5"
    assert found["web.host"] == "TENURE_WEB__HOST"
    assert found["redis.username"] == "--set redis.username"
    assert found["web.port"] == "default"
    assert found["workers.io.queues"] == f"{file}:1"
    assert found["schedules.sync"] == f"{file}:8"
    assert not any("args" in path for path in found)


def test_sources_of_very_many_schedules_are_not_all_carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process has a copy of them; the settings come first, and what is left out is counted."""
    monkeypatch.setattr(loader, "ORIGINS_MAX", 100)
    file = tmp_path / "t.yaml"
    entries = "".join(f"  s{n}: {{job: j, every: 5m}}\n" for n in range(110))
    file.write_text(f"schedules:\n{entries}log:\n  level: debug\n")

    origins = load(files=[file], environ={}, flags={}).settings.origins

    assert len(origins.by_path) == 100
    assert origins.by_path["log.level"].startswith(str(file))
    assert origins.left_out == 10 + len([path for path in origins.by_path if not path.startswith("schedules")])


def test_where_a_value_was_written_is_no_part_of_it(tmp_path: Path) -> None:
    """The same settings from another line are the same settings: nothing follows from that."""
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("cluster: c1\n")
    second.write_text("# a comment\ncluster: c1\n")

    assert load(files=[first], environ={}, flags={}).settings == load(files=[second], environ={}, flags={}).settings
