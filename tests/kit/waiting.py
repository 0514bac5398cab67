"""The one way in which tests wait: for what they need to be true, with a generous bound, never for a duration."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from supervisor.clock import SystemClock
from supervisor.core.errors import StoreUnavailableError

WAIT_S_MAX = 60.0  # generous: the machine may be busy with other tests
LOOK_S = 0.01
TRIES_MAX = 50
_CLOCK = SystemClock()


def wait_until(predicate: Callable[[], Any], what: str = "", *, bound_s: float = WAIT_S_MAX) -> Any:
    """Return the first true value of ``predicate``; fail the test after ``bound_s``."""
    until_ns = _CLOCK.elapsed_ns() + int(bound_s * 1e9)
    while not (found := predicate()):
        assert _CLOCK.elapsed_ns() < until_ns, f"waited {bound_s:g} s in vain for {what or predicate}"
        threading.Event().wait(LOOK_S)
    return found


def answered(call: Callable[[], Any]) -> Any:
    """Return what ``call`` returns, for bounds of its own that are short for a busy machine: made again without answer."""
    for _ in range(TRIES_MAX):
        with suppress(StoreUnavailableError):
            return call()
    raise AssertionError(f"no answer in {TRIES_MAX} tries")


def linger() -> None:
    """Block until a signal raises. Anew every 5 s: one that comes just before a wait in C begins does not end that."""
    while True:
        threading.Event().wait(5)
