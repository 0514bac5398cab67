"""Preflight check of a Redis server: run once at start, in a throw-away process.

Guarantees
    Finds faults that no retry mends: a wrong password, a missing right, eviction, an old server.
    A question that the server does not know, or does not allow, counts as unknown, not as wrong.

Does not guarantee
    That the server stays as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

import structlog

from supervisor.clock import SystemClock
from supervisor.core.errors import EXIT_CONFIG, EXIT_OK, Problem, StoreRefusedError, StoreUnavailableError
from supervisor.settings.sections.models import Settings
from supervisor.store.client.base import wait_ms
from supervisor.store.client.replies import NO_RIGHT, is_stale_master
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import CLUSTERS, Keys
from supervisor.store.scripts import script
from supervisor.store.wire.codec import texts

log = structlog.get_logger()
VERSION_MIN = (6, 2)
CLUSTERS_MAX = 1000
CLIENT_COMMANDS = ("eval", "evalsha", "ping", "xread", "blpop", "client|setname", "select", "subscribe", "role", "wait")
"""What clients send beside scripts."""
SCRIPT_COMMANDS = (
    "time get set setnx del exists pexpire pttl hset hsetnx hget hmget hgetall hdel hlen hkeys hexists "
    "hincrby hscan lpush rpush lpop lpos lrange ltrim llen lindex sadd srem scard sismember smembers srandmember sscan "
    "zadd zrem zcard zcount zrank zscore zmscore zrange zrevrange zrangebyscore zremrangebyrank zscan xadd xlen "
    "xrevrange xread pubsub|numsub"
)
"""What scripts call. A test holds this to be what stands in the sources."""
SHARED_COMMANDS = ("eval", "evalsha", "ping", "client|setname", "select")
"""What producers and readers send beside what scripts call."""
READ_COMMANDS = (
    "time get exists pttl hget hmget hgetall hlen hkeys hexists hscan lrange llen lindex scard sismember smembers "
    "srandmember sscan zcard zcount zrank zscore zmscore zrange zrevrange zrangebyscore zscan xlen xrevrange xread"
)
TREE_COMMANDS = ("pubsub|numsub",)
"""What only trees call: it tells of channels."""
PRODUCER_WRITES = (
    "q:*", "limit:*", "enqueues:*", "queues", "awaited", "rung:*", "ended:*", "result:*", "progress:*", "leadership:*"
)  # fmt: skip
"""Keys of a cluster that enqueueing, waiting for a result and leaderships of programs write."""
AclRole = Literal["tree", "producer", "reader"]


def acl_rules(cluster: str, role: AclRole = "tree") -> list[str]:
    """Return the least that an ACL user needs, as the arguments of ACL SETUSER after the password.

    Args:
        cluster: the setting of that name.
        role: ``tree`` for replicas and operators' commands; ``producer`` for programs that enqueue and read runs;
            ``reader`` for programs that only read. A producer's need Redis 7 or Valkey.
    """
    prefix = Keys(cluster).prefix
    called = [name for name in SCRIPT_COMMANDS.split() if role == "tree" or name not in TREE_COMMANDS]
    if role == "tree":
        return [*_keys(f"~{prefix}*", f"~{CLUSTERS}"), f"&{prefix}alive:*", *_allow((*CLIENT_COMMANDS, *called))]
    if role == "reader":  # without a command that writes, since Redis takes the keys of a script for written ones
        return [*_keys(f"~{prefix}*"), *_allow((*SHARED_COMMANDS, *READ_COMMANDS.split()))]
    # The scripts of producers declare the bare prefix as their one key, under which nothing lies.
    writes = [f"~{prefix}{part}" for part in PRODUCER_WRITES]
    reads = (f"%R~{prefix}*", f"%R~{CLUSTERS}")
    return [*_keys(f"~{prefix}", *writes, *reads), *_allow((*SHARED_COMMANDS, "blpop", *called))]


def _keys(*patterns: str) -> list[str]:
    return ["resetkeys", *patterns, "resetchannels", "-@all"]


def _allow(commands: Iterable[str]) -> list[str]:
    return [f"+{name}" for name in commands]


def check(store: Store, settings: Settings) -> list[Problem]:
    """Return everything that keeps this server from carrying the cluster.

    Raises:
        StoreUnavailableError: it does not answer, or is loading: start unready and try again.
    """
    try:
        store.ping()
    except StoreRefusedError as error:
        return [_problem("redis", str(error), "correct redis.url, redis.username or redis.password")]
    facts = _info(store, "server") | _info(store, "memory")
    return [*_version(facts), *_eviction(store, settings, facts), *_rights(store, settings)]


def note_cluster(store: Store, cluster: str, wall_ms: int) -> None:
    """Write the name of a cluster into its database, for producers that name another one by mistake.

    A user without the right, and a Redis Cluster whose node does not serve this key, leave it unwritten.
    """
    known = _ask(store, "HLEN", CLUSTERS)
    if isinstance(known, int) and known < CLUSTERS_MAX:
        _ask(store, "HSET", CLUSTERS, cluster, wall_ms)


def known_clusters(store: Store) -> list[str]:
    """Return the clusters that are known to share the database; none where ``note_cluster`` wrote none."""
    return texts(_ask(store, "HKEYS", CLUSTERS) or [])


def _version(facts: dict[str, str]) -> list[Problem]:
    # Valkey keeps redis_version at 7.2.4 for compatibility, so one field serves both.
    seen = facts.get("redis_version", "")
    found = re.match(r"(\d+)\.(\d+)", seen)
    if found is None or (int(found[1]), int(found[2])) >= VERSION_MIN:
        return []
    return [_problem("redis.url", f"the server is version {seen}", "use Redis 6.2 or newer, or Valkey")]


def _eviction(store: Store, settings: Settings, facts: dict[str, str]) -> list[Problem]:
    if settings.redis.allow_eviction:
        return []
    policy = _config(store, "maxmemory-policy") or facts.get("maxmemory_policy", "noeviction")
    limit = _config(store, "maxmemory") or facts.get("maxmemory", "")
    if policy == "noeviction" or limit == "0":
        return []
    return [
        _problem(
            "redis.allow_eviction",
            f"the server's maxmemory-policy is {policy}: it drops runs when its memory is full",
            "set maxmemory-policy noeviction on the server, or redis.allow_eviction: true to accept the loss",
        )
    ]


def _rights(store: Store, settings: Settings) -> list[Problem]:
    keys = Keys(settings.cluster)
    call = script("preflight").call(keys={"prefix": keys.prefix}, args={}, parse=texts)
    user = f"ACL SETUSER … {' '.join(acl_rules(settings.cluster))}"
    try:
        refused = store.run(call)
    except StoreRefusedError as error:
        return [_problem("redis.username", str(error), f"allow scripts and the cluster's keys: {user}")]
    refused += [parts[0].lower() for parts in _beside_scripts(keys, settings) if not _may(store, *parts)]
    if not refused:
        return []
    return [_problem("redis.username", f"the user may not run {', '.join(refused)}", f"allow them: {user}")]


def _beside_scripts(keys: Keys, settings: Settings) -> list[tuple[str, ...]]:
    """Return harmless forms of the commands that clients send beside scripts."""
    place = f"{keys.prefix}preflight:none"
    found: list[tuple[str, ...]] = [("XREAD", "COUNT", "1", "STREAMS", place, "0"), ("BLPOP", place, "0.001")]
    return [*found, ("WAIT", "0", "1")] if wait_ms(settings.redis) else found


def _may(store: Store, *parts: str) -> bool:
    try:
        store.command(*parts)
    except StoreRefusedError as error:
        return NO_RIGHT not in str(error)
    return True


def _info(store: Store, section: str) -> dict[str, str]:
    reply = _ask(store, "INFO", section)
    lines = reply.decode("utf-8", "replace").splitlines() if isinstance(reply, bytes) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _config(store: Store, name: str) -> str:
    reply = _ask(store, "CONFIG", "GET", name)
    return reply[1].decode("utf-8", "replace") if isinstance(reply, list) and len(reply) == 2 else ""


def _ask(store: Store, *parts: str | int) -> Any:
    try:
        return store.command(*parts)
    except StoreRefusedError:
        return None  # unknown here, or not allowed: nobody knows
    except StoreUnavailableError as error:
        if not is_stale_master(error.__cause__):
            raise
        return None  # CLUSTERS carries no hash tag: in a Redis Cluster another node has it, or none


def _problem(path: str, message: str, remedy: str) -> Problem:
    return Problem(where="redis", path=path, message=message, remedy=remedy)


def report(url: str, settings: Settings, origin: Callable[..., str]) -> int:
    """Ask the Redis at ``url``, write every problem to standard error, and return the exit code that follows.

    Args:
        url: with the embedded server's socket in place of ``embedded``.
        settings: the configuration.
        origin: returns the place where a setting was written.
    """
    store = Store.connect(url, settings=settings.redis, name=f"{settings.cluster}:preflight")
    try:
        problems = check(store, settings)
        if not problems:
            note_cluster(store, settings.cluster, SystemClock().wall_ms())
    except StoreUnavailableError as error:
        log.warning("redis_unreachable", error=str(error))
        return EXIT_OK
    except StoreRefusedError as error:
        problems = [Problem("", "redis.url", str(error))]
    for problem in problems:
        placed = replace(problem, where=origin(*problem.path.split(".")))
        os.write(2, f"tenure: {placed}\n".encode())
    return EXIT_CONFIG if problems else EXIT_OK
