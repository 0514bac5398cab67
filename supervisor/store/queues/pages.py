"""Pages of queues: of which something is executed, and in which runs wait that nobody takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from supervisor.core.model import Kind
from supervisor.store.keys import LETTER_KIND, valid_names
from supervisor.store.wire.codec import chunks, number, text, texts


@dataclass(frozen=True, slots=True)
class QueuePage:
    """Some of the queues. ``cursor`` "0": the last page. One may come on two pages."""

    cursor: str
    items: list[str]


@dataclass(frozen=True, slots=True)
class UnservedQueue:
    """Runs that wait where no live worker of any replica takes them."""

    queue: str
    kind: Kind
    waiting: int  # some of them may have been cancelled since

    def __str__(self) -> str:
        """Render for people."""
        return f"{self.waiting} {self.kind.value} runs in queue {self.queue}"


@dataclass(frozen=True, slots=True)
class UnservedPage:
    """Some of them. ``cursor`` "0": the last page. One may come on two pages."""

    cursor: str
    items: list[UnservedQueue]


def parse_unserved(reply: Any) -> UnservedPage:
    """Parse the reply of ``queues_unserved``."""
    found = [
        UnservedQueue(text(queue), LETTER_KIND[text(letter)], number(count))
        for queue, letter, count in chunks(reply[1:], 3)
    ]
    return UnservedPage(text(reply[0]), found)


def parse_queues(reply: Any) -> QueuePage:
    """Parse the reply of ``queues_executing``."""
    cursor, *names = reply
    return QueuePage(text(cursor), valid_names(texts(names)))
