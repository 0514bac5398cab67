"""Many runs at once: every one counted, in order, and an exact answer when it stops half-way."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from supervisor.core.errors import ArgumentsError, PayloadTooLargeError, QueueFullError, StoreUnavailableError
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Template
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.producer.bulk import PartlyEnqueuedError, Totals
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.runs import Enqueued, Queues
from supervisor.store.queues.sessions import Sessions
from tenure import job
from tests.kit.servers import Server

SENT: list[tuple[str, int]] = []


@pytest.fixture
def subject(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Producer]:
    """A producer of one job on the test's server."""
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", Registry())
    SENT.clear()

    @job("mail", queue="mail")
    async def mail(number: int, text: str = "") -> None: ...

    def count(template: Template, new: int) -> None:
        SENT.append((template.job, new))

    producer = Producer(
        RedisSettings(),
        cluster=server.keys.cluster,
        open_store=server.store,
        open_async_store=server.async_store,
        on_enqueued=count,
    )
    yield producer
    producer.close()


def numbers(count: int, **more: Any) -> Iterator[dict[str, Any]]:
    """Return arguments, one after the other."""
    return ({"number": number, **more} for number in range(count))


def ready(server: Server) -> list[Any]:
    """Return the numbers of what is in the queue, in its order."""
    store, queue = server.store(), server.keys.queue("mail")
    ids = [item.decode() for item in store.raw.lrange(queue.prefix + "ready:a:1", 0, -1)]
    views = [store.run(Queues(server.keys).show(run_id)) for run_id in ids]
    return [view.envelope.template.args["number"] for view in views if view is not None]


def test_they_are_in_their_order_and_counted(server: Server, subject: Producer) -> None:
    """Over the borders of batches."""
    assert subject.enqueue_many("mail", numbers(1203)) == Totals(new=1203)

    assert server.store().run(Queues(server.keys).counts("mail")).ready_total == 1203
    assert SENT == [("mail", 500), ("mail", 500), ("mail", 203)]


async def test_the_asynchronous_way_does_the_same(server: Server, subject: Producer) -> None:
    """And gives the ids of each batch to who wants them."""
    seen: list[Enqueued] = []

    totals = await subject.enqueue_many_async("mail", numbers(503), priority="high", each=seen.extend)
    await subject.close_async()

    assert (totals.new, len({one.run_id for one in seen})) == (503, 503)
    assert server.store().run(Queues(server.keys).show(seen[-1].run_id)).envelope.template.args == {"number": 502}  # type: ignore[union-attr]


def test_nothing_is_nothing(server: Server, subject: Producer) -> None:
    """No call, no error."""
    assert subject.enqueue_many("mail", []) == Totals()
    assert SENT == []


def test_a_repeated_call_with_ids_of_its_own_enqueues_none_twice(server: Server, subject: Producer) -> None:
    """The way to go on after an error, and to import the same file again."""

    def named(args: Any) -> str:
        return f"import-{args['number']}"

    first = subject.enqueue_many("mail", numbers(5), run_id=named, delay="5m", queue="bulk")
    second = subject.enqueue_many("mail", numbers(7), run_id=named, delay="5m", queue="bulk")

    assert (first, second) == (Totals(new=5), Totals(new=2, present=5))
    assert server.store().run(Queues(server.keys).counts("bulk")).later == 7


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ({"number": "many"}, ArgumentsError),
        ({"nobody": 1}, ArgumentsError),
        ({"number": 1, 7: 8, "nobody": 1}, ArgumentsError),
        ([("number", 1)], ArgumentsError),
        ({"number": 1, "text": "x" * 70_000}, PayloadTooLargeError),
        ({"number": 1, "text": object()}, ArgumentsError),
    ],
)
def test_bad_arguments_stop_it_and_everything_before_them_is_in(
    server: Server, subject: Producer, wrong: Any, cause: type[Exception]
) -> None:
    """The error says where; so does the queue."""
    many = [*numbers(502), wrong, *numbers(3)]

    with pytest.raises(PartlyEnqueuedError, match="502 runs were enqueued, nothing after them is in") as caught:
        subject.enqueue_many("mail", many)

    assert isinstance(caught.value.__cause__, cause)
    assert (caught.value.totals.done, caught.value.unsure) == (502, ())
    assert server.store().run(Queues(server.keys).counts("mail")).ready_total == 502


@pytest.mark.parametrize("room", [3, 502])
async def test_a_queue_without_room_ends_many_at_the_place_it_names(
    server: Server, subject: Producer, room: int
) -> None:
    """In the middle of a batch too: the first so many are in, and nothing after them."""
    server.store().run(Sessions(server.keys).bound_queues(room))

    with pytest.raises(PartlyEnqueuedError, match=f"{room} runs were enqueued, nothing after them is in") as caught:
        subject.enqueue_many("mail", numbers(1700))
    with pytest.raises(PartlyEnqueuedError, match="0 runs were enqueued"):
        await subject.enqueue_many_async("mail", numbers(3))
    await subject.close_async()

    assert isinstance(caught.value.__cause__, QueueFullError)
    assert ready(server) == list(range(room))


async def test_a_queue_without_room_refuses_one_and_its_neighbours_go_on(server: Server, subject: Producer) -> None:
    """Enqueues of one loop share a call: who has no room fails alone, with the remedy."""
    server.store().run(Sessions(server.keys).bound_queues(1))
    answers = await asyncio.gather(
        *(subject.enqueue_async("mail", {"number": number}, queue=f"q{number % 2}") for number in range(4)),
        return_exceptions=True,
    )
    await subject.close_async()

    assert [isinstance(each, QueueFullError) for each in answers] == [False, False, True, True]
    with pytest.raises(QueueFullError, match=r"queue q0 as queues\.length_max allows: try again later, start more"):
        subject.enqueue("mail", {"number": 5}, queue="q0")


async def test_a_source_that_fails_does_not_take_back_what_it_gave(server: Server, subject: Producer) -> None:
    """A file that breaks off, a cursor that is lost."""

    def broken() -> Iterator[dict[str, Any]]:
        yield from numbers(3)
        raise OSError("the file ends here")

    with pytest.raises(PartlyEnqueuedError, match="the file ends here") as caught:
        await subject.enqueue_many_async("mail", broken())
    await subject.close_async()
    with pytest.raises(PartlyEnqueuedError, match="the file ends here"):
        subject.enqueue_many("mail", broken())

    assert caught.value.totals.done == 3
    assert ready(server) == [0, 1, 2] * 2


def test_a_lost_reply_is_asked_again_and_counts_once(
    server: Server, subject: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch carries a nonce."""
    store = server.store()
    original, calls = store.run, []

    def lose_the_first(call: Any, **options: Any) -> Any:
        reply = original(call, **options)
        calls.append(call)
        if len(calls) == 1:
            raise StoreUnavailableError("test: no answer")
        return reply

    monkeypatch.setattr(store, "run", lose_the_first)
    monkeypatch.setattr(subject._thread_stores, "_open", lambda: store)

    assert subject.enqueue_many("mail", numbers(600)) == Totals(new=600)
    assert server.store().run(Queues(server.keys).counts("mail")).ready_total == 600


def test_an_outage_leaves_one_batch_in_doubt_and_names_it(
    server: Server, subject: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has ids of its own starts again from there."""
    store = server.store()
    original, batches = store.run, []

    def fall_silent(call: Any, **options: Any) -> Any:
        batches.append(call)
        reply = original(call, **options)
        if len(batches) >= 2:  # done, and nobody hears of it
            raise StoreUnavailableError("test: no answer")
        return reply

    monkeypatch.setattr(store, "run", fall_silent)
    monkeypatch.setattr(subject._thread_stores, "_open", lambda: store)

    with pytest.raises(PartlyEnqueuedError, match="of the 500 runs after them it is not known") as caught:
        subject.enqueue_many("mail", numbers(2000), run_id=lambda args: f"n{args['number']}")

    assert caught.value.totals.done == 500
    assert caught.value.unsure == tuple(f"n{number}" for number in range(500, 1000))
    monkeypatch.setattr(store, "run", original)
    again = subject.enqueue_many(
        "mail", ({"number": number} for number in range(500, 2000)), run_id=lambda args: f"n{args['number']}"
    )
    assert (again.present, again.new) == (500, 1000)


def test_no_more_is_taken_from_the_source_than_two_batches_ahead(server: Server, subject: Producer) -> None:
    """A million rows do not come to lie in memory because Redis is slower than the database."""
    taken, ahead = 0, []

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal taken
        for args in numbers(3000):
            taken += 1
            yield args

    def look(enqueued: Any) -> None:
        ahead.append(taken - 500 * (len(ahead) + 1))

    subject.enqueue_many("mail", counted(), each=look)

    assert max(ahead) <= 1000


def test_a_batch_is_bounded_in_bytes_too(server: Server, subject: Producer) -> None:
    """Half a thousand envelopes of 60 KiB would hold Redis up for everybody."""
    seen: list[int] = []

    subject.enqueue_many("mail", numbers(40, text="x" * 60_000), each=lambda batch: seen.append(len(batch)))

    assert sum(seen) == 40
    assert max(seen) <= 18


def test_one_that_is_a_duplicate_is_told_apart(server: Server, subject: Producer) -> None:
    """New, there already, or refused because another run holds its key."""

    @job("once", queue="mail", unique="{customer}")
    async def once(customer: str) -> None: ...

    first = subject.put("once", {"customer": "a"}, run_id="first")
    second = subject.put("once", {"customer": "a"})
    again = subject.put("once", {"customer": "a"}, run_id="first")
    totals = subject.enqueue_many("once", [{"customer": "a"}, {"customer": "b"}, {"customer": "b"}])

    assert (first.is_new, first.run_id) == (True, "first")
    assert (second.is_new, second.is_duplicate, second.run_id) == (False, True, "first")
    assert (again.is_new, again.is_duplicate, again.run_id) == (False, False, "first")
    assert totals == Totals(new=1, duplicates=2)
    assert subject.enqueue("once", {"customer": "a"}) == "first"


def test_a_start_deadline_counts_from_when_the_run_may_start(server: Server, subject: Producer) -> None:
    """A delay is no lateness."""

    @job("soon", queue="mail", start_deadline="10s")
    async def soon(number: int) -> None: ...

    ids: list[Enqueued] = []
    subject.enqueue_many("soon", numbers(1), delay="1m", each=ids.extend)
    ids.append(subject.put("soon", {"number": 1}))

    for one, late_ms in zip(ids, (70_000, 10_000), strict=True):
        view = server.store().run(Queues(server.keys).show(one.run_id))
        assert view is not None
        assert view.envelope.not_after_ms == view.envelope.enqueued_ms + late_ms


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_a_generator_may_fill_one_mapping_again_for_each_run(server: Server, subject: Producer, kind: Any) -> None:
    """And the lists in it: they are packed a batch at a time, when it holds the last."""

    @job("sum", queue="mail")
    async def total(number: list[dict[str, int]]) -> None: ...

    batch: dict[str, Any] = kind(number=[kind()])

    def batches() -> Iterator[dict[str, Any]]:
        for number in range(3):
            batch["number"][0]["of"] = number
            yield batch
            batch["number"][0].clear()

    assert subject.enqueue_many(total, batches()) == Totals(new=3)
    assert ready(server) == [[{"of": 0}], [{"of": 1}], [{"of": 2}]]


@dataclass
class Count:
    of: int = 0


@pytest.mark.parametrize(
    ("held", "of"), [({0}, set[int]), (Count(), Count), (([0],), tuple[list[int]])], ids=["set", "dataclass", "tuple"]
)
def test_a_generator_may_fill_anything_again_for_each_run(
    server: Server, subject: Producer, held: Any, of: Any
) -> None:
    """Whatever has a form as JSON: all runs of a batch had what it held in the end."""

    async def total(number: Any) -> None: ...

    total.__annotations__["number"] = of
    job("sum", queue="mail")(total)

    def fill(number: int) -> None:
        if isinstance(held, set):
            held.clear()
            held.add(number)
        elif isinstance(held, Count):
            held.of = number
        else:
            held[0][0] = number

    def batches() -> Iterator[dict[str, Any]]:
        for number in range(3):
            fill(number)
            yield {"number": held}

    assert subject.enqueue_many(total, batches()) == Totals(new=3)
    forms = {set: [[0], [1], [2]], Count: [{"of": 0}, {"of": 1}, {"of": 2}], tuple: [[[0]], [[1]], [[2]]]}
    assert ready(server) == forms[type(held)]


def test_a_foreign_key_claims_no_id(server: Server, subject: Producer) -> None:
    """An id that looks as if it had been used would be enqueued by nobody, and told to be there."""
    server.store().raw.lpush(f"{server.keys.queue('mail').prefix}ran:m-0", "x")
    assert subject.enqueue_many("mail", numbers(1), run_id=lambda args: f"m-{args['number']}") == Totals(new=1)
    assert ready(server) == [0]
