"""Bounds of the work that one question about due times takes, whatever a definition is made of.

A look is one trigger or one exclusion that is asked once: 1 to 5 µs. With 100 triggers and 1,000 exclusions in one
definition, and thousands of due times in one question, a leader would be busy until it is killed as hanging. So it
would where due times move over thousands of years, or come of 100 zones: each table of a zone counts as many looks.

Guarantees
    A question takes at most ``LOOKS_MAX`` looks, with all the questions that it asks in turn.
    It has tables of zones made for at most ``LOOKS_MAX // TABLE_LOOKS`` stretches of four years.
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
from supervisor.core.cron.zones import table_reader

LOOKS_MAX = 100_000
"""Looks of one question: 0.1 to 0.5 s of a leader, which shows a sign of life between two schedules."""

TABLE_LOOKS = 400
"""Looks that a table of a zone counts, once for each question: 0.7 ms where it is not made yet."""

P = ParamSpec("P")
R = TypeVar("R")


class SearchLimitError(OverExcludedError):
    """A question about due times takes more looks than it may."""


class _Question:
    """One question: the looks that are left of it, and the tables of zones that it has read."""

    __slots__ = ("left", "tables")

    def __init__(self) -> None:
        self.left = LOOKS_MAX
        self.tables: set[tuple[str, int]] = set()

    def spend(self, looks: int) -> None:
        self.left -= looks
        if self.left < 0:
            raise SearchLimitError(_MESSAGE)

    def read_table(self, zone: str, block: int) -> None:
        if (zone, block) not in self.tables:
            self.tables.add((zone, block))
            self.spend(TABLE_LOOKS)


_question: ContextVar[_Question | None] = ContextVar("question about due times", default=None)


def spend(looks: int) -> None:
    """Take so many looks of the question that is being answered; outside of one, nothing is counted.

    Raises:
        SearchLimitError: there are not so many left.
    """
    question = _question.get()
    if question is not None:
        question.spend(looks)


def limit_search(function: Callable[P, R]) -> Callable[P, R]:
    """Bound the work of a function; called while another question is answered, it is a part of that one."""

    @wraps(function)
    def bounded(*args: P.args, **kwargs: P.kwargs) -> R:
        if _question.get() is not None:
            return function(*args, **kwargs)
        question = _Question()
        _question.set(question)
        table_reader.set(question.read_table)
        try:
            return function(*args, **kwargs)
        finally:
            _question.set(None)
            table_reader.set(None)

    return bounded


_MESSAGE = (
    f"over-excluded: due times take more than {LOOKS_MAX} looks at triggers, exclusions and years of zones; use fewer "
    "of them, or exclude less"
)
