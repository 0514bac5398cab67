"""The rows about producers: how fast runs come in, and how soon an idle worker starts one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

import uvloop

from bench.schedules_board import cpu_s
from bench.schedules_table import Measure, Row, Told, percentile
from bench.workers_world import ASYNC, CLUSTER, QUEUE, Scale, World
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.producer.producer import Producer
from tenure import Run, job
from tests.kit.waiting import wait_until

Job = Callable[[], Awaitable[Any]]
SINGLE_PART = 10
CALLERS = 100
PAUSE_S = 0.03


@cache
def _register() -> tuple[Job, Job]:
    """Register what the producer names: nothing to do, and to tell the time. Here nobody executes it."""

    @job("bench.noop", queue=QUEUE)
    async def noop() -> None: ...

    @job("bench.now", queue=QUEUE)
    async def now() -> int:
        return 0

    return noop, now


def _producer(world: World) -> Producer:
    return Producer(RedisSettings.model_validate({"url": world.url}), cluster=CLUSTER)


def enqueue_rows(scale: Scale, told: Told) -> list[Row]:
    """Measure one producer: many at once, from one coroutine, from a hundred of one loop, and from a function."""
    noop, _ = _register()
    with World() as world:
        producer = _producer(world)
        producer.enqueue(noop)
        told("batches")
        before_s, begun = time.process_time(), time.perf_counter()
        producer.enqueue_many(noop, ({} for _ in range(scale.runs)))
        batch = scale.runs / (time.perf_counter() - begun)
        own_us = 1e6 * (time.process_time() - before_s) / scale.runs
        count = scale.runs // SINGLE_PART
        told("one by one, awaited")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            awaited = runner.run(_awaited(producer, noop, count))
        told(f"from {CALLERS} coroutines")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            together = runner.run(_together(producer, noop, scale.runs // CALLERS))
        told("one by one")
        begun = time.perf_counter()
        for _ in range(count):
            producer.enqueue(noop)
        blocking = count / (time.perf_counter() - begun)
        producer.close()
    note = f"{own_us:.1f} µs CPU of the producer per run"
    return [
        Row("batch enqueue, one producer", (Measure(batch, 100_000, "/s", at_least=True),), note),
        Row("single enqueue, awaited", (Measure(awaited, 5_000, "/s", at_least=True),), "one after the other, uvloop"),
        Row(f"enqueue, {CALLERS} coroutines", (Measure(together, 50_000, "/s", at_least=True),), "of one loop, uvloop"),
        Row("single enqueue, blocking", (Measure(blocking, 5_000, "/s", at_least=True),), "one after the other"),
    ]


async def _together(producer: Producer, noop: Job, each: int) -> float:
    async def caller() -> None:
        for _ in range(each):
            await producer.enqueue_async(noop)

    await producer.enqueue_async(noop)
    begun = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    rate = CALLERS * each / (time.perf_counter() - begun)
    await producer.close_async()
    return rate


async def _awaited(producer: Producer, noop: Job, count: int) -> float:
    await producer.enqueue_async(noop)
    begun = time.perf_counter()
    for _ in range(count):
        await producer.enqueue_async(noop)
    rate = count / (time.perf_counter() - begun)
    await producer.close_async()
    return rate


def result_rows(scale: Scale, told: Told) -> list[Row]:
    """Measure from the last line of a job to its caller, who waits for the result, in an idle worker."""
    found_ms = []
    _, now = _register()
    with World() as world:
        world.start(ASYNC)
        producer = _producer(world)
        for number in range(scale.rounds + 3):
            if number % 50 == 0:
                told(f"round {number} of {scale.rounds}")
            run = Run[int](producer.enqueue(now, delay=PAUSE_S), "bench.now", QUEUE, producer)
            ended_ns = run.result(timeout=60)
            found_ms.append((time.time_ns() - ended_ns) / 1e6)
        producer.close()
    measured = found_ms[3:]
    p50, p99 = percentile(measured, 0.5), percentile(measured, 0.99)
    goals = (Measure(p50, 3, "ms", name="p50 "), Measure(p99, 20, "ms", name="p99 "))
    return [Row("idle: end of a job to the caller who waits", goals, f"{len(measured)} rounds")]


def latency_rows(scale: Scale, told: Told) -> list[Row]:
    """Measure from the call of ``enqueue`` to the first line of the job, in an idle worker."""
    found_ms = []
    _, now = _register()
    with World() as world:
        tree = world.start(ASYNC)
        producer = _producer(world)
        worker = tree.slot_pid("worker-io-0")
        for number in range(scale.rounds + 3):
            if number % 50 == 0:
                told(f"round {number} of {scale.rounds}")
            time.sleep(PAUSE_S)  # until the worker listens at the bell again
            asked_ns = time.time_ns()
            key = world.keys.result(producer.enqueue(now))
            wait_until(lambda key=key: world.raw.exists(key), what="the run")
            found_ms.append((int(world.raw.get(key) or 0) - asked_ns) / 1e6)
        before_s, begun = cpu_s(worker), time.perf_counter()
        time.sleep(5)
        idle = 100 * (cpu_s(worker) - before_s) / (time.perf_counter() - begun)
        producer.close()
    measured = found_ms[3:]
    p50, p99 = percentile(measured, 0.5), percentile(measured, 0.99)
    return [
        Row(
            "idle: enqueue to first line of the job",
            (Measure(p50, 1.5, "ms", name="p50 "), Measure(p99, 10, "ms", name="p99 ")),
            f"{len(measured)} rounds; an idle worker uses {idle:.2f} % of a core",
        )
    ]
