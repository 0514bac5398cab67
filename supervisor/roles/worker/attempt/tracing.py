"""A span of OpenTelemetry around each attempt of a run: the middleware that ``tenure.jobs.tracing`` installs.

Guarantees
    The span is a child of the one in the run's ``traceparent``: the producer's span, or the attempt that spawned it. A
    run without one begins a trace. Every attempt is a span of its own.
    An exception is recorded with secrets masked, as in the log. An exporter that does not work, or a wrong
    variable of the environment, fails no run.
    The provider is made by the worker's first run, after the fork. When the worker leaves, spans are sent within the
    time that it has for that.

Does not guarantee
    That spans arrive: those not sent when the worker's time is over, or when it is killed, is lost.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from typing import Any

import structlog
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags, Tracer

from supervisor.roles.worker.attempt.context import Context, Interrupted, SoftTimeout
from supervisor.roles.worker.attempt.failure import describe, is_clean_exit
from supervisor.roles.worker.attempt.middleware import Middleware
from supervisor.store.producer.tracing import current_traceparent
from supervisor.telemetry.masking import mask_text
from supervisor.telemetry.run_context import enter_trace
from supervisor.version import __version__

EXPORTERS: Mapping[str, Callable[[], SpanExporter]] = {"otlp": OTLPSpanExporter, "console": ConsoleSpanExporter}

log = structlog.get_logger("tenure.tracing")


class Tracing(Middleware):
    """Opens a span around each attempt. Install it first, so that it is the outermost."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        """Build it; ``provider`` of tracers, None: the program's, or one that the environment configures (OTEL_…)."""
        self._provider = provider
        self._tracer: Tracer | None = None

    def around(self, context: Context, call: Callable[[], Any]) -> Any:
        """Run a plain job in a span."""
        with self._span(context):
            return call()

    async def around_async(self, context: Context, call: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine job in a span."""
        with self._span(context):
            return await call()

    def close(self, within_s: float) -> None:
        """Send the remaining spans, as far as it can be in that time."""
        flush = getattr(self._provider, "force_flush", None)
        if self._tracer is None or flush is None:
            return
        sending = Thread(target=_quietly, args=(flush,), name="tracing-flush", daemon=True)
        sending.start()  # the exporter's own bounds are of many seconds, whatever flush is told
        sending.join(within_s)
        if sending.is_alive():
            log.warning("spans_unsent", within_s=round(within_s, 3))

    @contextmanager
    def _span(self, context: Context) -> Iterator[None]:
        tracer = self._tracer or self._open()
        span = tracer.start_span(
            context.job, context=_parent(context), kind=SpanKind.CONSUMER, attributes=_attributes(context)
        )
        token = contexts.attach(trace.set_span_in_context(span, contexts.Context()))
        if own := current_traceparent():
            context.traceparent = own  # what this attempt enqueues and spawns descends from it
            enter_trace(own)
        try:
            yield
        except BaseException as error:
            _ended_with(span, error, context)
            raise
        else:
            span.set_attribute("tenure.outcome", "ok")
        finally:
            contexts.detach(token)
            span.end()

    def _open(self) -> Tracer:
        try:
            self._provider = self._provider or _provider()
            self._tracer = self._provider.get_tracer("tenure", __version__)
        except Exception as error:  # noqa: BLE001 - a value of the environment, or an exporter, must fail no run
            log.error("tracing_off", error=mask_text(repr(error)))  # noqa: TRY400 - its stack is OpenTelemetry's
            self._tracer = trace.NoOpTracer()
        return self._tracer


def _provider() -> trace.TracerProvider:
    """Return the program's provider; where it set none, one that the environment configures.

    Raises:
        ValueError: the environment asks for an exporter that there is not.
    """
    found = trace.get_tracer_provider()
    if not isinstance(found, trace.ProxyTracerProvider):
        return found
    named = "OTEL_SERVICE_NAME" in os.environ or f"{SERVICE_NAME}=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    made = TracerProvider(resource=Resource.create(None if named else {SERVICE_NAME: "tenure"}))
    for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(","):
        if name.strip() == "none":
            continue
        if name.strip() not in EXPORTERS:
            raise ValueError(f"OTEL_TRACES_EXPORTER is {', '.join(EXPORTERS)} or none, got {name.strip()!r}")
        made.add_span_processor(BatchSpanProcessor(EXPORTERS[name.strip()]()))
    trace.set_tracer_provider(made)
    return made


def _parent(context: Context) -> contexts.Context:
    """Return the parent of the span: nothing of this process, only the context that came with the run."""
    if not context.traceparent:
        return contexts.Context()
    _, trace_id, span_id, flags = context.traceparent.split("-")
    remote = SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))
    return trace.set_span_in_context(trace.NonRecordingSpan(remote), contexts.Context())


def _attributes(context: Context) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "tenure.run": context.run_id,
        "tenure.job": context.job,
        "tenure.queue": context.queue,
        "tenure.attempt": context.attempt,
    }
    if context.schedule is not None:
        found["tenure.schedule"] = context.schedule
    if context.maybe_duplicate:
        found["tenure.maybe_duplicate"] = True
    if context.parent:
        found["tenure.parent"] = context.parent
    return found


def _ended_with(span: Span, error: BaseException, context: Context) -> None:
    """Record how an attempt ended that raised: ok by ``sys.exit(0)``, stopped, or failed with its exception."""
    if is_clean_exit(error):
        span.set_attribute("tenure.outcome", "ok")
        return
    if isinstance(error, asyncio.CancelledError | SoftTimeout | Interrupted):
        span.set_attribute("tenure.outcome", "replaced" if context.is_replaced else "stopped")
        span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        return
    failure = describe(error, worker="")
    message = mask_text(failure.message)
    span.set_attribute("tenure.outcome", "failed")
    told = {"type": failure.type, "message": message, "stacktrace": mask_text(failure.traceback)}
    span.add_event("exception", {f"exception.{name}": text for name, text in told.items()})
    span.set_status(Status(StatusCode.ERROR, f"{failure.type}: {message}"))


def _quietly(flush: Callable[[], Any]) -> None:
    try:
        flush()
    except Exception as error:  # noqa: BLE001 - the worker leaves all the same
        log.warning("spans_unsent", error=mask_text(repr(error)))
