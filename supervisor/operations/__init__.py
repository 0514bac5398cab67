"""Operations: one function for each thing a person can ask, whichever door it comes through.

Guarantees
    An operation does no I/O: it is a generator that yields calls of the store and is sent their replies. It ends
    with a typed result, or raises a TenureError whose ``exit_code`` and ``http_status`` the doors pass on.
    The command drives it with a blocking client that repeats calls, the HTTP API with an asynchronous one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from supervisor.core.errors import EXIT_USAGE, TenureError
from supervisor.store.scripts import Call

T = TypeVar("T")
Operation: TypeAlias = Generator[Call[Any], Any, T]


class InvalidRequestError(TenureError):
    """A field of a request that cannot be used; nothing was changed."""

    exit_code = EXIT_USAGE
    http_status = 400

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field
        self.problem = problem


def checked_reason(reason: str, longest: int) -> str:
    """Return ``reason`` if it can be kept whole: a part of it may mean the opposite.

    Raises:
        InvalidRequestError: it has more than ``longest`` characters.
    """
    if len(reason) > longest:
        raise InvalidRequestError("reason", f"has {len(reason)} characters; at most {longest} are kept")
    return reason


def slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield ``items`` in order, ``size`` at a time: as many as one call takes."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
