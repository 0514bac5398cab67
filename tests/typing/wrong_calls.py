"""Calls of users that type checkers must refuse: each line that says so, and no other."""

from __future__ import annotations

from datetime import timedelta

import tenure
import tenure.errors
from tenure import (
    Context,
    Resource,
    Retry,
    enqueue,
    job,
)


class Mailbox(Resource):
    """What a worker opens."""


@job
async def send(to: str, copies: int = 1) -> int:
    return copies


@job("report")
def report(ctx: Context, day: str) -> str:
    ctx.step("load", len, 3)  # expect-error
    ctx.step("load", len)  # expect-error
    ctx.log.shout("x")  # expect-error
    return day


@job("box")
def clear(box: Mailbox, day: str) -> str:
    return day


@job(priority="urgent")  # expect-error
def urgent() -> None: ...


@job(timeout=[5])  # expect-error
def listed() -> None: ...


@job(colour="red")  # expect-error
def coloured() -> None: ...


def produce() -> None:
    send.enqueue(too=1)  # expect-error
    send.enqueue(1)  # expect-error
    send.enqueue()  # expect-error
    send.enqueue("a", 1, 2)  # expect-error
    send.options(dely=3).enqueue("a")  # expect-error
    send.options(delay=timedelta(1)).enqueue(to=1)  # expect-error
    send.options(priority="urgent")  # expect-error
    send.arguments(to=1)  # expect-error
    send.enqueue_many(["a"])  # expect-error
    report.enqueue(ctx=1, day="a")  # expect-error
    report.enqueue(1)  # expect-error
    clear.enqueue(day=3)  # expect-error
    run = send.enqueue("a")
    run.id = "b"  # expect-error
    text: str = run  # expect-error
    assert text
    enqueue(send, {"to": "a"}, delai=1)  # expect-error
    enqueue(send, ["a"])  # expect-error
    tenure.enqueu(send)  # expect-error
    tenure.errors.NoSuchError()  # expect-error
    tenure.job(send, queue=3)  # expect-error


async def wait() -> None:
    number: str = await send("a")  # expect-error
    run: int = await send.enqueue_async("a")  # expect-error
    assert number
    assert run


def retries() -> None:
    Retry(on="TimeoutError")  # expect-error
    Retry(on=(1,))  # expect-error
    Retry(times=3)  # expect-error


def leads() -> None:
    tenure.leadership(3)  # expect-error
    tenure.leadership(on_started=print)  # expect-error
    tenure.leadership("billing", on_started="print")  # expect-error
    tenure.leadership("billing", on_changed=lambda: None)  # expect-error
    tenure.leadership("billing", ttl=5)  # expect-error
    lead = tenure.leadership("billing")
    lead.epoch = 3  # expect-error
    lead.is_leader()  # expect-error
    name: str = lead.leader  # expect-error
    assert name


@tenure.schedule(5)  # expect-error
def numbered() -> None: ...


@tenure.schedule(every="5m", tz="UTC")  # expect-error
def elsewhere() -> None: ...


@tenure.schedule(every=["5m"])  # expect-error
def several() -> None: ...


@tenure.schedule(every="5m", overlap="never")  # expect-error
def overlapping() -> None: ...
