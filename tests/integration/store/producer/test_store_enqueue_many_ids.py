"""Code of the caller that enqueue_many executes, and that uses Tenure itself: a function for ids, types of arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from supervisor.store.producer.bulk import PartlyEnqueuedError, Totals
from supervisor.store.queues.runs import Queues
from tenure import job
from tests.integration.store.producer.shop import Shop

COUNT = 1203  # three batches: those after the first are packed while the one before is under way

Args = dict[str, Any]


@dataclass
class Month:
    """A type of arguments that looks at Redis to check its values."""

    number: int

    look: ClassVar[Callable[[], object]]

    def __post_init__(self) -> None:
        type(self).look()


def enqueues(shop: Shop) -> Callable[[Args], str]:
    """Return a function that has an audit enqueued for every run."""
    return lambda args: shop.producer.enqueue("report", {"month": 99}, run_id=f"audit-{args['month']}") + ":mail"


def enqueues_many(shop: Shop) -> Callable[[Args], str]:
    """Return one that enqueues many more of them."""

    def run_id(args: Args) -> str:
        audit = f"audit-{args['month']}"
        assert shop.producer.enqueue_many("report", [{"month": 99}], run_id=lambda _: audit).done == 1
        return f"{audit}:mail"

    return run_id


def asks(shop: Shop) -> Callable[[Args], str]:
    """Return one that looks at a queue."""

    def run_id(args: Args) -> str:
        shop.producer.run(Queues(shop.producer.keys).counts("default"))
        return f"audit-{args['month']}:mail"

    return run_id


@pytest.mark.parametrize("make", [enqueues, enqueues_many, asks])
def test_a_function_for_ids_that_uses_the_producer_gets_its_own_answers(shop: Shop, make: Any) -> None:
    """It read the reply to the batch that was under way as its own, on the connection of its thread."""
    totals = shop.producer.enqueue_many("report", ({"month": n} for n in range(COUNT)), run_id=make(shop))
    assert totals == Totals(new=COUNT)
    ids = {name.decode() for name in shop.calls.raw.hkeys(shop.calls.keys.queue("default").data)}
    assert {name for name in ids if name.endswith(":mail")} == {f"audit-{n}:mail" for n in range(COUNT)}
    assert len(ids) == (COUNT if make is asks else 2 * COUNT)


def test_a_type_of_arguments_that_uses_the_producer_gets_its_own_answers(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checks are done while a batch is under way, which they may not keep from its answer."""
    asked: list[int] = []
    monkeypatch.setattr(
        Month,
        "look",
        lambda: asked.append(shop.producer.run(Queues(shop.producer.keys).counts("default")).ready_total),
        raising=False,
    )

    @job("monthly", queue="default")
    async def monthly(month: Month) -> None: ...

    months = ({"month": {"number": n}} for n in range(COUNT))
    assert shop.producer.enqueue_many("monthly", months) == Totals(new=COUNT)
    assert len(asked) == COUNT
    shop.producer.close()
    assert shop.calls.run(shop.calls.queues.counts("default")).ready_total == COUNT


def test_a_function_for_ids_that_fails_says_what_is_in(shop: Shop) -> None:
    """As a source of arguments does that fails."""
    with pytest.raises(PartlyEnqueuedError, match=r"^700 runs were enqueued, nothing after them is in: 700$") as caught:
        shop.producer.enqueue_many(
            "report",
            ({"month": n} for n in range(COUNT)),
            run_id=lambda args: {n: f"m-{n}" for n in range(700)}[args["month"]],
        )
    assert caught.value.totals == Totals(new=700)
