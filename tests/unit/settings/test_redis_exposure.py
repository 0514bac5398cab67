"""Connections to Redis that show more than they need."""

from __future__ import annotations

from supervisor.settings.rules.redis_exposure import exposures
from supervisor.settings.sections.models import RedisSettings
from tests.kit.tables import table

PLAIN, DEFAULT = "redis_password_in_plain_text", "redis_user_default"


@table(
    ("redis", "events"),
    [
        ({}, []),
        ({"url": "unix:///run/redis.sock?db=1", "password": "p"}, []),
        ({"url": "redis://:p@127.0.0.1:6379/0"}, []),
        ({"url": "redis://[::1]", "password": "p"}, []),
        ({"url": "redis://LOCALHOST.", "password": "p"}, []),
        ({"url": "redis://10.0.0.1"}, [DEFAULT]),
        ({"url": "redis://:p@10.0.0.1"}, [PLAIN, DEFAULT]),
        ({"url": "redis://default:p@redis.example"}, [PLAIN, DEFAULT]),
        ({"url": "redis://tenure:p@redis.example"}, [PLAIN]),
        ({"url": "redis://redis.example", "username": "tenure", "password": "p"}, [PLAIN]),
        ({"url": "rediss://redis.example", "username": "tenure", "password": "p"}, []),
        ({"url": "rediss://:p@[fd00::1]:6380"}, [DEFAULT]),
        ({"url": "redis+sentinel://127.0.0.1,b.example/m", "sentinel_password": "p", "username": "t"}, [PLAIN]),
        ({"url": "rediss+sentinel://a,b/m", "sentinel_password": "p", "username": "t"}, []),
        ({"url": "redis+cluster://t:p@127.0.0.1:1,[::1]:2"}, []),
        ({"url": "redis+cluster://t:p@127.0.0.1:1,10.0.0.1:2"}, [PLAIN]),
    ],
)
def test_a_password_in_plain_text_and_the_user_default_are_told(redis: dict[str, str], events: list[str]) -> None:
    """Beyond this machine alone, and never with a word of the password."""
    found = list(exposures(RedisSettings.model_validate(redis)))

    assert [each.event for each in found] == events
    assert not any(":p@" in each.seen or not each.remedy for each in found)
