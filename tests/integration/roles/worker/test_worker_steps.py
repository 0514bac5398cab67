"""Steps of a run: what is done stays done, through failures, crashes and another life of the run."""

from __future__ import annotations

import asyncio
import os
import signal
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Envelope, Kind, Release
from supervisor.roles.worker.attempt.steps import StepError
from supervisor.roles.worker.pools.sync_pool import SyncPool
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.run_records import STEPS_MAX, StepCalls, Tallies
from supervisor.store.wire.poll import fence_parts
from tenure import Context, Retry, job
from tests.integration.roles.worker.forked import FaultySync, fork
from tests.integration.roles.worker.worker_fixture import WorkerKit, until
from tests.kit.servers import RealServer, Server, on_both

STEP = b'{"status":"done","number":1,"attempt":1}'
KEPT_MS = 600_000
AT_ONCE = Retry(attempts=3, base_s=0.001, cap_s=0.001)


def producer(shop: WorkerKit) -> Producer:
    """Return a worker's own way to Redis, as it gives it to its jobs."""
    return Producer(
        RedisSettings(),
        cluster=shop.server.keys.cluster,
        open_store=shop.server.store,
        open_async_store=shop.server.async_store,
    )


def recorded(shop: WorkerKit, run_id: str) -> dict[str, Any]:
    """Return the status of each step, in their order."""
    steps = shop.store.run(Tallies(shop.server.keys).steps(run_id))
    return {name: (step["status"], step.get("attempt"), step.get("result")) for name, step in steps.items()}


async def test_a_step_that_spawned_is_called_again_and_its_runs_exist_once(shop: WorkerKit) -> None:
    """Those of the attempt that failed never existed; the step around it and what it calls spawn, too."""
    called: list[str] = []

    @job("part")
    async def part(number: int) -> None: ...

    @job("plan", retry=AT_ONCE)
    async def plan(ctx: Context) -> int:
        def listing() -> list[int]:
            called.append("listing")
            return [1, 2]

        async def inner() -> None:
            called.append("inner")
            for number in await ctx.step_async("listing", listing):
                ctx.spawn("part", {"number": number}, key=number)

        async def outer() -> int:
            await ctx.step_async("inner", inner)
            return 7

        found: int = await ctx.step_async("outer", outer)
        if called.count("inner") == 1:
            raise ConnectionError("after the steps")
        return found

    run_id = shop.enqueue("plan")
    async with shop.worker(producer=producer(shop)):
        await until(lambda: len([end for end in shop.history() if end[1] == "ok"]) == 3, what="plan and parts")

    assert called == ["inner", "listing", "inner"]
    assert sorted(end[0] for end in shop.history() if end[1] == "ok") == sorted([run_id, f"{run_id}/1", f"{run_id}/2"])


async def test_a_later_attempt_goes_on_where_the_one_before_failed(shop: WorkerKit) -> None:
    """The charge of a credit card is not made again because the mail after it could not be sent."""
    called: list[str] = []

    async def charge(amount: int) -> dict[str, int]:
        called.append("charge")
        return {"receipt": amount}

    def send(receipt: int) -> None:
        called.append(f"send {receipt}")
        if len(called) < 4:
            raise ConnectionError("mail server is away")

    @job("order", retry=AT_ONCE)
    async def order(ctx: Context) -> int:
        receipt = await ctx.step_async("charge", charge, 5)
        await ctx.step_async("send", send, receipt=receipt["receipt"])
        return int(receipt["receipt"])

    run_id = shop.enqueue("order")
    way = producer(shop)
    async with shop.worker(producer=way):
        await until(lambda: shop.ended(3), what="the third attempt")
    await way.close_async()
    assert called == ["charge", "send 5", "send 5", "send 5"]
    assert shop.history() == [(run_id, "retry", 1), (run_id, "retry", 2), (run_id, "ok", 3)]
    assert recorded(shop, run_id) == {"charge": ("done", 1, {"receipt": 5}), "send": ("done", 3, None)}
    assert 0 < shop.server.raw().pttl(shop.server.keys.steps(run_id)) <= 86_400_000


async def test_a_failed_step_tells_why_and_may_be_left_out(shop: WorkerKit) -> None:
    """Stages that go on after a failure are a try around a step."""

    def fail() -> None:
        raise ValueError("no such domain")

    @job("stages", retry=Retry(attempts=1))
    async def stages(ctx: Context) -> None:
        for name in ("first", "second"):
            try:
                await ctx.step_async(name, fail if name == "first" else dict)
            except ValueError:
                ctx.error("stage", name)

    run_id = shop.enqueue("stages")
    way = producer(shop)
    async with shop.worker(producer=way):
        await until(lambda: shop.ended(1), what="the run")
    await way.close_async()
    steps = shop.store.run(Tallies(shop.server.keys).steps(run_id))
    assert (steps["first"]["status"], steps["first"]["error"]) == ("failed", "ValueError: no such domain")
    assert (steps["second"]["status"], steps["second"]["result"]) == ("done", {})


def test_a_step_that_was_noted_survives_the_death_of_its_process(real_server: RealServer, jobs: Registry) -> None:
    """Kill -9 in the second step: the first is not repeated, the second is."""
    plant = WorkerKit(Server(real_server), jobs, Kind.SYNC)
    raw = plant.server.raw()

    def note(name: str) -> str:
        raw_here = plant.server.raw()
        raw_here.rpush(f"{plant.server.keys.prefix}called", name)
        if name == "b" and raw_here.llen(f"{plant.server.keys.prefix}called") == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return name.upper()

    @job("three")
    def three(ctx: Context) -> list[str]:
        found = [ctx.step(name, note, name) for name in ("a", "b", "c")]
        os.kill(os.getpid(), signal.SIGTERM)
        return found

    def main() -> int:
        store: Any = FaultySync(plant.server.store(), lambda _script: "")
        return SyncPool(plant.runtime(producer=producer(plant)), store).run()

    run_id = plant.enqueue("three")
    assert fork(plant, main=main).wait() == -signal.SIGKILL
    session = plant.child().session
    assert plant.store.run(plant.sessions.condemn(session, None))
    plant.store.run(plant.queues.release_runs(session=session, items=[("default", run_id, Release.INTERRUPTED)]))
    plant.store.run(plant.sessions.bury(session))
    assert fork(plant, main=main).wait() == 0
    assert raw.lrange(f"{plant.server.keys.prefix}called", 0, -1) == [b"a", b"b", b"b", b"c"]
    assert [status for status, _, _ in recorded(plant, run_id).values()] == ["done"] * 3
    raw.close()
    plant.server.close()


def calls(shop: WorkerKit, run_id: str, attempt: int = 1, born: str = "0") -> StepCalls:
    """Return the calls of an attempt of session ``s``, fetched when the run that is on record was."""
    token = shop.store.raw.hget(shop.server.keys.queue("default").run, run_id) or b""
    fence = f"s|{attempt}|{fence_parts(token)[2]}"
    return StepCalls(shop.server.keys, run_id=run_id, queue="default", fence=fence, born=born)


@on_both("step_read", "step_write")
def test_only_the_attempt_that_executes_the_run_notes_its_steps(shop: WorkerKit) -> None:
    """A process that was taken for dead goes on for a moment: what it did then is not the run's."""

    @job("noop")
    async def noop() -> None: ...

    run_id = shop.put(Envelope(id="r", template=shop.registry.get("noop").template({})))
    assert shop.store.run(calls(shop, run_id).write("a", STEP, ttl_ms=KEPT_MS)) == 0
    shop.suspect(kind=Kind.ASYNC)  # has fetched it, and given it back
    assert shop.store.run(calls(shop, run_id).write("a", STEP, ttl_ms=KEPT_MS)) == 0
    shop.store.run(shop.sessions.open("s", {"pid": 1}))
    turn = {"kind": Kind.ASYNC, "queues": ["default"], "want": 1, "want_suspect": False}
    shop.store.run(shop.queues.turn(session="s", seq=1, **turn))
    assert shop.store.run(calls(shop, run_id).write("a", STEP, ttl_ms=KEPT_MS)) == 1
    assert shop.store.run(calls(shop, run_id, attempt=2).write("a", STEP, ttl_ms=KEPT_MS)) == 0
    assert list(shop.store.run(calls(shop, run_id).read(ttl_ms=KEPT_MS))) == ["a"]
    key = shop.server.keys.steps(run_id)
    shop.store.raw.pexpire(key, KEPT_MS // 2)
    assert list(shop.store.run(calls(shop, run_id).read(ttl_ms=KEPT_MS))) == ["a"]
    assert shop.store.raw.pttl(key) > KEPT_MS // 2, "a run that comes again and again loses no step"
    assert shop.store.run(calls(shop, run_id, born="1").read(ttl_ms=KEPT_MS)) == {}
    assert shop.store.run(calls(shop, run_id, born="1").write("b", STEP, ttl_ms=KEPT_MS)) == 1
    assert list(recorded(shop, run_id)) == ["b"]


def test_steps_have_a_limit_in_number_and_size(shop: WorkerKit) -> None:
    """What a run keeps of its steps has a size, whatever it does."""

    @job("noop")
    async def noop() -> None: ...

    shop.put(Envelope(id="r", template=shop.registry.get("noop").template({})))
    shop.store.run(shop.sessions.open("s", {"pid": 1}))
    turn = {"kind": Kind.ASYNC, "queues": ["default"], "want": 1, "want_suspect": False}
    shop.store.run(shop.queues.turn(session="s", seq=1, **turn))
    for number in range(STEPS_MAX):
        assert shop.store.run(calls(shop, "r").write(f"n{number}", STEP, ttl_ms=KEPT_MS)) == 1
    assert shop.store.run(calls(shop, "r").write("n0", STEP, ttl_ms=KEPT_MS)) == 1
    assert shop.store.run(calls(shop, "r").write("more", STEP, ttl_ms=KEPT_MS)) == -1
    assert shop.store.run(calls(shop, "r").write("n0", b"x" * 300_000, ttl_ms=KEPT_MS)) == -1


def test_without_a_worker_steps_are_called_and_kept_for_the_test() -> None:
    """A test of a job needs no Redis; mistakes are told where they are made."""
    ctx = Context(run_id="r", job="j")
    assert ctx.step("a", lambda: (1, 2)) == [1, 2]
    with pytest.raises(StepError, match="twice"):
        ctx.step("a", dict)
    with pytest.raises(StepError, match="must be 1 to 100"):
        ctx.step("no space", dict)
    with pytest.raises(TypeError, match="not JSON"):
        ctx.step("object", object)

    async def coroutine() -> None: ...

    with pytest.raises(TypeError, match="step_async"):
        ctx.step("coroutine", coroutine)
    assert ctx.steps is not None
    assert {name: step.status for name, step in ctx.steps.records.items()} == {
        "a": "done",
        "object": "failed",
        "coroutine": "failed",
    }


async def test_steps_of_one_name_at_the_same_time_are_refused() -> None:
    """Also in another thread; a step that was cancelled may be called again."""
    ctx = Context(run_id="r", job="j")
    called = []

    async def charge() -> int:
        called.append(1)
        await asyncio.sleep(0)
        with pytest.raises(StepError, match="twice"):
            await asyncio.to_thread(ctx.step, "charge", dict)
        return len(called)

    cancelled = asyncio.create_task(ctx.step_async("charge", asyncio.Event().wait))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)

    results = await asyncio.gather(*(ctx.step_async("charge", charge) for _ in range(3)), return_exceptions=True)

    assert [each for each in results if not isinstance(each, StepError)] == [1]
    assert len(results) == 3


def test_a_step_may_return_a_pydantic_model() -> None:
    """A result of a job may be one; a step's has the form that JSON gives it, like all others."""

    class Charge(BaseModel):
        amount: Decimal

    ctx = Context(run_id="r", job="j")

    assert ctx.step("charge", lambda: [Charge(amount=Decimal("1.50"))]) == [{"amount": "1.50"}]
