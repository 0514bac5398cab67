"""What is looked for in a cache."""

from __future__ import annotations

from supervisor.store.producer.producer import Producer


def raw_keys(producer: Producer) -> list[str]:
    """Return what is kept in Redis for functions, without the prefix."""
    with_prefix = producer._store().raw.keys(f"{producer.keys.prefix}cache:*")
    return sorted(key.decode().removeprefix(f"{producer.keys.prefix}cache:") for key in with_prefix)


def is_lease_over(producer: Producer, function: str, key: str) -> bool:
    """Say whether others may compute a call that is being computed."""
    raw = producer._store().raw
    seconds, micros = raw.time()
    until_ms = raw.hget(producer.keys.cache_take(function, key), "until")
    return until_ms is not None and int(until_ms) < 1000 * seconds + micros // 1000
