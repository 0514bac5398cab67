"""Whatever lies in a queue ends its own run, and no worker."""

from __future__ import annotations

import json
import os
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, field_validator

from supervisor.core.model import Envelope, Kind, Template
from supervisor.store.queues.run_records import Progresses
from supervisor.store.queues.runs import Queues
from tenure import Context, job
from tests.integration.roles.worker.worker_fixture import WorkerKit, until

COUNT = int(os.environ.get("TENURE_MUTATIONS", "200"))
"""How many envelopes a pool is given; ``make mutations`` gives more."""

RECORDED = [line for line in Path("tests/data/envelopes-v1.txt").read_bytes().splitlines() if line[2:3] == b"{"]
CHARGES = [
    b"0,0,0",
    b"9,2,2",
    b"x,y,z",
    b"1,2",
    b"99999999999,0,0",
    b"-1,-1,-1",
    b"\xff",
    b"1e9,1,1",
    b"@-1",
    b"@x",
    b"1,2,3 s",
]
DUE = ["-inf", "-1", "0", "1.5"]
_NUMBERS = [b"0", b"-1", b"1e308", b"-1e308", b"9" * 400, b"18446744073709551616", b"1.5", b"null", b'""', b"true"]
_DEEP = [b"[" * 3000 + b"]" * 3000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b"[" * 940 + b"]" * 940]
_VALUES = [*_DEEP, b"{}", b'"two words"', b'"\\ud800"', b'"\xff"', b"NaN", *_NUMBERS]
_VALUE = re.compile(rb'(?<=:)("(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?|true|false|null)')


def mutated(draw: random.Random, data: bytes) -> bytes:
    """Return an envelope with one to three changes: another value, another byte, a piece less, a piece twice."""
    for _ in range(draw.randint(1, 3)):
        change, at = draw.randrange(8), draw.randrange(max(1, len(data)))
        places = list(_VALUE.finditer(data))
        if change < 5 and places:
            place = draw.choice(places)
            data = data[: place.start()] + draw.choice(_VALUES) + data[place.end() :]
        elif change == 5:
            data = data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
        elif change == 6:
            data = data[:at] + data[at + draw.randint(1, 9) :]
        else:
            data = data[:at] + data[at : at + draw.randint(1, 40)] + data[at:]
    return data


def put(shop: WorkerKit, draw: random.Random, count: int) -> None:
    """Lay runs into the queue as something else than a producer would."""
    queue = shop.server.keys.queue("default")
    for number in range(count):
        run_id = f"m{number}"
        recorded = draw.choice(RECORDED)
        as_ours = re.sub(rb'"id":"[^"]*"', b'"id":"' + run_id.encode() + b'"', recorded, count=1)
        kind = draw.choice([b"a"] * 7 + [b"", b"x", b"\xff"])
        data = kind + mutated(draw, as_ours[1:].replace(b'"kind":"sync"', b'"kind":"async"'))
        shop.store.raw.hset(queue.data, run_id, data)
        if draw.random() < 0.3:
            shop.store.raw.hset(queue.att, run_id, draw.choice(CHARGES))
        if draw.random() < 0.3:
            shop.store.raw.zadd(queue.later, {run_id: draw.choice(DUE)})
        else:
            shop.store.raw.rpush(queue.ready(Kind.ASYNC, draw.randrange(3)), run_id)


async def test_a_pool_survives_any_envelope(shop: WorkerKit) -> None:
    """A run that stops each process which reads it stops every replica, since it is offered to all."""
    for name in ("mail.send", "reports.nightly", "reports.part", "pay", "plain"):

        @job(name)
        async def take(to: Any = 0, region: Any = 0, days: Any = 0, deep: Any = 0, part: Any = 0) -> None: ...

    put(shop, random.Random(COUNT), COUNT)
    async with shop.worker() as pool:
        innocent = shop.enqueue("plain")
        await until(lambda: shop.state(innocent) == "finished" or pool._runs.fault, what="the run behind all others")
        assert pool._runs.fault is None
        counts = lambda: shop.store.run(Queues(shop.server.keys).counts("default"))  # noqa: E731 - one expression
        await until(lambda: (now := counts()).ready_total + now.running == 0, what="the end of all runs")


@pytest.mark.parametrize("schedule", ["two words", "line\n", " ", "\0 1"])
async def test_a_schedule_that_no_acknowledgement_can_name_ends_its_own_run(shop: WorkerKit, schedule: str) -> None:
    """Redis refused the turn that acknowledged it, for ever, and with it all other ends of its process."""

    @job("plain")
    async def take() -> None: ...

    run_id = shop.put(Envelope(id="m0", template=shop.registry.get("plain").template({}), schedule=schedule))
    innocent = shop.enqueue("plain")
    async with shop.worker():
        await until(lambda: shop.state(innocent) == "finished", what="the run beside it")
        await until(lambda: shop.state(run_id) == "dead", what="its own end")


class Customer(BaseModel):
    name: str

    @field_validator("name", mode="before")
    @classmethod
    def _strip(cls, value: Any) -> Any:
        return value.strip()


async def test_a_value_at_which_the_code_of_its_type_breaks_ends_its_own_run(shop: WorkerKit) -> None:
    """An AttributeError of a validator, which only reckoned with texts, was ours: it ended the process of fifty runs."""

    @job("greet")
    async def greet(customer: Customer) -> None: ...

    @job("plain")
    async def take() -> None: ...

    args = {"customer": {"name": 5}}
    run_id = shop.put(Envelope(id="m0", template=Template(job="greet", kind=Kind.ASYNC, args=args)))
    innocent = shop.enqueue("plain")
    async with shop.worker():
        await until(lambda: shop.state(innocent) == "finished", what="the run beside it")
        await until(lambda: shop.state(run_id) == "dead", what="its own end")


@pytest.mark.parametrize("is_broken", [False, True])
async def test_an_id_that_lies_in_a_list_more_than_once_ends_no_process(shop: WorkerKit, *, is_broken: bool) -> None:
    """Redis gives it as often in one turn: whoever may write to queues ended one process after another with it."""
    calls = []

    @job("plain")
    async def take() -> None:
        calls.append(1)

    run_id, queue = shop.enqueue("plain"), shop.server.keys.queue("default")
    if is_broken:
        shop.store.raw.hset(queue.data, run_id, "a1{")
    shop.store.raw.rpush(queue.ready(Kind.ASYNC, 1), *[run_id] * 4)
    innocent = shop.enqueue("plain")
    async with shop.worker() as pool:
        await until(lambda: shop.state(innocent) == "finished", what="the run behind it")
        await until(lambda: shop.state(run_id) == ("dead" if is_broken else "finished"), what="its own end")
    assert pool._presence.room == shop.board.inflight[0].size
    assert len(calls) == (1 if is_broken else 2)
    shop.assert_clean()


async def test_an_id_that_no_call_can_name_begins_no_run(shop: WorkerKit) -> None:
    """Each batch of progress with it was refused before it was sent, and the process ended by it when it left."""

    @job("plain")
    async def take(ctx: Context) -> None:
        ctx.progress(1)

    queue, run_id = shop.server.keys.queue("default"), "x" * 256
    template = shop.registry.get("plain").template({})
    shop.store.raw.hset(queue.data, run_id, b"a1" + msgspec.json.encode(Envelope(id=run_id, template=template)))
    shop.store.raw.rpush(queue.ready(Kind.ASYNC, 1), run_id)
    producer = shop.producer()
    longest = shop.put(Envelope(id="y" * 255, template=template))
    async with shop.worker(producer=producer):
        await until(lambda: shop.state(longest) == "finished", what="the run behind it")
        read = Progresses(shop.server.keys).read(longest)
        await until(lambda: shop.store.run(read) is not None, what="its progress")
    assert [outcome for _, outcome, _ in shop.history()] == ["ok"]
    shop.assert_clean()
    producer.close()


@dataclass
class Order:
    text: str

    def __post_init__(self) -> None:
        raise ValueError(f"no such kind of order: {json.loads(self.text)}")


async def test_a_refusal_whose_text_is_no_text_ends_its_own_run(shop: WorkerKit) -> None:
    """JSON may write half a character, and a type that reads it repeats it: no acknowledgement could carry that."""

    @job("order")
    async def take_order(order: Order) -> None: ...

    @job("plain")
    async def take() -> None: ...

    args = {"order": {"text": r'"\ud800 password=hunter2"'}}
    runs = [shop.put(Envelope(id=f"m{n}", template=Template(job="order", kind=Kind.ASYNC, args=args))) for n in (0, 1)]
    innocent = shop.enqueue("plain")
    async with shop.worker():
        await until(lambda: shop.state(innocent) == "finished", what="the run beside them")
        for run_id in runs:
            await until(lambda run_id=run_id: shop.state(run_id) == "dead", what="its own end")
            view = shop.store.run(shop.queues.show(run_id))
            assert "no such kind of order" in str(view.error), view.error
            assert "hunter2" not in str(view.error), "as of what a job raises"
