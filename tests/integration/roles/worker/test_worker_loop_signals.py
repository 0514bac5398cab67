"""Signals of an async worker that its jobs handle, too."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import sys
from collections.abc import Callable

import pytest
import uvloop

from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Kind
from supervisor.core.supervision.states import ChildState
from supervisor.roles import worker
from supervisor.roles.worker.process.loop_signals import LoopSignals
from supervisor.telemetry.run_context import current_run, enter_run
from tenure import job
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.worker_fixture import WorkerKit
from tests.kit.servers import RealServer, Server, wait_until


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_signal_that_is_taken_back_at_the_end_of_a_run_is_handled_outside_of_it(run: Callable[..., None]) -> None:
    """Else the drain of a worker names that run in the log. The handler that it had set is called as well."""
    seen: list[object] = []
    heard: list[int] = []

    async def ending(signals: LoopSignals) -> None:
        enter_run({"run": "one", "job": "serves"})
        signal.signal(signal.SIGUSR2, lambda number, _frame: heard.append(number))
        signals.take()

    async def work() -> None:
        signals = LoopSignals({signal.SIGUSR2: lambda: seen.append(current_run())})
        await asyncio.create_task(ending(signals))
        signal.raise_signal(signal.SIGUSR2)
        while not seen:  # noqa: ASYNC110 - set by a callback
            await asyncio.sleep(0.01)

    before = signal.getsignal(signal.SIGUSR2)
    run(work())
    signal.signal(signal.SIGUSR2, before)
    assert (seen, heard) == ([None], [signal.SIGUSR2])


class Desk:
    """The signals of a pool in a loop of its own, and jobs that handle SIGUSR2 beside it."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.signals = LoopSignals({signal.SIGUSR2: lambda: self.heard.append("pool")})
        self.signals.take()

    def handle(self, name: str) -> object:
        """Set a handler as a job does, which the loop takes away; return what the job found."""
        found = signal.signal(signal.SIGUSR2, lambda *_: self.heard.append(name))
        self.signals.take()
        return found

    async def send(self) -> list[str]:
        """Return who was called, in order."""
        self.heard.clear()
        signal.raise_signal(signal.SIGUSR2)
        while "pool" not in self.heard:  # noqa: ASYNC110 - set by a callback
            await asyncio.sleep(0.01)
        return self.heard.copy()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_handlers_of_jobs_are_called_until_each_job_puts_back_what_it_found(run: Callable[..., None]) -> None:
    """In any order; one that is put back is of a run that ended, and would meet its neighbours at a stop."""

    async def work() -> None:
        desk = Desk()
        first, second = desk.handle("first"), desk.handle("second")
        loop = asyncio.get_running_loop()
        assert await desk.send() == ["pool", "first", "second"]
        loop.add_signal_handler(signal.SIGUSR2, lambda: None)
        loop.remove_signal_handler(signal.SIGUSR2)  # another job, for a while
        desk.signals.take()
        assert await desk.send() == ["pool", "first", "second"]
        signal.signal(signal.SIGUSR2, first)  # type: ignore[arg-type]
        assert await desk.send() == ["pool", "second"]
        signal.signal(signal.SIGUSR2, second)  # type: ignore[arg-type]
        desk.signals.take()
        assert await desk.send() == ["pool"]
        desk.handle("third")
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)  # in place of what it had found
        desk.signals.take()
        assert await desk.send() == ["pool"]
        desk.handle("left behind")
        desk.signals.take(is_idle=True)
        assert await desk.send() == ["pool"]

    before = signal.getsignal(signal.SIGUSR2)
    run(work())
    signal.signal(signal.SIGUSR2, before)


def test_a_handler_that_puts_the_former_one_back_and_sends_its_signal_again_does_so_once() -> None:
    """As that of coverage.py for SIGTERM: the loop called action and handler again and again."""

    async def work() -> None:
        desk = Desk()

        def pass_on(number: int, _frame: object) -> None:
            desk.heard.append("job")
            signal.signal(number, found)
            signal.raise_signal(number)

        found = signal.signal(signal.SIGUSR2, pass_on)
        desk.signals.take()
        await desk.send()
        while desk.heard.count("pool") < 2:  # noqa: ASYNC110 - set by a callback
            await asyncio.sleep(0.01)
        assert desk.heard == ["pool", "job", "pool"]

    before = signal.getsignal(signal.SIGUSR2)
    uvloop.run(work())
    signal.signal(signal.SIGUSR2, before)


def test_a_handler_that_the_process_called_itself_is_not_called_again_for_the_same_signal() -> None:
    """One that a job has just set; a second call means at once to many servers."""

    async def work() -> None:
        desk = Desk()
        calls: list[str] = []
        found = signal.signal(signal.SIGUSR2, lambda *_: calls.append("job"))
        signal.raise_signal(signal.SIGUSR2)
        while "pool" not in desk.heard:  # noqa: ASYNC110 - set by a callback
            await asyncio.sleep(0.01)
        assert calls == ["job"]
        assert await desk.send() == ["pool"]
        assert calls == ["job", "job"]
        signal.signal(signal.SIGUSR2, found)

    before = signal.getsignal(signal.SIGUSR2)
    uvloop.run(work())
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.server
@pytest.mark.parametrize("taken", ["by the loop", "by the process", "by a handler that exits"])
def test_a_coroutine_that_handled_sigterm_for_a_while_leaves_the_stop_of_its_worker_as_it_was(
    real_server: RealServer, jobs: Registry, taken: str
) -> None:
    """Of what it left, one would end the process with the runs of others, the other one of those as if it was done."""
    shop = WorkerKit(Server(real_server), jobs, Kind.ASYNC)
    go = multiprocessing.get_context("fork").Event()

    @job("neighbour")
    async def neighbour() -> str:
        while not go.is_set():  # noqa: ASYNC110 - set by another process
            await asyncio.sleep(0.01)
        return "done"

    @job("serves")
    async def serves() -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: None)
        await asyncio.sleep(0)
        if taken == "by the loop":
            loop.remove_signal_handler(signal.SIGTERM)
        else:
            is_default = taken == "by the process"
            signal.signal(signal.SIGTERM, signal.SIG_DFL if is_default else lambda *_: sys.exit(0))

    process = fork(shop, main=lambda: worker.main(shop.child()))
    wait_until(lambda: shop.board.rows[0].child_state == ChildState.READY, what="the worker to be ready")
    run_id = shop.enqueue("neighbour")
    shop.enqueue("serves")
    wait_until(lambda: shop.ended(1), what="the run that serves")

    process.signal(signal.SIGTERM)
    wait_until(lambda: shop.board.rows[0].child_state == ChildState.DRAINING, what="the drain")
    go.set()

    found = process.report()
    assert (found.code, found.results[run_id]) == (0, "done")
