"""Bounds of the work that one question about due times takes, whatever a definition is made of.

A look is one trigger or one exclusion that is asked once: 1 to 5 µs. With 100 triggers and 1,000 exclusions in one
definition, and thousands of due times in one question, a leader would be busy until it is killed as hanging.

Guarantees
    A question takes at most ``LOOKS_MAX`` looks, with all the questions that it asks in turn.
    Each thread and each task counts for itself.

Does not guarantee
    Anything for schedules with one trigger and no exclusion: one look is their whole answer, and nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

from supervisor.core.calendars.days import OverExcludedError

LOOKS_MAX = 100_000
"""Looks of one question: 0.1 to 0.5 s of a leader, which shows a sign of life between two schedules."""

P = ParamSpec("P")
R = TypeVar("R")


class SearchLimitError(OverExcludedError):
    """A question about due times takes more looks than it may."""


_left: ContextVar[int | None] = ContextVar("looks that are left of a question", default=None)


def spend(looks: int) -> None:
    """Take so many looks of the question that is being answered; outside of one, nothing is counted.

    Raises:
        SearchLimitError: there are not so many left.
    """
    left = _left.get()
    if left is not None:
        _left.set(left - looks)
        if left < looks:
            raise SearchLimitError(_MESSAGE)


def limit_search(function: Callable[P, R]) -> Callable[P, R]:
    """Bound the work of a function; called while another question is answered, it is a part of that one."""

    @wraps(function)
    def bounded(*args: P.args, **kwargs: P.kwargs) -> R:
        if _left.get() is not None:
            return function(*args, **kwargs)
        _left.set(LOOKS_MAX)
        try:
            return function(*args, **kwargs)
        finally:
            _left.set(None)

    return bounded


_MESSAGE = (
    f"over-excluded: due times take more than {LOOKS_MAX} looks at triggers and exclusions; use fewer of them, or "
    "exclude less"
)
