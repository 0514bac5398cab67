"""Storage backends of ``cache``: the memory of a thread, or a Redis."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any, Protocol
from urllib.parse import quote

from pydantic import SecretStr

from supervisor.clock import Clock, SystemClock
from supervisor.compat.cloudforet.error import (
    ERROR_CACHE_CONFIGURATION,
    ERROR_CACHE_DECODE,
    ERROR_CACHE_ENCODE,
    ERROR_CACHE_OPTION,
)
from supervisor.core.units import SECOND_NS
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store

SIZE, TTL_S = 128, 86_400
SCAN_COUNT = 1000


class Backend(Protocol):
    """Storage of the values of one cache."""

    def get(self, key: str) -> Any:
        """Return the value of ``key``; None without one."""
        ...

    def set(self, key: str, value: Any, expire: int | None) -> bool:
        """Keep ``value``, for ``expire`` seconds if given."""
        ...

    def delete(self, *keys: str) -> int:
        """Forget ``keys``; return how many there were."""
        ...

    def delete_pattern(self, pattern: str) -> int:
        """Forget the keys that match a pattern of Redis; return how many there were."""
        ...


class LocalCache:
    """Values in the memory of this thread; the one that was set longest ago goes first."""

    def __init__(self, size: int = SIZE, ttl_s: float = TTL_S, clock: Clock | None = None) -> None:
        self._size = size
        self._ttl_ns = round(ttl_s * SECOND_NS)
        self._clock = clock or SystemClock()
        self._kept: OrderedDict[str, tuple[int, str]] = OrderedDict()

    def get(self, key: str) -> Any:
        """Return the value of ``key``; None without one."""
        until_ns, text = self._kept.get(key, (0, ""))
        if until_ns <= self._clock.elapsed_ns():
            self._kept.pop(key, None)
            return None
        return json.loads(text)

    def set(self, key: str, value: Any, expire: int | None) -> bool:
        """Keep ``value``, for ``expire`` seconds if given."""
        if expire is not None:
            raise ERROR_CACHE_OPTION(method="set", option="expire")
        self._kept.pop(key, None)
        self._kept[key] = (self._clock.elapsed_ns() + self._ttl_ns, _encoded(value))
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return True

    def delete(self, *keys: str) -> int:
        """Forget ``keys``; return how many there were."""
        return sum(self._kept.pop(key, None) is not None for key in keys)

    def delete_pattern(self, pattern: str) -> int:  # noqa: ARG002 - it has no keys of Redis
        """Refuse: nothing here is found by a pattern."""
        raise ERROR_CACHE_OPTION(method="delete_pattern", option="pattern")


class RedisCache:
    """Values in a Redis, which need not be Tenure's."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, key: str) -> Any:
        """Return the value of ``key``; None without one."""
        found = self._store.command("GET", key)
        try:
            return None if found is None else json.loads(found)
        except ValueError as error:
            raise ERROR_CACHE_DECODE(reason=type(error).__name__) from None

    def set(self, key: str, value: Any, expire: int | None) -> bool:
        """Keep ``value``, for ``expire`` seconds if given."""
        until = () if expire is None else ("EX", int(expire))
        return self._store.command("SET", key, _encoded({} if value is None else value), *until) is not None

    def count(self, key: str, amount: int) -> int:
        """Add to the number of ``key`` and return the sum."""
        return int(self._store.command("INCRBY", key, amount))

    def ttl(self, key: str) -> int:
        """Return for how many seconds ``key`` is kept."""
        return int(self._store.command("TTL", key))

    def delete(self, *keys: str) -> int:
        """Forget ``keys``; return how many there were."""
        return int(self._store.command("DEL", *keys)) if keys else 0

    def delete_pattern(self, pattern: str) -> int:
        """Forget the keys that match a pattern of Redis; return how many there were."""
        gone, cursor = 0, "0"
        while True:  # ends: SCAN returns to 0 after a walk through all slots
            raw, found = self._store.command("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT)
            gone += self.delete(*(key.decode() for key in found))
            cursor = raw.decode()
            if cursor == "0":
                return gone


def made(alias: str, entry: dict[str, Any]) -> Backend:
    """Return the backend that an entry of ``CACHES`` describes.

    Raises:
        ERROR_CACHE_CONFIGURATION: it is neither kind, or a value of it cannot be used.
    """
    kind = str(entry.get("engine") or entry.get("backend", "")).rpartition(".")[2]
    try:
        if kind == "LocalCache":
            return LocalCache(int(entry.get("max_size", SIZE)), float(entry.get("ttl", TTL_S)))
        if kind == "RedisCache":
            return RedisCache(connected(entry))
    except (TypeError, ValueError):
        pass
    raise ERROR_CACHE_CONFIGURATION(alias=alias)


def _encoded(value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ERROR_CACHE_ENCODE(reason=type(error).__name__) from None


def connected(entry: dict[str, Any]) -> Store:
    """Return a client of the server that an entry of ``CACHES`` names, in the words of redis-py.

    Raises:
        ValueError: port or database is no number.
    """
    host = str(entry.get("host", "localhost"))
    host = f"[{host}]" if ":" in host else quote(host, safe="")
    scheme = "rediss" if entry.get("ssl") else "redis"
    url = f"{scheme}://{host}:{int(entry.get('port', 6379))}/{int(entry.get('db', 0))}"
    password = entry.get("password")
    settings = RedisSettings(
        url=SecretStr(url), username=entry.get("username"), password=None if password is None else SecretStr(password)
    )
    return Store.connect(url, settings=settings, name="cloudforet:cache")
