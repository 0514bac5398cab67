"""``cache``, as Cloudforet's services call it: JSON under keys, in the Redis or the memory that ``CACHES`` names.

Guarantees
    Keys and values are those of the original, so that services that moved and services that did not share them.
    A process keeps at most ``max_size`` values of a cache in memory.

Does not guarantee
    That ``increment`` keeps a time to live: counters belong into a key that was set with one.
"""

from __future__ import annotations

import functools
import inspect
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import SecretStr

from supervisor.clock import Clock, SystemClock
from supervisor.compat.cloudforet import config
from supervisor.compat.cloudforet.error import (
    ERROR_CACHE_CONFIGURATION,
    ERROR_CACHE_DECODE,
    ERROR_CACHE_ENCODE,
    ERROR_CACHE_KEY_FORMAT,
    ERROR_CACHE_OPTION,
)
from supervisor.core.units import SECOND_NS
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT = "default"
_open = threading.local()


def is_set(alias: str = DEFAULT) -> bool:
    """Return whether ``CACHES`` configures the cache ``alias``."""
    return bool((config.get_global("CACHES") or {}).get(alias))


def get(key: str, *, alias: str = DEFAULT) -> Any:
    """Return the value of ``key``; None without one."""
    return _backend(alias).get(key)


def set(key: str, value: Any, expire: int | None = None, *, alias: str = DEFAULT) -> bool:  # noqa: A001 - their name
    """Keep ``value`` under ``key``, for ``expire`` seconds if given."""
    return _backend(alias).set(key, value, expire)


def increment(key: str, amount: int = 1, *, alias: str = DEFAULT) -> int:
    """Add ``amount`` to the number of ``key`` and return the sum."""
    return _redis(alias, "increment").count(key, amount)


def decrement(key: str, amount: int = 1, *, alias: str = DEFAULT) -> int:
    """Take ``amount`` from the number of ``key`` and return the rest."""
    return _redis(alias, "decrement").count(key, -amount)


def ttl(key: str, *, alias: str = DEFAULT) -> int:
    """Return for how many seconds ``key`` is kept; -1: for ever, -2: there is none."""
    return _redis(alias, "ttl").ttl(key)


def delete(*keys: str, alias: str = DEFAULT) -> int:
    """Forget ``keys``; return how many there were."""
    return _backend(alias).delete(*keys)


def delete_pattern(pattern: str, *, alias: str = DEFAULT) -> int:
    """Forget the keys that match a pattern of Redis; return how many there were."""
    return _backend(alias).delete_pattern(pattern)


def cacheable(
    key: str, value: str | None = None, expire: int | None = None, action: str = "cache", alias: str = DEFAULT
) -> Callable[[F], Any]:
    """Keep the result of a function under a key made of its arguments, where the cache is configured.

    Args:
        key: with ``{names}`` of arguments.
        value: keep only this key or attribute of the result.
        expire: seconds.
        action: ``cache`` returns the kept value; ``put`` keeps anew at each call; ``delete`` forgets after the call.
        alias: the cache, of ``CACHES``.
    """

    def wrap(function: F) -> Any:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if not is_set(alias):
                return function(*args, **kwargs)
            name = _key(key, signature, args, kwargs)
            if action == "cache" and (kept := get(name, alias=alias)) is not None:
                return kept
            found = function(*args, **kwargs)
            if action == "delete":
                delete(name, alias=alias)
            else:
                set(name, _part(found, value), expire, alias=alias)
            return found

        return called

    return wrap


def _part(found: Any, value: str | None) -> Any:
    if value is None:
        return found
    return found.get(value) if isinstance(found, dict) else getattr(found, value)


def _key(key: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    lists = (list, tuple)
    values = {
        name: ",".join(sorted(map(str, each))) if isinstance(each, lists) else each
        for name, each in bound.arguments.items()
    }
    try:
        return key.format(**values)
    except (KeyError, IndexError, AttributeError, ValueError):
        raise ERROR_CACHE_KEY_FORMAT(key=key) from None


def _redis(alias: str, method: str) -> RedisCache:
    backend = _backend(alias)
    if not isinstance(backend, RedisCache):
        raise ERROR_CACHE_OPTION(method=method, option="place in memory")
    return backend


def _backend(alias: str) -> Backend:
    """Return the cache ``alias``, opened once in each thread: a connection serves one."""
    entry = (config.get_global("CACHES") or {}).get(alias)
    if not isinstance(entry, dict) or not entry:
        raise ERROR_CACHE_CONFIGURATION(alias=alias)
    opened: dict[str, tuple[dict[str, Any], Backend]] = _open.__dict__.setdefault("caches", {})
    before = opened.get(alias)
    if before is None or before[0] != entry:
        opened[alias] = (entry, made(alias, entry))
    return opened[alias][1]


SIZE, TTL_S = 128, 86_400
SCAN_COUNT = 1000


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


Backend = LocalCache | RedisCache


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
