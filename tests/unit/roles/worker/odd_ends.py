"""Jobs that end in ways that are hard to look at, and what hooks are told of each."""

from __future__ import annotations

import sys
from typing import Any

from tenure import Again


class Table:
    """Compares each of its cells, as an array or a table of data does."""

    def __eq__(self, other: object) -> Any:
        raise ValueError("the truth value of a table is ambiguous")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Table()"  # the same in each worker of pytest

    def __str__(self) -> str:
        return "a table"


class Unreadable(Again):
    """Cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


ENDS: dict[type[BaseException], str] = {
    ValueError: "failed ValueError: no luck",
    SystemExit: "failed SystemExit: a table",
    Unreadable: "again <Unreadable that cannot be shown: RuntimeError>",
}


def fails() -> None:
    """Fail."""
    raise ValueError("no luck")


def exits_with_an_array() -> None:
    """Exit by what its main function returned."""
    sys.exit(Table())  # type: ignore[arg-type]


def asks_again_unreadably() -> None:
    """Ask for another time by what cannot be shown."""
    raise Unreadable(5)
