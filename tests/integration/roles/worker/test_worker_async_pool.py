"""The async pool on both servers: what it takes it ends, once on record."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import msgspec
import pytest

from supervisor.core.model import Envelope, Kind, Template
from supervisor.core.supervision.states import ChildState, RunState
from supervisor.roles.worker.attempt.executor import Execution
from supervisor.roles.worker.polling import poll
from tenure import Context, Retry, job
from tests.integration.roles.worker.worker_fixture import WorkerKit, until


async def test_a_run_is_executed_once_and_leaves_only_its_result(shop: WorkerKit) -> None:
    """The plain case, down to the scoreboard."""

    @job("add")
    async def add(context: Context, a: int, b: int = 1) -> int:
        return a + b

    run_id = shop.enqueue("add", a=2)
    async with shop.worker():
        await until(lambda: shop.ended(1), what="the run")

    assert shop.history() == [(run_id, "ok", 1)]
    assert shop.store.raw.get(shop.server.keys.result(run_id)) == b"3"
    assert shop.board.rows[0].done == 1
    shop.assert_clean()


async def test_a_failed_run_is_tried_again_until_it_succeeds(shop: WorkerKit) -> None:
    """Each attempt is charged and remembered."""
    attempts = []

    @job("shaky", retry=Retry(attempts=3, base_s=0.01))
    async def shaky(context: Context) -> None:
        attempts.append((context.attempt, context.fence))
        if context.attempt < 3:
            raise ValueError("not yet")

    run_id = shop.enqueue("shaky")
    async with shop.worker():
        await until(lambda: shop.ended(3), what="three attempts")

    assert attempts == [(1, 1), (2, 2), (3, 3)]
    assert shop.history() == [(run_id, "retry", 1), (run_id, "retry", 2), (run_id, "ok", 3)]
    shop.assert_clean()


async def test_a_run_is_dead_after_its_last_attempt_and_says_why(shop: WorkerKit) -> None:
    """Kept with its error, for a person to look at."""

    @job("broken", retry=Retry(attempts=2, base_s=0))
    async def broken() -> None:
        raise ValueError("never")

    run_id = shop.enqueue("broken")
    async with shop.worker():
        await until(lambda: shop.state(run_id) == "dead", what="the end")

    error = msgspec.json.decode(shop.store.raw.hget(shop.server.keys.queue("default").err, run_id))
    assert (error["type"], error["message"]) == ("ValueError", "never")
    assert "in broken" in error["traceback"]
    shop.assert_clean()


async def test_an_ended_attempt_is_freed_without_the_garbage_collector(shop: WorkerKit) -> None:
    """One that waits for a collection costs every run its share of that collection."""

    @job("plain")
    async def plain() -> None: ...

    @job("with-context")
    async def with_context(context: Context) -> None:
        print("a line that is kept")  # noqa: T201 - its output leads back to the attempt

    @job("failing", retry=Retry(attempts=1))
    async def failing(context: Context) -> None:
        raise ValueError

    names = ("plain", "with-context", "failing")
    for name in names:
        shop.enqueue(name)
    gc.collect()
    gc.disable()
    try:
        async with shop.worker():
            await until(lambda: shop.ended(3), what="the runs")
        assert [each for each in gc.get_objects() if isinstance(each, Execution) and each.spec.name in names] == []
    finally:
        gc.enable()


async def test_a_soft_timeout_cancels_the_job_and_counts_as_a_failure(shop: WorkerKit) -> None:
    """The job cleans up; the record says what happened."""
    cleaned = []

    @job("slow", timeout=60, soft_timeout=0.05, retry=Retry(attempts=1))
    async def slow(context: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(context.is_cancelled)

    run_id = shop.enqueue("slow")
    async with shop.worker():
        await until(lambda: shop.state(run_id) == "dead", what="the soft timeout")

    error = msgspec.json.decode(shop.store.raw.hget(shop.server.keys.queue("default").err, run_id))
    assert (error["type"], error["message"]) == ("SoftTimeout", "still running after 0.05 s")
    assert cleaned == [True]


async def test_a_job_that_returns_when_it_is_cancelled_has_finished(shop: WorkerKit) -> None:
    """What there is so far may be worth keeping; the job decides."""

    @job("partial", timeout=60, soft_timeout=0.05)
    async def partial() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "so far"
        return "all"

    run_id = shop.enqueue("partial")
    async with shop.worker():
        await until(lambda: shop.ended(1), what="the run")

    assert shop.history() == [(run_id, "ok", 1)]
    assert shop.store.raw.get(shop.server.keys.result(run_id)) == b'"so far"'


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        SystemExit(["a list"]),
        KeyboardInterrupt(),
        GeneratorExit(),
        BaseException("bare"),
        asyncio.CancelledError(),
        MemoryError(),
    ],
    ids=repr,
)
async def test_whatever_a_job_raises_ends_its_own_run_only(shop: WorkerKit, error: BaseException) -> None:
    """SystemExit would end the process, KeyboardInterrupt the loop."""

    @job("bad", retry=Retry(attempts=1))
    async def bad() -> None:
        raise type(error)(*error.args)  # a new one: its traceback would keep the worker alive with the parameter

    @job("good")
    async def good() -> None:
        await asyncio.sleep(0)

    bad_id, good_id = shop.enqueue("bad"), shop.enqueue("good")
    async with shop.worker():
        await until(lambda: shop.ended(2), what="both")
        later_id = shop.enqueue("good")
        await until(lambda: shop.ended(3), what="one more")

    assert set(shop.history()) == {(bad_id, "dead", 1), (good_id, "ok", 1), (later_id, "ok", 1)}
    shop.assert_clean()


async def test_what_a_job_leaves_behind_harms_nobody(shop: WorkerKit, logs: list[Any]) -> None:
    """A stray task that fails, and a finaliser that raises, are logged and forgotten."""

    class Finalised:
        def __del__(self) -> None:
            asyncio.get_running_loop().call_exception_handler({"message": "finaliser failed"})

    @job("untidy")
    async def untidy() -> None:
        async def stray() -> None:
            raise ValueError("nobody awaits me")

        asyncio.ensure_future(stray())  # noqa: RUF006 - left behind on purpose
        Finalised()

    shop.enqueue("untidy")
    async with shop.worker():
        await until(lambda: shop.ended(1), what="the run")
        await until(
            lambda: sum(entry["event"] == "stray_exception" for entry in logs) >= 1, what="the finaliser's line"
        )

    shop.assert_clean()


async def test_a_run_of_an_unknown_job_waits_five_seconds_uncharged(shop: WorkerKit) -> None:
    """Another replica, or the next deploy, may know it."""
    run_id = shop.put(Envelope(id="stranger", template=Template(job="nobody", kind=Kind.ASYNC)))
    async with shop.worker():
        await until(lambda: shop.state(run_id) not in {"queued", "running"}, what="its return")

    keys = shop.server.keys.queue("default")
    assert shop.store.raw.zscore(keys.later, run_id) is not None
    assert shop.store.raw.hget(keys.att, run_id) is None
    assert shop.history() == []
    shop.assert_clean()


async def test_a_run_of_the_other_kind_goes_to_the_other_pool(shop: WorkerKit) -> None:
    """The job was a coroutine when the run was made, and is a function now."""

    @job("function")
    def function() -> None: ...

    run_id = shop.put(Envelope(id="turned", template=Template(job="function", kind=Kind.ASYNC)))
    ready = shop.server.keys.queue("default").ready(Kind.SYNC, 1)
    async with shop.worker():
        await until(lambda: shop.store.raw.lrange(ready, 0, -1) == [run_id.encode()], what="its move")

    shop.assert_clean()


async def test_the_scoreboard_says_what_runs_and_until_when(shop: WorkerKit) -> None:
    """The parent kills by the deadline, the agent blames by the table."""
    started, finish = asyncio.Event(), asyncio.Event()

    @job("long", timeout=100)
    async def long() -> None:
        started.set()
        await finish.wait()

    shop.enqueue("long")
    async with shop.worker():
        await until(started.is_set, what="the start")
        row, now_ns = shop.board.rows[0], shop.child().clock.elapsed_ns()
        (entry,) = shop.board.inflight[0].entries()
        seen = (row.child_generation, row.child_state, row.busy, entry.state, entry.attempt)
        assert 0 < row.deadline_ns - now_ns <= 100 * 10**9
        assert entry.deadline_ns == row.deadline_ns
        assert 0 <= now_ns - row.redis_ok_ns < 60 * 10**9
        finish.set()

    assert seen == (1, ChildState.READY, 1, RunState.STARTED, 1)
    shop.assert_clean()


async def test_at_most_as_many_run_at_once_as_the_pool_has_slots(shop: WorkerKit) -> None:
    """And all of them are used."""
    running = most = 0

    @job("counted")
    async def counted() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    for _ in range(23):
        shop.enqueue("counted")
    async with shop.worker():
        await until(lambda: shop.ended(23), what="all")

    assert most == 5
    assert {outcome for _, outcome, _ in shop.history()} == {"ok"}
    shop.assert_clean()


async def test_a_suspect_runs_alone(shop: WorkerKit) -> None:
    """It may have killed a process; the next one should have nothing else to lose."""
    running: set[str] = set()
    company: dict[str, int] = {}

    @job("watched")
    async def watched(context: Context) -> None:
        running.add(context.run_id)
        for run_id in running:
            company[run_id] = max(company.get(run_id, 0), len(running))
        await asyncio.sleep(0.01)
        running.discard(context.run_id)

    ids = [shop.enqueue("watched") for _ in range(8)]
    shop.suspect(*ids[:2], kind=Kind.ASYNC)
    async with shop.worker():
        await until(lambda: shop.ended(8), what="all")

    assert [company[run_id] for run_id in ids[:2]] == [1, 1]
    shop.assert_clean()


async def test_room_is_made_no_longer_than_a_suspect_waits(shop: WorkerKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once another replica had taken it, nothing began beside long jobs for minutes."""
    monkeypatch.setattr(poll, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(poll, "QUIET_S", 1000.0)
    finish = asyncio.Event()

    @job("long")
    async def long() -> None:
        await finish.wait()

    @job("plain")
    async def plain() -> None: ...

    shop.enqueue("long")
    async with shop.worker():
        await until(lambda: shop.board.rows[0].busy, what="the long job")
        accused = shop.enqueue("plain")
        shop.suspect(accused, kind=Kind.ASYNC)
        await until(lambda: shop.board.rows[0].suspect == poll.Part.MAKES_ROOM, what="it to make room")
        shop.store.run(shop.sessions.open("other", {"pid": 1}))
        call = shop.queues.turn(session="other", seq=1, kind=Kind.ASYNC, queues=["default"], want=1, want_suspect=True)
        assert [run.envelope.id for run in shop.store.run(call).runs] == [accused]
        plain_id = shop.enqueue("plain")
        await until(lambda: plain_id in [run_id for run_id, _, _ in shop.history()], what="the other run")
        finish.set()


async def test_a_job_may_enqueue_further_runs(shop: WorkerKit) -> None:
    """Through its context, without blocking the loop; the blocking way is refused."""
    from supervisor.settings.sections.models import RedisSettings  # noqa: PLC0415
    from supervisor.store.producer.producer import Producer  # noqa: PLC0415

    @job("child")
    async def child(number: int) -> int:
        return number

    @job("parent")
    async def parent(context: Context) -> str:
        with pytest.raises(RuntimeError, match=r"await context\.enqueue_async"):
            context.enqueue("child", {"number": 1})
        return await context.enqueue_async("child", {"number": 5}, run_id="the-child")

    producer = Producer(RedisSettings(), cluster=shop.server.keys.cluster, open_async_store=shop.server.async_store)
    shop.enqueue("parent")
    async with shop.worker(producer=producer):
        await until(lambda: shop.ended(2), what="both")
    await producer.close_async()

    assert shop.store.raw.get(shop.server.keys.result("the-child")) == b"5"
