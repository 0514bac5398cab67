"""Short words for tests of limits, and what must hold of limits at any moment."""

from __future__ import annotations

from typing import Any

from supervisor.core.jobs.limits import limits_of
from supervisor.core.model import Envelope
from supervisor.store.queues.runs import Enqueued
from supervisor.store.wire.envelope import unpack
from tests.kit.builders import StoreCalls, envelope


def unique(run_id: str, key: str = "k", **template: Any) -> Envelope:
    """Return a run of which there may be one with this key."""
    return envelope(run_id, unique=key, **template)


def limited(run_id: str, most: int = 1, key: str = "k", **template: Any) -> Envelope:
    """Return a run of which ``most`` with this key may run at once."""
    return envelope(run_id, concurrency=key, concurrency_max=most, **template)


def rated(run_id: str, count: int = 1, per_ms: int = 60_000, key: str = "k", **template: Any) -> Envelope:
    """Return a run of which ``count`` with this key may start in ``per_ms``."""
    return envelope(run_id, rate=key, rate_count=count, rate_per_ms=per_ms, **template)


def put(world: StoreCalls, *envelopes: Envelope, nonce: str) -> list[Enqueued]:
    """Enqueue, and return all that the reply says."""
    reply: list[Enqueued] = world.run(world.queues.enqueue(nonce=nonce, envelopes=envelopes))
    return reply


def limit_keys(world: StoreCalls) -> set[str]:
    """Return which keys there are because of limits, without their prefix."""
    prefix = world.keys.prefix
    names = {key.decode()[len(prefix) :] for key in world.raw.keys(f"{prefix}*")}
    parts = ("limits", "blocked", "woken")
    return {name for name in names if name.startswith("limit:") or ":wait:" in name or name.endswith(parts)}


def broken_limits(world: StoreCalls, queues: tuple[str, ...]) -> list[str]:
    """Return what does not hold of the limits: each holder runs, each that runs holds, none is above its limit."""
    wrong, holders = [], {}
    for queue in queues:
        keys = world.keys.queue(queue)
        running = world.raw.hkeys(keys.run)
        for run_id in running:
            data = world.raw.hget(keys.data, run_id)
            limits = limits_of(unpack(data).template) if data else None
            if limits and limits.concurrency:
                holders.setdefault(limits.concurrency, {})[f"{queue} {run_id.decode()}".encode()] = (
                    limits.concurrency_max
                )
        blocked = world.raw.hgetall(f"{keys.prefix}blocked")
        for run_id, key in blocked.items():
            if run_id not in world.raw.lrange(f"{keys.prefix}wait:{key.decode()}", 0, -1):
                wrong.append(f"{run_id} is blocked and waits nowhere")
            if run_id in running:
                wrong.append(f"{run_id} is blocked and runs")
    for name in limit_keys(world):
        if name.startswith("limit:c:"):
            key = name.removeprefix("limit:c:")
            members = world.raw.smembers(f"{world.keys.prefix}{name}")
            if members != set(holders.get(key, {})):
                wrong.append(f"{key}: held by {members}, run: {holders.get(key)}")
            if len(members) > max(holders.get(key, {b"": 0}).values()):
                wrong.append(f"{key}: {len(members)} hold it")
            holders.pop(key, None)
    return wrong + [f"{key} is held by nobody, run: {runs}" for key, runs in holders.items()]
