"""Operations on queues and long lists: replies are written here, and no Redis answers."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.effects import drive
from supervisor.operations import InvalidRequestError, pages
from supervisor.operations.queues import UnknownQueueError, known, pause
from supervisor.store.keys import Keys
from supervisor.store.queues.control import REASON_MAX
from supervisor.store.queues.reads import Page

KEYS = Keys("c1")


def used(_call: Any) -> list[str]:
    return ["default", "reports"]


def test_a_queue_is_known_by_use_or_by_configuration() -> None:
    """A typing mistake must not make a queue; the nearest is named."""
    assert drive(known(KEYS, ["reports", "fresh", "reports"], {"fresh"}), used) == ["reports", "fresh"]
    assert drive(known(KEYS, []), used) == ["default", "reports"]
    with pytest.raises(UnknownQueueError, match="did you mean reports") as caught:
        drive(known(KEYS, ["report"]), used)
    assert (caught.value.exit_code, caught.value.http_status) == (1, 404)


def test_a_reason_that_would_be_cut_pauses_nothing() -> None:
    """It is refused before the first call."""
    with pytest.raises(InvalidRequestError, match="at most"):
        drive(pause(KEYS, ["default"], by="kim", reason="x" * (REASON_MAX + 1)), pytest.fail)


@pytest.mark.parametrize(("count", "read"), [(None, 3), (2, 1), (3, 2)])
def test_a_list_is_read_by_pages_until_enough_is_there(count: int | None, read: int) -> None:
    """And no page more is asked for: a queue can hold ten thousand dead runs."""
    replies = [Page("7", [1, 2]), Page("9", [3, 4]), Page("0", [5])]
    asked: list[Any] = []

    def reply(call: Any) -> Page[int]:
        asked.append(call)
        return replies[len(asked) - 1]

    found = drive(pages(lambda cursor: cursor, count=count), reply)  # type: ignore[arg-type,return-value]
    assert (asked, found) == (["0", "7", "9"][:read], [1, 2, 3, 4, 5][: 2 * read])


def test_only_what_is_kept_counts() -> None:
    """A filter goes on to the next page until it has found enough."""
    replies = iter([Page("7", [1, 2]), Page("0", [4])])
    even = pages(lambda cursor: cursor, keep=lambda number: number % 2 == 0, count=2)  # type: ignore[arg-type,return-value]
    assert drive(even, lambda _call: next(replies)) == [2, 4]
