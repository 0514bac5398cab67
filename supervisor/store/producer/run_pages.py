"""Pages of the children of a run: their states and results in the order in which they were spawned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from supervisor.store.producer.run_status import RunStatus

CHILDREN_PAGE_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRun:
    """One child of a run."""

    status: RunStatus
    result: Any = None
    """Its result, where it was asked for and is kept."""

    has_result: bool = False
    """True if ``result`` is what the child returned, also if that is None."""


@dataclass(frozen=True, slots=True)
class ChildPage:
    """Some of the numbered children of a run. Children with keys of their own are asked for by their ids."""

    items: tuple[ChildRun, ...]
    next: int | None
    """``start`` of the next page; None: this is the last."""


def checked_page(start: int, limit: int) -> range:
    """Return the numbers of a page.

    Raises:
        ValueError: one of them is out of its range.
    """
    if start < 0 or not 1 <= limit <= CHILDREN_PAGE_MAX:
        raise ValueError(
            f"start must be 0 or more and limit 1 to {CHILDREN_PAGE_MAX}, got start {start} and limit {limit}"
        )
    return range(start, start + limit)
