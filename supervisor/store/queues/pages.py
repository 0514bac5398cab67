"""Pages of long lists, and those of queues: executing ones, and those in which runs wait that nobody takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, TypeAlias, TypeVar

from supervisor.core.model import Kind
from supervisor.core.names import valid_names
from supervisor.store.keys import LETTER_KIND
from supervisor.store.wire.codec import chunks, text, texts

T = TypeVar("T")
ServedKinds: TypeAlias = dict[str, tuple[Kind, ...]]
"""Kinds of runs that live workers take, by queue; a queue that is not in it is served by none."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of the items of a long list. ``cursor`` "0": the last page. One may come on two pages."""

    cursor: str
    items: list[T]


class Served(IntEnum):
    """Presence of live workers for a queue."""

    NO_CLUSTER = -1
    """No replica of the cluster was ever seen."""

    NO = 0
    YES = 1


@dataclass(frozen=True, slots=True)
class UnservedQueue:
    """Runs that wait where no live worker of any replica takes them."""

    queue: str
    kind: Kind
    waiting: int  # some of them may have been cancelled since

    def __str__(self) -> str:
        """Render for people."""
        return f"{self.waiting} {self.kind.value} runs in queue {self.queue}"


def paged(size: int, item: Callable[..., T]) -> Callable[[Any], Page[T]]:
    """Return a parser of replies that hold a cursor and then ``size`` values for each item, of which it is made."""
    return lambda reply: Page(text(reply[0]), [item(*values) for values in chunks(reply[1:], size)])


def parse_served_kinds(reply: Any) -> ServedKinds:
    """Parse the reply of ``queues_served``."""
    found: dict[str, list[Kind]] = {}
    for queue, letter in chunks(reply, 2):
        found.setdefault(text(queue), []).append(LETTER_KIND[text(letter)])
    return {queue: tuple(sorted(kinds)) for queue, kinds in found.items()}


def parse_queues(reply: Any) -> Page[str]:
    """Parse the reply of ``queues_executing``."""
    cursor, *names = reply
    return Page(text(cursor), valid_names(texts(names)))
