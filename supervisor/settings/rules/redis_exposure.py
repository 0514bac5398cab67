"""Exposure of a connection to Redis: warnings at the start and in `tenure doctor`, never a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from supervisor.core.network import is_loopback
from supervisor.settings.masking import EMBEDDED
from supervisor.settings.sections.models import RedisSettings
from supervisor.settings.sections.redis_url import Topology, parse_redis_url


class Exposure(NamedTuple):
    """One of them."""

    event: str
    seen: str
    remedy: str


def exposures(redis: RedisSettings) -> Iterator[Exposure]:
    """Yield exposures of a valid configuration to eavesdroppers, or to holders of the programs' shared password.

    A socket and loopback addresses are on this machine, where the bundled server and its neighbours are.
    """
    url = redis.url.get_secret_value()
    if url == EMBEDDED:
        return
    parsed = parse_redis_url(url)
    hosts, username, password = [host for host, _ in parsed.nodes], parsed.username, parsed.password
    if parsed.topology is Topology.STANDALONE:
        parts = urlsplit(url)
        hosts, username, password = (
            [parts.hostname or ""] if parts.scheme != "unix" else [],
            parts.username,
            parts.password,
        )
    remote = next((host for host in hosts if not is_loopback(host)), None)
    if remote is None:
        return
    has_password = any((password, redis.password, redis.sentinel_password))
    if has_password and not parsed.is_tls:
        seen = f"passwords travel to {remote} in plain text"
        yield Exposure("redis_password_in_plain_text", seen, "use rediss:// (rediss+sentinel://, rediss+cluster://)")
    if (redis.username or username or "default") == "default":
        seen = "the user is `default`, which may do anything to everybody's data"
        yield Exposure("redis_user_default", seen, "make one by docs/redis-acl.md, and name it by redis.username")
