"""Signals that find an event loop of a plain job, which hands exceptions to whoever awaits a task, or to nobody."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import uvloop

from supervisor.roles.worker.attempt.context import Interrupted, SoftTimeout
from supervisor.roles.worker.attempt.failure import describe, is_clean_exit
from supervisor.roles.worker.pools.signals import PUT_OFF_MAX, Demand, Interrupts
from tests.integration.roles.worker.signalled import Subject, in_s, own_handlers

DEMANDED = [(signal.SIGUSR2, SoftTimeout), (signal.SIGQUIT, Interrupted)]
Run = Callable[[Coroutine[Any, Any, Any]], object]


@pytest.fixture
def subject() -> Iterator[Interrupts]:
    """Handlers of its own for the test."""
    with own_handlers() as interrupts:
        yield interrupts


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """A function that runs a coroutine in an event loop of its own."""
    function: Run = request.param
    return function


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


def in_a_task(number: int) -> None:
    """In a coroutine that nobody awaits, as those of a server of streams."""

    async def serve() -> None:
        interrupt(number)
        await asyncio.sleep(20)

    asyncio.get_running_loop().served = asyncio.create_task(serve())  # type: ignore[attr-defined]


@pytest.mark.parametrize("place", [in_a_callback, deep_in_a_callback, in_the_loop, in_a_task])
@pytest.mark.parametrize(("number", "raised"), DEMANDED)
def test_a_demand_that_finds_a_loop_reaches_the_job(
    subject: Interrupts, run: Run, number: int, raised: type[BaseException], place: Callable[[int], None]
) -> None:
    """The loop would log the exception and go on, until the job's hard timeout. Its tasks clean up first."""
    seen: list[object] = []

    async def clean_up_after() -> None:
        try:
            await asyncio.sleep(20)
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned up")

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
        place(number)
        await clean_up_after()

    with pytest.raises(raised) as ended:
        subject.job(partial(run, work()), {}, run=Subject(), soft_ns=in_s(600))
    assert seen == ["cleaned up"]
    assert describe(ended.value, worker="w").type == raised.__name__


@pytest.mark.parametrize(("number", "raised"), DEMANDED)
def test_a_demand_is_not_taken_for_the_end_of_a_loop_by_ctrl_c(
    subject: Interrupts, run: Run, number: int, raised: type[BaseException]
) -> None:
    """Programs that serve until a person ends them catch that; as a job they would have ended well."""

    async def work() -> None:
        in_a_callback(number)
        await asyncio.sleep(20)

    def serve() -> None:
        with suppress(KeyboardInterrupt):
            try:
                run(work())
            except SystemExit as left:  # as around a program that calls `sys.exit()` when it is done
                if left.code:
                    raise

    with pytest.raises(raised) as ended:
        subject.job(serve, {}, run=Subject(), soft_ns=in_s(600))
    assert not is_clean_exit(ended.value)


@pytest.mark.parametrize(("number", "raised"), DEMANDED)
def test_a_coroutine_that_computes_is_interrupted_where_it_is(
    subject: Interrupts, run: Run, number: int, raised: type[BaseException]
) -> None:
    """Its loop does not turn, and calls nothing."""
    sent: list[int] = []
    ended: list[str] = []

    async def compute() -> None:
        try:
            while len(sent) <= 2 * PUT_OFF_MAX:
                sent.append(number)
                interrupt(number)
        except raised:
            ended.append("cleaned up")
            raise

    with pytest.raises(raised):
        subject.job(partial(run, compute()), {}, run=Subject(), soft_ns=in_s(600))
    assert ended == ["cleaned up"]
    assert 1 < len(sent) <= PUT_OFF_MAX + 1


def test_an_idle_loop_is_interrupted_at_once(subject: Interrupts, run: Run) -> None:
    """The callback ends its wait."""

    def be_due_soon() -> None:
        subject._soft_ns = in_s(0.05)
        subject._arm()

    async def wait() -> None:
        asyncio.get_running_loop().call_soon(be_due_soon)  # once it waits: earlier the timer may meet the start
        await asyncio.sleep(20)

    with pytest.raises(SoftTimeout):
        subject.job(partial(run, wait()), {}, run=Subject(), soft_ns=in_s(600))


def test_what_a_job_does_after_its_soft_timeout_is_not_interrupted_again(subject: Interrupts, run: Run) -> None:
    """Callbacks of further signals find nothing due, in this loop or in the next."""

    async def compute() -> str:
        subject._soft_ns = in_s(0)  # due now: the timer is ten minutes away, lest it meet the start of the loop
        with suppress(SoftTimeout):
            for _ in range(2 * PUT_OFF_MAX):
                interrupt(signal.SIGALRM)
        await asyncio.sleep(0)
        return "what there is"

    assert subject.job(partial(run, compute()), {}, run=Subject(), soft_ns=in_s(600)) == "what there is"
    assert Demand.SOFT in subject._demands
