"""/configz shows settings and no secret."""

from __future__ import annotations

import json

import pytest

from supervisor.roles.web.configz import masked_settings, where
from supervisor.settings.models import Settings

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

    assert SECRET not in json.dumps(shown)
    assert shown["redis"]["url"] == "rediss://***@redis.example:6380/1"
    assert shown["redis"]["password"] == "***"
    assert shown["schedules"]["sync"]["args"] == ["headers", "innocent", "url"]


def test_the_rest_is_shown_as_people_write_it() -> None:
    """So that it can be compared with the file."""
    shown = masked_settings(Settings())

    assert shown["redis"]["url"] == "embedded"
    assert shown["redis"]["password"] is None
    assert shown["election"]["lease_duration"] == "5s"
    pool = shown["workers"]["cpu"]
    assert (pool["kind"], pool["processes"], pool["queues"]) == ("sync", 2, ["default", "shell"])
    assert pool["recycle_age"] is None


@pytest.mark.parametrize(
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
