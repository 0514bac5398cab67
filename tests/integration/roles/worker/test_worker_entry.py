"""A whole worker process, from its context to its exit code, as the parent starts and stops it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable

import pytest

import tenure
from supervisor.core.errors import EXIT_RESTART, StoreRefusedError, StoreUnavailableError, TenureError
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Kind
from supervisor.core.supervision.states import ChildState, Phase, RunState
from supervisor.core.units import SECOND_NS
from supervisor.roles import worker
from supervisor.roles.child import ChildContext
from supervisor.roles.worker import entry
from supervisor.roles.worker.polling.poll import SessionLostError
from supervisor.roles.worker.process import heartbeat
from supervisor.roles.worker.process.heartbeat import EXIT_QUIT
from tenure import Context, Retry, job
from tests.integration.roles.worker.forked import Forked, fork
from tests.integration.roles.worker.worker_fixture import WorkerKit
from tests.kit.servers import RealServer, Server, wait_until
from tests.kit.waiting import WAIT_S_MAX, linger

pytestmark = pytest.mark.server


@pytest.fixture
def server(real_server: RealServer) -> Server:
    """A real server: the process connects to it by its address."""
    return Server(real_server)


@pytest.fixture(params=[Kind.ASYNC, Kind.SYNC])
def shop(request: pytest.FixtureRequest, server: Server, jobs: Registry) -> WorkerKit:
    """A workshop of either kind, whose jobs the whole process knows."""
    return WorkerKit(server, jobs, request.param)


def either(shop: WorkerKit, name: str, body: Callable[[Context], object], **options: float) -> None:
    """Register ``body`` as a job of the shop's kind."""
    if shop.settings.workers["test"].kind.value == Kind.SYNC.value:

        @job(name, **options)  # type: ignore[arg-type]
        def plain(context: Context) -> object:
            return body(context)
    else:

        @job(name, **options)  # type: ignore[arg-type]
        async def coroutine(context: Context) -> object:
            await asyncio.sleep(0)
            return body(context)


def start(shop: WorkerKit) -> Forked:
    """Start a worker process and wait until it is ready."""
    process = fork(shop, main=lambda: worker.main(shop.child()))
    wait_until(lambda: shop.board.rows[0].child_state == ChildState.READY, what="the worker to be ready")
    return process


def test_a_process_works_until_a_term_and_leaves_cleanly(shop: WorkerKit) -> None:
    """Its session ends with it, and it says DRAINING on the scoreboard first."""
    either(shop, "plain", lambda context: context.run_id)
    process = start(shop)
    run_id = shop.enqueue("plain")
    wait_until(lambda: shop.ended(1), what="the run")

    process.signal(signal.SIGTERM)
    found = process.report()

    assert (found.code, found.results, found.sessions) == (0, {run_id: run_id}, [])
    assert shop.board.rows[0].child_state == ChildState.DRAINING


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "error", [SessionLostError("r/w/1"), StoreUnavailableError("Redis is away"), StoreRefusedError("no right")]
)
def test_a_process_that_leaves_because_of_redis_blames_no_run(
    shop: WorkerKit, monkeypatch: pytest.MonkeyPatch, error: TenureError
) -> None:
    """The board says so before it is gone; a fresh process takes its place at once."""

    def fail(_child: ChildContext) -> int:
        raise error

    monkeypatch.setattr(entry, f"_{shop.settings.workers['test'].kind.value}", fail)
    child = shop.child()
    found = fork(shop, main=lambda: worker.main(child)).report()

    assert (found.code, shop.board.rows[0].severed_generation) == (EXIT_RESTART, child.generation)


def test_jobs_enqueue_into_the_cluster_of_their_worker(shop: WorkerKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any address: ``tenure.enqueue`` and the context go where the worker's runs come from."""
    monkeypatch.delenv("TENURE_REDIS__URL", raising=False)
    either(shop, "child", lambda context: context.run_id)
    either(shop, "parent", lambda _context: tenure.enqueue("child", run_id="by-module"))
    process = start(shop)
    shop.enqueue("parent")
    wait_until(lambda: shop.ended(2), what="both runs")

    process.signal(signal.SIGTERM)

    assert process.report().results["by-module"] == "by-module"


def test_signals_of_a_process_that_a_job_forked_are_its_own(shop: WorkerKit) -> None:
    """It took them for the worker: none ended it, and the loop of a coroutine pool heard them in its place."""

    def spawn(_context: Context) -> list[int | None]:
        codes = []
        for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR2, signal.SIGALRM):
            process = multiprocessing.get_context("fork").Process(target=threading.Event().wait)
            process.start()
            assert process.pid is not None
            os.kill(process.pid, number)
            process.join(WAIT_S_MAX / 10)
            codes.append(process.exitcode)
            process.kill()
        return codes

    either(shop, "spawns", spawn, timeout=WAIT_S_MAX)
    either(shop, "next", lambda _context: "done")
    process = start(shop)
    run_id = shop.enqueue("spawns")
    wait_until(lambda: shop.ended(1), what="the run")
    shop.enqueue("next")
    wait_until(lambda: shop.ended(2), what="the next run")

    process.signal(signal.SIGTERM)

    assert process.report().results[run_id] == [-signal.SIGTERM, -signal.SIGQUIT, -signal.SIGUSR2, -signal.SIGALRM]


def test_a_signal_that_comes_during_a_fork_is_not_lost(shop: WorkerKit) -> None:
    """A hook of the fork would lose the exception: it is raised behind it."""

    def quit_at_fork() -> int:
        sent: list[int] = []

        def quit_once() -> None:
            if not sent:
                sent.append(os.getpid())
                os.kill(os.getpid(), signal.SIGQUIT)

        os.register_at_fork(before=quit_once)  # runs when signals are held
        return worker.main(shop.child())

    @job("forks-async")
    async def forks_async() -> None:
        fork_and_reap()
        await asyncio.Event().wait()

    @job("forks-sync")
    def forks_sync() -> None:
        fork_and_reap()
        linger()

    def fork_and_reap() -> None:
        process = multiprocessing.get_context("fork").Process(target=int)
        process.start()
        process.join()

    is_async = shop.settings.workers["test"].kind.value == Kind.ASYNC.value
    process = fork(shop, main=quit_at_fork)
    shop.enqueue("forks-async" if is_async else "forks-sync")

    assert process.wait() == EXIT_QUIT
    process.close()


def test_a_quit_hands_the_run_back_and_leaves(shop: WorkerKit) -> None:
    """Whatever the job waits for, as long as it can be interrupted."""
    either(shop, "endless", lambda _context: "never")
    is_async = shop.settings.workers["test"].kind.value == Kind.ASYNC.value

    @job("stuck-async")
    async def stuck_async() -> None:
        await asyncio.Event().wait()

    @job("stuck-sync")
    def stuck_sync() -> None:
        linger()

    process = start(shop)
    run_id = shop.enqueue("stuck-async" if is_async else "stuck-sync")
    wait_until(lambda: shop.board.rows[0].busy == 1, what="the start")
    shop.board.header.phase = Phase.KILLING
    process.signal(signal.SIGQUIT)
    found = process.report()

    assert (found.code, found.states, found.sessions) == (0, {run_id: "queued"}, [])
    assert found.charges == {run_id: "0,0,1"}


def test_an_idle_process_beats_and_says_when_redis_answered(shop: WorkerKit) -> None:
    """The parent takes a still beat for a hang."""
    process = start(shop)
    row = shop.board.rows[0]
    first = row.beat_ns
    wait_until(lambda: row.beat_ns > first and row.redis_ok_ns > 0, what="another beat")
    gaps = []
    for _ in range(5):
        last = row.beat_ns
        wait_until(lambda last=last: row.beat_ns > last, what="another beat")
        gaps.append(row.beat_ns - last)
    process.signal(signal.SIGTERM)
    process.report()

    assert sorted(gaps)[2] < 5_000_000_000


def test_a_condemned_process_asks_to_be_restarted(shop: WorkerKit) -> None:
    """Exit code 75: nobody's failure."""
    process = start(shop)
    wait_until(lambda: shop.store.run(shop.sessions.list()), what="the session")
    (session,) = shop.store.run(shop.sessions.list())
    shop.store.run(shop.sessions.condemn(session, None))
    either(shop, "plain", lambda _context: None)
    shop.enqueue("plain")

    assert process.report().code == EXIT_RESTART


def test_a_near_hard_deadline_is_told_to_the_parent(shop: WorkerKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent looks every half second; what is nearer it must be told. This test is the parent."""
    assert heartbeat.NEAR_NS > SECOND_NS // 2
    monkeypatch.setattr(heartbeat, "NEAR_NS", 60 * SECOND_NS)  # time for a job on a busy machine
    told = threading.Event()
    before = signal.signal(signal.SIGURG, lambda *_: told.set())
    try:
        either(shop, "short", lambda context: context.remaining_s(), timeout=40)
        process = start(shop)
        told.clear()
        shop.enqueue("short")
        wait_until(told.is_set, what="the signal")
        wait_until(lambda: shop.ended(1), what="the run")
        process.signal(signal.SIGTERM)
        (remaining_s,) = process.report().results.values()
    finally:
        signal.signal(signal.SIGURG, before)

    assert 0 < remaining_s <= 40


def test_a_job_that_ends_the_process_leaves_the_blame_on_the_scoreboard(shop: WorkerKit) -> None:
    """Its session stays open and the run stays held, until the agent has given it back."""
    either(shop, "fatal", lambda _context: os._exit(7), timeout=100)
    process = start(shop)
    run_id = shop.enqueue("fatal")

    assert process.wait() == 7
    process.close()
    (entry,) = shop.board.inflight[0].entries()
    assert (entry.state, entry.attempt) == (RunState.STARTED, 1)
    assert entry.deadline_ns == shop.board.rows[0].deadline_ns > 0
    assert shop.state(run_id) == "running"
    assert len(shop.store.run(shop.sessions.list())) == 1


async def _leave() -> None:
    sys.exit("no such tenant")


async def _stop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


async def _call_back() -> None:
    asyncio.get_running_loop().call_soon(sys.exit, 3)
    await asyncio.sleep(0.01)


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("part", "outcome"), [(_leave, "dead"), (_stop, "ok"), (_call_back, "ok")], ids=["task", "stop", "callback"]
)
def test_a_task_of_a_job_that_exits_ends_no_worker(
    server: Server, jobs: Registry, part: Callable[[], Awaitable[None]], outcome: str
) -> None:
    """The event loop hands SystemExit of a task to whoever runs it, not only to the job that waits for it."""
    shop = WorkerKit(server, jobs, Kind.ASYNC)

    @job("leaving", retry=Retry(attempts=1))
    async def leaving() -> None:
        await asyncio.gather(part(), asyncio.sleep(0))

    @job("beside")
    async def beside() -> str:
        while shop.board.rows[0].done == 0:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
        return "done"

    process = start(shop)
    innocent = shop.enqueue("beside")
    wait_until(lambda: shop.board.rows[0].busy == 1, what="the run beside it")
    run_id = shop.enqueue("leaving")
    wait_until(lambda: shop.ended(2), what="both runs")
    process.signal(signal.SIGTERM)
    found = process.report()

    assert (found.code, sorted(found.history)) == (0, sorted([(run_id, outcome, 1), (innocent, "ok", 1)]))
    assert found.sessions == []


def test_declaring_jobs_loads_no_redis_client() -> None:
    """``import supervisor`` in a program that only declares jobs stays light."""
    code = (
        "import sys; from tenure import Context, Retry, job\n"
        "@job('a')\n"
        "def a(context: Context, n: int) -> None: ...\n"
        "bad = {'redis', 'hiredis', 'uvloop', 'aiohttp', 'prometheus_client', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
