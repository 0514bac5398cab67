"""Every key that supervisor/store/keys.py spells, for tests that walk over all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial

from supervisor.core.model import Kind
from supervisor.store.key_table import PIECES
from supervisor.store.keys import Keys, LeaseKeys, QueueKeys

NAMES = {"kind": Kind.SYNC, "priority": 1}
_NO_KEYS = {"cluster", "prefix", "queue", "alive", "name", "leadership"}


def every_key(keys: Keys, *, queue: str = "broken") -> dict[str, str]:
    """Return each key by the name of what builds it; those of a queue are of ``queue``, the others of ``x``."""
    of_queue = {f"q.{name}": key for name, key in _built(keys.queue(queue)).items()}
    of_leadership = {f"leadership.{name}": key for name, key in _built(keys.leadership("x")).items()}
    return of_queue | of_leadership | _built(keys)


def _built(of: LeaseKeys | QueueKeys) -> dict[str, str]:
    found = {}
    for name, value in inspect.getmembers(of):
        if name.startswith("_") or name in _NO_KEYS:
            continue
        found[name] = _call(name, value) if callable(value) else value
    return found


def _call(key: str, builder: Callable[..., str]) -> str:
    if isinstance(builder, partial):
        return str(builder(*["x"] * (len(PIECES[key]) - 1)))
    names = list(inspect.signature(builder).parameters)
    return builder(*(NAMES.get(name, "x") for name in names))
