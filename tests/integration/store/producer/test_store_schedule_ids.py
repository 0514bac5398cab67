"""Ids that a caller chooses, and those that schedules give their runs."""

from __future__ import annotations

import asyncio

import pytest

from supervisor.store.producer.bulk import Totals
from supervisor.store.queues.runs import Enqueued
from tenure.errors import RunIdTakenError
from tests.integration.store.producer.shop import Shop
from tests.kit.builders import schedule

REFUSED = (
    r"run id {} is taken by schedule s, .*choose another run_id \(s:…, for instance\), or use tenure schedule trigger"
)


@pytest.fixture
def scheduled(shop: Shop) -> Shop:
    """The program, beside a schedule ``s``."""
    shop.calls.run(shop.calls.declare_call(shop.calls.lead(), schedule("s")))
    return shop


@pytest.mark.parametrize("run_id", ["s@1795767330000", "s@1", "s@7#2", "s!initial", "s!changed!0a1b"])
def test_an_id_that_a_schedule_gives_its_runs_is_refused(scheduled: Shop, run_id: str) -> None:
    """Its due time would find its id taken, and what becomes of the run would be told of the schedule."""
    producer, refused = scheduled.producer, REFUSED.format(run_id)
    with pytest.raises(RunIdTakenError, match=refused) as caught:
        producer.enqueue("report", {"month": 7}, run_id=run_id, delay="366d")
    assert caught.value.http_status == 409

    async def put() -> None:
        with pytest.raises(RunIdTakenError, match=refused):
            await producer.enqueue_async("report", {"month": 7}, run_id=run_id)
        await producer.close_async()

    asyncio.run(put())
    assert scheduled.calls.state(run_id) == "unknown"
    assert scheduled.calls.run(scheduled.calls.queues.counts("default")).stats == {"in": 0}


@pytest.mark.parametrize(
    "run_id", ["s", "s:1", "t@1", "S@1", "s/1@2", "a:s@1", "@s", "!s", "ss!initial", "s@example.com"]
)
def test_any_other_id_is_as_good_as_before(scheduled: Shop, run_id: str) -> None:
    """Whatever characters it holds: what stands before the first @ or ! is compared as a whole, and so is what follows."""
    assert scheduled.producer.put("report", {"month": 7}, run_id=run_id).is_new


@pytest.mark.parametrize("own", ["s@1795767330000", "s@7#2", "s!initial", "s!changed!0a1b", "s!manual!deploy-42"])
@pytest.mark.parametrize("more", [":7", "-mail", "/7", ".7", "@7"])
def test_a_job_of_a_schedule_makes_ids_of_the_id_of_its_own_run(scheduled: Shop, own: str, more: str) -> None:
    """So each attempt of it enqueues the same runs once. `enqueue_many` only counted them as taken: they were lost."""
    totals = scheduled.producer.enqueue_many("report", [{"month": 7}], run_id=lambda _: own + more)
    assert totals == Totals(new=1)
    assert not scheduled.producer.put("report", {"month": 7}, run_id=own + more).is_new


def test_of_many_runs_those_with_an_id_of_a_schedule_are_counted_apart(scheduled: Shop) -> None:
    """The others are in, and the caller learns that some are not."""
    answers: list[Enqueued] = []
    many = [{"month": month} for month in range(1, 4)]
    ids = ["s@1", "mine", "t@2"]
    totals = scheduled.producer.enqueue_many(
        "report", many, run_id=lambda args: ids[args["month"] - 1], each=answers.extend
    )

    assert totals == Totals(new=2, taken=1)
    assert [(each.is_taken, each.schedule) for each in answers] == [(True, "s"), (False, ""), (False, "")]


def test_a_call_that_is_repeated_after_the_schedule_came_is_answered_as_before(shop: Shop) -> None:
    """Its run is in, and enqueues nothing a second time."""
    assert shop.producer.put("report", {"month": 7}, run_id="s@1").is_new
    shop.calls.run(shop.calls.declare_call(shop.calls.lead(), schedule("s")))

    again = shop.producer.put("report", {"month": 7}, run_id="s@1")
    assert (again.is_new, again.is_taken) == (False, False)


def test_a_key_of_another_type_in_the_place_of_the_schedules_refuses_no_run(shop: Shop) -> None:
    """Enqueueing depends on keys of queues alone."""
    shop.calls.raw.set(shop.calls.keys.schedule_def, "theirs")
    assert shop.producer.put("report", {"month": 7}, run_id="s@1").is_new
