"""Signals that find an event loop of a plain job: asyncio takes an exception in its code for one of a callback."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from supervisor.roles.worker.attempt.context import Interrupted, SoftTimeout
from supervisor.roles.worker.pools.signals import PUT_OFF_MAX, Demand, Interrupts
from tests.integration.roles.worker.signalled import Subject, in_s, own_handlers

DEMANDED = [(signal.SIGUSR2, SoftTimeout), (signal.SIGQUIT, Interrupted)]


@pytest.fixture
def subject() -> Iterator[Interrupts]:
    """Handlers of its own for the test."""
    with own_handlers() as interrupts:
        yield interrupts


def interrupt(number: int) -> None:
    """Have a signal find this frame."""
    signal.raise_signal(number)
    sum(range(300))


def in_a_callback(number: int) -> None:
    """Called by the loop itself."""
    asyncio.get_running_loop().call_soon(interrupt, number)


def deep_in_a_callback(number: int) -> None:
    """Called by code of the job in a callback."""
    asyncio.get_running_loop().call_soon(lambda: [interrupt(number) for _ in range(1)])


def in_the_loop(number: int) -> None:
    """Within the step of the loop: no Python code but its own is under way."""
    asyncio.get_running_loop().call_soon(signal.raise_signal, number)


@pytest.mark.parametrize("place", [in_a_callback, deep_in_a_callback, in_the_loop])
@pytest.mark.parametrize(("number", "raised"), DEMANDED)
def test_a_demand_that_finds_a_callback_of_a_loop_reaches_the_job(
    subject: Interrupts, number: int, raised: type[BaseException], place: Callable[[int], None]
) -> None:
    """The loop would log the exception and go on, until the job's hard timeout."""
    caught: list[object] = []

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: caught.append(context))
        place(number)
        await asyncio.sleep(20)

    with pytest.raises(raised):
        subject.job(partial(asyncio.run, work()), {}, run=Subject(), soft_ns=in_s(600))
    assert caught == []


@pytest.mark.parametrize(("number", "raised"), DEMANDED)
def test_a_coroutine_is_interrupted_where_it_is(subject: Interrupts, number: int, raised: type[BaseException]) -> None:
    """Whoever awaits it gets the exception: one that computes is not put off."""
    ended: list[str] = []

    async def compute() -> None:
        try:
            interrupt(number)
        except raised:
            ended.append("cleaned up")
            raise

    async def work() -> None:
        await asyncio.gather(compute(), asyncio.sleep(20))

    with pytest.raises(raised):
        subject.job(partial(asyncio.run, work()), {}, run=Subject(), soft_ns=in_s(600))
    assert ended == ["cleaned up"]


def test_an_idle_loop_is_interrupted_at_once(subject: Interrupts) -> None:
    """Its wait lets the exception out."""
    with pytest.raises(SoftTimeout):
        subject.job(partial(asyncio.run, asyncio.sleep(20)), {}, run=Subject(), soft_ns=in_s(0.05))
    assert subject._puts_off < PUT_OFF_MAX


def test_a_callback_that_goes_on_is_interrupted_after_a_bounded_number_of_signals(subject: Interrupts) -> None:
    """One that never ends would keep the demand from the job for ever; it may stop the loop itself."""
    sent: list[int] = []

    def spin(loop: asyncio.AbstractEventLoop) -> None:
        with suppress(SoftTimeout):
            while len(sent) <= 2 * PUT_OFF_MAX:
                sent.append(1)
                interrupt(signal.SIGALRM)
        loop.stop()

    def work() -> None:
        loop = asyncio.new_event_loop()
        loop.call_soon(spin, loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    subject.job(work, {}, run=Subject(), soft_ns=in_s(0))
    assert 1 < len(sent) <= PUT_OFF_MAX + 1
    assert Demand.SOFT in subject._demands
