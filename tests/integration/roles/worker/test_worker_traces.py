"""The trace that a run belongs to, without OpenTelemetry: what becomes of a traceparent in a worker."""

from __future__ import annotations

from typing import Any

import msgspec
import structlog

from supervisor.core.model import Envelope
from supervisor.telemetry.run_context import current_run
from tenure import Context, job
from tests.integration.roles.worker.worker_fixture import WorkerKit, until
from tests.unit.roles.worker.executor_stage import fetched

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"


async def test_without_tracing_a_trace_passes_through(shop: WorkerKit) -> None:
    """The job can hand it on, what it spawns and enqueues carries it, and its lines name it."""
    seen: list[Any] = []

    @job("child")
    async def child(ctx: Context) -> None:
        seen.append(ctx.traceparent)

    @job("run")
    async def run(ctx: Context) -> None:
        seen.append(ctx.traceparent)
        seen.append((current_run() or {})["trace_id"])
        ctx.spawn("child")
        await ctx.enqueue_async("child")

    producer = shop.producer()
    await producer.enqueue_async("run", traceparent=GIVEN)
    async with shop.worker(producer=producer):
        await until(lambda: shop.ended(3), what="all")
    await producer.close_async()

    assert seen == [GIVEN, TRACE, GIVEN, GIVEN]


async def test_a_malformed_trace_is_dropped_and_the_run_goes_on(shop: WorkerKit) -> None:
    """By the producer, and by a worker that meets one all the same."""
    seen: list[Any] = []

    @job("run")
    async def run(ctx: Context) -> None:
        seen.append((ctx.traceparent, "trace_id" in (current_run() or {})))

    producer = shop.producer()
    await producer.enqueue_async("run", traceparent="00-nonsense")
    shop.put(Envelope(id="r", template=shop.registry.get("run").template({}), traceparent="00-nonsense"))
    async with shop.worker():
        await until(lambda: shop.ended(2), what="both")
    await producer.close_async()

    assert seen == [("", False)] * 2


async def test_the_line_that_ends_a_run_names_its_trace(shop: WorkerKit, logs: list[Any]) -> None:
    """And no other run's line does."""

    @job("run")
    async def run() -> None:
        structlog.get_logger().info("inside")

    template = shop.registry.get("run").template({})
    shop.put(Envelope(id="traced", template=template, traceparent=GIVEN))
    shop.put(Envelope(id="bare", template=template))
    async with shop.worker():
        await until(lambda: shop.ended(2), what="both")

    ends = {entry["run"]: entry.get("trace_id") for entry in logs if entry["event"] == "run_succeeded"}
    assert ends == {"traced": TRACE, "bare": None}


def test_a_plain_job_pays_nothing_for_a_trace(shop: WorkerKit) -> None:
    """Neither a context nor anything around it is made because a run has one."""

    @job("run")
    async def run() -> None: ...

    given = fetched("run")
    envelope = msgspec.structs.replace(given.envelope, traceparent=GIVEN)
    prepared = shop.runtime().executor.prepare(msgspec.structs.replace(given, envelope=envelope))

    assert (prepared.function, prepared.context) == (shop.registry.get("run").function, None)  # type: ignore[union-attr]
