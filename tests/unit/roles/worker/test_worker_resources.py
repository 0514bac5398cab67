"""Resources of one process: opened once, asked how they are, closed in reverse order."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.testing import capture_logs

from supervisor.roles.worker.process import resources as module
from supervisor.roles.worker.process.resources import ResourceError, Resources
from tenure import Resource
from tests.kit.clock import FakeClock
from tests.unit.roles.worker.test_worker_context import one_turn

trace: list[str] = []


@pytest.fixture(autouse=True)
def _no_trace() -> None:
    trace.clear()


class Plain(Resource):
    """Says what is done to it."""

    is_ill = False

    def open(self) -> None:
        trace.append(f"open {type(self).__name__}")

    def ping(self) -> None:
        if type(self).is_ill:
            raise OSError("gone")

    def close(self) -> None:
        trace.append(f"close {type(self).__name__}")


class Second(Plain):
    """Another one."""


class Slow(Resource):
    """Opens when the test says so."""

    gate: asyncio.Event
    fault: BaseException | None = None

    async def open(self) -> None:
        trace.append("open")
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault

    async def close(self) -> None:
        trace.append("close")


def test_it_is_opened_once_and_closed_the_last_first() -> None:
    """What was opened later may need what was opened before."""
    subject = Resources(FakeClock())

    assert subject.get(Plain) is subject.get(Plain)
    subject.get(Second)
    subject.close(1.0)
    subject.close(1.0)

    assert trace == ["open Plain", "open Second", "close Second", "close Plain"]


def test_a_close_that_hangs_or_fails_stops_no_other() -> None:
    """A process that must go does not wait for what does not answer."""

    class Hangs(Plain):
        def close(self) -> None:
            threading.Event().wait(60)

    class Fails(Plain):
        def close(self) -> None:
            raise OSError("already gone")

    subject = Resources(FakeClock())
    for kind in (Plain, Fails, Hangs):
        subject.get(kind)

    with capture_logs() as lines:
        subject.close(0.01)

    assert trace[-1] == "close Plain"
    assert [line["event"] for line in lines] == ["resource_unclosed", "resource_unclosed"]


def test_an_illness_is_told_once_until_it_is_over() -> None:
    """And whoever asks is told by name."""
    clock = FakeClock()
    subject = Resources(clock)
    subject.get(Second)

    with capture_logs() as lines:
        for is_ill in (True, True, False):
            Second.is_ill = is_ill
            subject.ping_if_due()  # too early: nothing is asked
            clock.now_ns += round(module.PING_EVERY_S * 1e9)
            subject.ping_if_due()
            assert bool(subject.failing) is is_ill

    assert [line["event"] for line in lines] == ["resource_failing", "resource_back"]


class Panic(BaseException):
    """What a panic of an extension in Rust is in Python."""


class Nameless(Exception):  # noqa: N818 - a name that says what it is
    """Cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    __str__ = __repr__


@pytest.mark.parametrize("fault", [SystemExit(0), SystemExit(3), KeyboardInterrupt(), Nameless(), Panic()], ids=type)
def test_a_plain_resource_that_exits_ends_neither_the_process_nor_its_run_as_if_it_were_done(
    monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    """Raised on, it would be taken for the job's own: an exit with 0 means that a job is done, and no job was called."""

    def exits(_self: Plain) -> None:
        raise fault

    clock = FakeClock()
    subject = Resources(clock)
    subject.get(Plain)
    monkeypatch.setattr(Plain, "ping", exits)
    clock.advance(11)
    subject.ping_if_due()
    assert list(subject.failing) == [module.name_of(Plain)]

    monkeypatch.setattr(Second, "open", exits)
    with pytest.raises(ResourceError, match="cannot be opened"):
        subject.get(Second)
    monkeypatch.setattr(Plain, "close", exits)
    subject.close(1.0)
    assert subject.opened == {}


@pytest.mark.parametrize(
    "fault", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), Nameless(), Panic()], ids=type
)
async def test_an_asynchronous_resource_that_exits_ends_neither_its_loop_nor_its_pings(
    monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    """In a task an exit ends the loop, with every run in it; a cancellation that a library leaks ends the task alone."""

    async def exits(_self: Slow) -> None:
        raise fault

    Slow.gate, Slow.fault = asyncio.Event(), None
    Slow.gate.set()
    subject = Resources(FakeClock())
    await subject.get_async(Slow)
    monkeypatch.setattr(Slow, "ping", exits, raising=False)
    monkeypatch.setattr(Slow, "close", exits)
    await subject.ping_all()
    assert list(subject.failing) == [module.name_of(Slow)]
    await subject.close_async(1.0)
    assert subject.opened == {}


async def test_pings_end_when_their_worker_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancellation that is meant for their task is not taken for one of the resource."""
    begun = asyncio.Event()

    async def hangs(_self: Slow) -> None:
        begun.set()
        await asyncio.Event().wait()

    Slow.gate, Slow.fault = asyncio.Event(), None
    Slow.gate.set()
    subject = Resources(FakeClock())
    await subject.get_async(Slow)
    monkeypatch.setattr(Slow, "ping", hangs, raising=False)
    pinging = asyncio.create_task(subject.ping_all())
    await begun.wait()
    pinging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pinging
    await subject.close_async(1.0)


async def test_runs_that_come_at_once_wait_for_one_opening() -> None:
    """Fifty coroutines make one connection."""
    Slow.gate = asyncio.Event()
    subject = Resources(FakeClock())
    waiting = [asyncio.create_task(subject.get_async(Slow)) for _ in range(50)]
    await one_turn()
    Slow.gate.set()

    found = await asyncio.gather(*waiting)
    await subject.close_async(1.0)

    assert len({id(one) for one in found}) == 1
    assert trace == ["open", "close"]


async def test_what_is_opened_for_all_is_told_of_no_run() -> None:
    """The first run that asks is not the one that a failing ping concerns an hour later."""
    Slow.gate = asyncio.Event()
    Slow.gate.set()
    subject = Resources(FakeClock())

    with bound_contextvars(run="first"), capture_logs(processors=[merge_contextvars]) as lines:
        await subject.get_async(Slow)
    await subject.close_async(1.0)

    assert [line.get("run") for line in lines if line["event"] == "resource_opened"] == [None]


async def test_who_gives_up_waiting_takes_nothing_from_the_others() -> None:
    """The run that came first may be cancelled."""
    Slow.gate = asyncio.Event()
    subject = Resources(FakeClock())
    first, second = (asyncio.create_task(subject.get_async(Slow)) for _ in range(2))
    await one_turn()
    first.cancel()
    await one_turn()
    Slow.gate.set()

    assert isinstance(await second, Slow)
    await subject.close_async(1.0)


@pytest.mark.parametrize("fault", [OSError("no"), SystemExit(1)])
async def test_a_failed_opening_fails_all_who_wait_and_the_next_tries_again(
    fault: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even an exit ends the loop."""
    Slow.gate = asyncio.Event()
    Slow.gate.set()
    subject = Resources(FakeClock())
    monkeypatch.setattr(Slow, "fault", fault)

    ends = await asyncio.gather(*(subject.get_async(Slow) for _ in range(3)), return_exceptions=True)
    monkeypatch.setattr(Slow, "fault", None)

    assert [type(end) for end in ends] == [ResourceError] * 3
    assert isinstance(await subject.get_async(Slow), Slow)
    assert trace == ["open", "open"]
    await subject.close_async(1.0)


async def test_an_opening_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts and says nothing."""
    Slow.gate = asyncio.Event()
    monkeypatch.setattr(Slow, "timeout_s", 0.001)

    with pytest.raises(ResourceError, match=r"Slow cannot be opened: TimeoutError"):
        await Resources(FakeClock()).get_async(Slow)


async def test_asynchronous_ones_are_pinged_and_closed_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, awaited."""

    class Hangs(Slow):
        async def ping(self) -> None:
            await asyncio.Event().wait()

        async def close(self) -> None:
            await asyncio.Event().wait()

    Slow.gate = asyncio.Event()
    Slow.gate.set()
    monkeypatch.setattr(module, "PING_S", 0.001)
    subject = Resources(FakeClock())
    await subject.get_async(Slow)
    await subject.get_async(Hangs)

    with capture_logs() as lines:
        await subject.ping_all()
        await subject.close_async(0.01)

    assert list(subject.failing) == [module.name_of(Hangs)]
    assert [line["event"] for line in lines] == ["resource_failing", "resource_unclosed"]
    assert trace[-1] == "close"


async def test_a_resource_without_methods_serves_both() -> None:
    """It is a place for what the processes' jobs share."""

    class Shared(Resource):
        """Nothing to open."""

    subject: Any = Resources(FakeClock())

    assert await subject.get_async(Shared) is subject.get(Shared)
    await subject.close_async(1.0)
