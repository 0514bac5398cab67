"""Spans of OpenTelemetry around the runs of pools of both kinds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from supervisor.core.model import Envelope
from supervisor.roles.worker.attempt import middleware
from supervisor.roles.worker.attempt.tracing import Tracing
from supervisor.telemetry.run_context import current_run
from tenure import Context, Retry, job
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.worker_fixture import WorkerKit, until
from tests.kit.canary import CANARY

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"


class Lines(SpanExporter):
    """Writes what is exported to a file, for spans of a process that is gone afterwards."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def export(self, spans: Any) -> SpanExportResult:
        with self.path.open("a") as file:
            for span in spans:
                parent = f"{span.parent.span_id:016x}" if span.parent else ""
                ids = f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"
                facts = [span.name, *ids, parent, dict(span.attributes)]
                file.write(msgspec.json.encode(facts).decode() + "\n")
        return SpanExportResult.SUCCESS


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "_installed", [])


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    """A provider of this test."""
    made = TracerProvider()
    yield made
    made.shutdown()


@pytest.fixture
def spans(provider: TracerProvider) -> InMemorySpanExporter:
    """What ended, with tracing installed."""
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    Tracing(provider).install()
    return exporter


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


async def test_producer_run_and_child_are_one_trace(
    shop: WorkerKit, spans: InMemorySpanExporter, provider: TracerProvider
) -> None:
    """The span that is current where a run is enqueued is the parent of its span, and that one of its child's."""

    @job("child")
    async def child() -> None: ...

    @job("run")
    async def run(ctx: Context) -> None:
        ctx.spawn("child")

    producer = shop.producer()
    with provider.get_tracer("test").start_as_current_span("order") as order:
        run_id = await producer.enqueue_async("run")
    async with shop.worker():
        await until(lambda: shop.ended(2), what="both")
    await producer.close_async()

    (of_run,), (of_child,) = named(spans, "run"), named(spans, "child")
    assert parent_of(of_run) == order.get_span_context().span_id
    assert parent_of(of_child) == of_run.context.span_id
    assert {span.context.trace_id for span in spans.get_finished_spans()} == {order.get_span_context().trace_id}
    assert of_run.kind is SpanKind.CONSUMER
    assert of_run.attributes == {
        "tenure.run": run_id,
        "tenure.job": "run",
        "tenure.queue": "default",
        "tenure.attempt": 1,
        "tenure.outcome": "ok",
    }
    assert (of_child.attributes or {})["tenure.parent"] == run_id


async def test_runs_at_the_same_time_keep_their_traces_apart(shop: WorkerKit, spans: InMemorySpanExporter) -> None:
    """Coroutines of one process: each belongs to its own, those that no trace came with begin one each."""
    together = asyncio.Barrier(3)

    @job("meets")
    async def meets(ctx: Context) -> list[str]:
        await together.wait()
        return [ctx.traceparent, (current_run() or {})["trace_id"]]

    template = shop.registry.get("meets").template({})
    ids = [shop.put(Envelope(id=f"r{n}", template=template, traceparent=GIVEN if n == 0 else "")) for n in range(3)]
    async with shop.worker():
        await until(lambda: shop.ended(3), what="all")
        found = {run_id: msgspec.json.decode(shop.store.raw.get(shop.server.keys.result(run_id))) for run_id in ids}

    by_run = {(span.attributes or {})["tenure.run"]: span for span in named(spans, "meets")}
    for run_id, (traceparent, trace_id) in found.items():
        context = by_run[run_id].context
        assert traceparent.startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
        assert trace_id == f"{context.trace_id:032x}"
    assert (found["r0"][1], parent_of(by_run["r0"])) == (TRACE, int(SPAN, 16))
    assert (parent_of(by_run["r1"]), parent_of(by_run["r2"])) == (None, None)
    assert len({trace_id for _, trace_id in found.values()}) == 3


async def test_a_span_says_that_its_run_may_have_run_before(shop: WorkerKit, spans: InMemorySpanExporter) -> None:
    """After a loss of data these are the ones to look for; all others have no such attribute."""

    @job("again")
    async def again() -> None: ...

    template = shop.registry.get("again").template({})
    for run_id in ("flagged", "plain"):
        shop.put(Envelope(id=run_id, template=template, maybe_duplicate=run_id == "flagged"))
    async with shop.worker():
        await until(lambda: shop.ended(2), what="both")
    attributes = [span.attributes or {} for span in named(spans, "again")]
    assert {each["tenure.run"]: each.get("tenure.maybe_duplicate") for each in attributes} == {
        "flagged": True, "plain": None,
    }  # fmt: skip


async def test_retries_are_spans_of_their_own(shop: WorkerKit, spans: InMemorySpanExporter) -> None:
    """Each says how its attempt ended, all in the trace that the run belongs to."""

    @job("fails", retry=Retry(attempts=2, base_s=0.01))
    async def fails() -> None:
        raise ValueError("no answer")

    template = shop.registry.get("fails").template({})
    shop.put(Envelope(id="r", template=template, traceparent=GIVEN))
    async with shop.worker():
        await until(lambda: shop.ended(2), what="both attempts")

    first, second = named(spans, "fails")
    assert [(span.attributes or {})["tenure.attempt"] for span in (first, second)] == [1, 2]
    assert first.context.span_id != second.context.span_id
    assert [parent_of(span) for span in (first, second)] == [int(SPAN, 16)] * 2
    for span in (first, second):
        assert (span.attributes or {})["tenure.outcome"] == "failed"
        assert span.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_no_secret_of_an_exception_reaches_a_span(spans: InMemorySpanExporter, kind: str) -> None:
    """It is told with its stack, and what is secret in either is masked as in the log."""
    (tracing,) = middleware._installed
    context = Context(run_id="r", job="fails")

    def fails() -> None:
        raise ValueError(f"no answer from redis://user:{CANARY}@host/0, password={CANARY}")

    async def fails_async() -> None:
        fails()

    async def around() -> None:
        tracing.around(context, fails) if kind == "plain" else await tracing.around_async(context, fails_async)

    with pytest.raises(ValueError, match="no answer"):
        await around()

    (span,) = named(spans, "fails")
    (event,) = span.events
    told = dict(event.attributes or {})
    assert told["exception.type"] == "ValueError"
    assert told["exception.message"] == "no answer from redis://***@host/0, password=***"
    assert "in fails" in str(told["exception.stacktrace"])
    assert CANARY not in span.to_json()


async def test_a_soft_timeout_is_a_stop_and_no_exception(shop: WorkerKit, spans: InMemorySpanExporter) -> None:
    """The span of a run that was asked to end says so."""

    @job("slow", timeout=60, soft_timeout=0.02, retry=Retry(attempts=1))
    async def slow() -> None:
        await asyncio.Event().wait()

    run_id = shop.enqueue("slow")
    async with shop.worker():
        await until(lambda: shop.state(run_id) == "dead", what="the end")

    (span,) = named(spans, "slow")
    assert ((span.attributes or {})["tenure.outcome"], span.events) == ("stopped", ())
    assert span.status.status_code is StatusCode.ERROR


def test_plain_jobs_have_the_same(sync_shop: WorkerKit, tmp_path: Path) -> None:
    """A sync worker is a process of its own: its spans are there when it has left."""
    written = tmp_path / "spans"
    provider = TracerProvider()
    Tracing(provider).install()

    @job("child")
    def child() -> None: ...

    @job("run", retry=Retry(attempts=2, base_s=0.01))
    def run(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ValueError("no answer")
        ctx.spawn("child")
        return (current_run() or {})["trace_id"]

    template = sync_shop.registry.get("run").template({})
    sync_shop.put(Envelope(id="r", template=template, traceparent=GIVEN))
    provider.add_span_processor(SimpleSpanProcessor(Lines(written)))
    found = fork(sync_shop, ended=3).report()

    lines = [msgspec.json.decode(line) for line in written.read_text().splitlines()]
    (first, second), (of_child,) = [each for each in lines if each[0] == "run"], [e for e in lines if e[0] == "child"]
    assert found.results == {"r": TRACE}
    assert {each[1] for each in lines} == {TRACE}
    assert [each[3] for each in (first, second, of_child)] == [SPAN, SPAN, second[2]]
    assert [each[4]["tenure.outcome"] for each in (first, second, of_child)] == ["failed", "ok", "ok"]


def test_spans_are_sent_before_the_worker_is_gone(sync_shop: WorkerKit, tmp_path: Path) -> None:
    """They leave in batches, by a thread that the worker made itself: the last batch when it leaves."""
    written = tmp_path / "spans"

    class Late(Tracing):
        def _open(self) -> Any:
            provider = TracerProvider()
            provider.add_span_processor(BatchSpanProcessor(Lines(written), schedule_delay_millis=3_600_000))
            self._provider = provider
            return super()._open()

        def close(self, within_s: float) -> None:
            super().close(60 * within_s)  # on a machine that is busy with other tests

    Late().install()

    @job("run")
    def run() -> None: ...

    sync_shop.enqueue("run")
    assert fork(sync_shop, ended=1).report().code == 0

    assert [msgspec.json.decode(line)[0] for line in written.read_text().splitlines()] == ["run"]


async def test_an_exporter_that_hangs_does_not_hold_the_worker(
    shop: WorkerKit, provider: TracerProvider, logs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker leaves in its time, and says that spans were not sent."""
    released = threading.Event()
    monkeypatch.setattr(provider, "force_flush", lambda: released.wait(60))
    Tracing(provider).install()

    @job("run")
    async def run() -> None: ...

    shop.enqueue("run")
    async with shop.worker():
        await until(lambda: shop.ended(1), what="the run")
    await until(lambda: [entry for entry in logs if entry["event"] == "spans_unsent"], what="the line")
    released.set()

    shop.assert_clean()


async def test_tracing_that_cannot_be_opened_fails_no_run(
    shop: WorkerKit, logs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment that asks for an unknown exporter is told once, as an error."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    Tracing().install()

    @job("run")
    async def run() -> None: ...

    for _ in range(3):
        shop.enqueue("run")
    async with shop.worker():
        await until(lambda: shop.ended(3), what="all")

    assert [outcome for _, outcome, _ in shop.history()] == ["ok"] * 3
    (told,) = [entry for entry in logs if entry["event"] == "tracing_off"]
    assert "carrier-pigeon" in told["error"]
