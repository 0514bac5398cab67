"""Operations: one function for each thing a person can ask, whichever door it comes through.

Guarantees
    An operation does no I/O: it is a generator that yields calls of the store, a ``Delay``, or a
    ``Computing``, and is sent the replies.
    It ends with a typed result, or raises a TenureError whose ``exit_code`` and ``http_status`` the doors pass on.
    The command drives it with a blocking client that repeats calls, the HTTP API with an asynchronous one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from supervisor.core.effects import Call
from supervisor.core.errors import EXIT_USAGE, TenureError
from supervisor.store.keys import Keys

PAGES_MAX = 100_000
T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Delay:
    """Effect of an operation: nothing is done for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Computing:
    """Effect of an operation: items are computed, which may take long; a door does it beside what else it serves."""

    items: Iterator[Any]


Effect: TypeAlias = Call[Any] | Delay | Computing
Operation: TypeAlias = Generator[Effect, Any, T]
Request: TypeAlias = Callable[Concatenate[Keys, P], Operation[T]]
"""An operation, before it is given the keys of the cluster and its own arguments."""

Tell: TypeAlias = Callable[[int], object]
"""Is told the progress of a long operation: how many of its items are done."""


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


def one(call: Call[T]) -> Operation[T]:
    """Make one call and return its reply."""
    result: T = yield call
    return result


def untold(_done: int) -> None:
    """Take the progress of an operation, for nobody."""


def pages(
    read: Callable[[str], Call[Any]], *, keep: Callable[[T], bool] | None = None, count: int | None = None
) -> Operation[list[T]]:
    """Read a list page by page and return its items that ``keep`` takes; one that moves meanwhile may be there twice.

    ``read`` builds the call for the page at a cursor; a page has ``items``, and the ``cursor`` of the next. With
    ``count`` so many are enough; the list may be longer by less than a page.
    """
    found: list[T] = []
    cursor = "0"
    for _ in range(PAGES_MAX):
        page = yield read(cursor)
        found += page.items if keep is None else filter(keep, page.items)
        cursor = page.cursor
        if cursor == "0" or (count is not None and len(found) >= count):
            break
    return found
