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
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from supervisor.compat.cloudforet import config
from supervisor.compat.cloudforet.cache_backends import Backend, RedisCache, made
from supervisor.compat.cloudforet.error import ERROR_CACHE_CONFIGURATION, ERROR_CACHE_KEY_FORMAT, ERROR_CACHE_OPTION

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
