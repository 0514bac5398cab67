"""Where Redis is, in one line: what can be read, and what is wrong with the rest."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.settings.rules.cross_rules import violations
from supervisor.settings.sections.models import RedisSettings, Settings
from supervisor.settings.sections.redis_url import (
    NODES_MAX,
    RedisUrl,
    RedisUrlError,
    Topology,
    join_address,
    parse_redis_url,
    split_address,
)
from tests.kit.tables import table

SENTINEL, CLUSTER = Topology.SENTINEL, Topology.CLUSTER


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis+sentinel://a/m", RedisUrl(SENTINEL, is_tls=False, nodes=(("a", 26379),), master="m")),
        (
            "rediss+sentinel://us%40er:p%2Fw@a:1,b.example,[::1]:3/my-master/7",
            RedisUrl(
                SENTINEL,
                is_tls=True,
                nodes=(("a", 1), ("b.example", 26379), ("::1", 3)),
                master="my-master",
                db=7,
                username="us@er",
                password="p/w",
            ),
        ),
        (
            "redis+cluster://:pw@a:7000,[fe80::1]",
            RedisUrl(CLUSTER, is_tls=False, nodes=(("a", 7000), ("fe80::1", 6379)), password="pw"),
        ),
        ("rediss+cluster://a/0", RedisUrl(CLUSTER, is_tls=True, nodes=(("a", 6379),))),
        ("rediss://:x@h:1/2", RedisUrl(Topology.STANDALONE, is_tls=True)),
    ],
)  # fmt: skip
def test_a_url_of_any_topology_is_read(url: str, expected: RedisUrl) -> None:
    """Ports and the database have defaults; user and password are percent-decoded."""
    assert parse_redis_url(url) == expected
    assert not list(violations(Settings(redis=RedisSettings(url=url))))


@table(
    ("url", "fault"),
    [
        ("redis+sentinel://:hunter2@a,b", "does not name the master"),
        ("redis+sentinel://a/", "does not name the master"),
        ("redis+sentinel://a/m/x", "must end in /master/N"),
        ("redis+sentinel://a/m/1/2", "must end in /master/N"),
        ("redis+sentinel://a/m?db=1", "takes nothing after its path"),
        ("redis+sentinel:///m", "must list host:port"),
        ("redis+sentinel://a,,b/m", "must list host:port"),
        ("redis+sentinel://a:0/m", "must list host:port"),
        ("redis+sentinel://a:99999/m", "must list host:port"),
        ("redis+sentinel://a:hunter2/m", "must list host:port"),
        ("redis+sentinel://::1/m", "must list host:port"),
        ("redis+sentinel://a:1,a:1/m", "lists a host twice"),
        ("redis+sentinel://u:hunter2/x@a/m", "is not a URL"),
        ("redis+sentinel://u:hunter2#x@a/m", "holds a #"),
        ("redis+cluster://a/1", "names a database"),
        ("redis+cluster://", "must list host:port"),
        (f"redis+cluster://{','.join(f'h{n}' for n in range(NODES_MAX + 1))}", "lists 17 hosts"),
        ("redis+mirror://a", "must be embedded, or start with"),
        ("redis://a:1,b:2", "is not a URL"),
        ("redis://a,b", "names several servers"),
    ],
)
def test_a_url_that_cannot_be_used_says_why_and_never_what(url: str, fault: str) -> None:
    """With a remedy, and without a word of what may be a password."""
    with pytest.raises(RedisUrlError) as caught:
        parse_redis_url(url)
    assert fault in caught.value.fault
    assert caught.value.remedy
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("address", ["h:1", "h.example:6379", "[::1]:26379"])
def test_an_address_is_taken_apart_and_put_together(address: str) -> None:
    """As the board carries it."""
    assert join_address(*split_address(address)) == address


@table("address", ["", "h", "h:", ":1", "h:x", "h:0", "h:65536", "::1:6379", "[h]:1", "a b:1", "h:-1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    """It came from a server, which may be confused."""
    with pytest.raises(ValueError, match="address"):
        split_address(address)


def test_a_url_shows_no_credential() -> None:
    """In a traceback or a debugger."""
    assert repr(parse_redis_url("redis+sentinel://u:hunter2@a,b:1/m")) == (
        "<RedisUrl sentinel master m of the sentinels a:26379,b:1>"
    )
    assert "hunter2" not in repr(RedisSettings(url="redis+cluster://u:hunter2@a"))
    shown = Settings(redis=RedisSettings(url="redis+sentinel://u:hunter2@a,b/m", sentinel_password="hunter2"))
    assert "hunter2" not in str(shown.model_dump())
    assert "a,b/m" in str(shown.model_dump())


@pytest.mark.parametrize(
    ("redis", "message"),
    [
        ("{url: 'redis://h', sentinel_password: x}", "redis.sentinel_password: is used with sentinels only"),
        ("{url: 'redis+cluster://h', sentinel_username: x}", "redis.sentinel_username: is used with sentinels only"),
        ("{sentinel_username: x}", "redis.sentinel_username: is not used by the embedded server"),
        ("{url: 'redis+sentinel://h/m', tls_ca_file: a}", "redis.tls_ca_file: is used by rediss:// only"),
        ("{url: 'redis+sentinel://h'}", "redis.url: does not name the master"),
        ("{durability: replica}", "redis.durability: the embedded server has no replica"),
        ("{url: 'redis://h', durability: replica, durability_timeout: 750ms}", "redis.durability_timeout: 750ms is not below"),
        ("{url: 'redis://h', durability: two}", "redis.durability: "),
        ("{url: 'redis+sentinel://h/m', sentinel_password: '**********'}", "redis.sentinel_password: is the mask"),
    ],
)  # fmt: skip
def test_settings_that_cannot_work_together_are_refused(redis: str, message: str, problems_of: Any) -> None:
    """Each would otherwise be ignored in silence."""
    (line,) = problems_of(f"redis: {redis}\n")
    assert f"tenure.yaml:1: {message}" in line
