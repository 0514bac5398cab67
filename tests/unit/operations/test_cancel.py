"""Cancelling runs: replies are written here, and no Redis answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from supervisor.core.effects import Call, drive
from supervisor.core.errors import ArgumentsError
from supervisor.operations.runs import InvalidRunError, UnknownRunError, cancel, checked_runs
from supervisor.store.keys import Keys
from supervisor.store.queues.control import PAGE, CancelCode, Cancelled
from supervisor.store.queues.reads import Page

KEYS = Keys("c1")


@pytest.mark.parametrize("run", [("", "a b"), ("", ""), ("a:b", "r-1"), ("", "r" * 256)])
def test_a_run_or_queue_that_cannot_be_is_refused_before_any_is_ended(run: tuple[str, str]) -> None:
    """As a mistake of who asks, at either door."""
    with pytest.raises(InvalidRunError) as caught:
        drive(cancel(KEYS, [("", "r-0"), run], history=9, by="kim"), lambda _call: pytest.fail("Redis was asked"))
    assert (caught.value.exit_code, caught.value.http_status) == (2, 400)


def test_any_number_of_runs_is_cancelled_in_their_order_each_once() -> None:
    """In calls that keep the server busy for a moment only."""
    names = [f"r-{number}" for number in range(PAGE + 1)]
    sizes: list[int] = []

    def cancelled(call: Call[Any]) -> Any:
        sizes.append(len([word for word in call.args if str(word).startswith("r-")]))
        return [Cancelled(CancelCode.CANCELLED, "default", 0)] * sizes[-1]

    done = drive(cancel(KEYS, [("", name) for name in [*names, "r-3"]], history=9, by="kim"), cancelled)
    assert [run_id for (_, run_id), _ in done] == names
    assert sizes == [PAGE, 1]
    assert checked_runs([("", "r"), ("q", "r"), ("", "r")]) == [("", "r"), ("q", "r")]


def test_a_run_that_nobody_knows_is_not_permitted_to_anybody() -> None:
    """A limited token ends only what it was shown."""

    def refuse(_job: str, _queue: str, _labels: Mapping[str, str]) -> None:
        raise ArgumentsError("not yours")

    def absent(call: Call[Any]) -> Page[Any]:
        assert call.script == "run_show"
        return Page("0", [None])

    with pytest.raises(UnknownRunError):
        drive(cancel(KEYS, [("", "r-1")], history=9, by="kim", permit=refuse), absent)
