"""The trace that a run belongs to, as set by its producer.

OpenTelemetry is not loaded here: a program that has a span has loaded it already.
"""

from __future__ import annotations

import sys

from supervisor.core.jobs.trace_context import checked

_API = "opentelemetry.trace"


def current_traceparent() -> str:
    """Return that of the span that is current here; empty without OpenTelemetry, or outside of spans."""
    api = sys.modules.get(_API)
    if api is None or not hasattr(api, "get_current_span"):  # the latter: it is being imported right now
        return ""
    span = api.get_current_span().get_span_context()
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}" if span.is_valid else ""


def traceparent_of(given: str | None) -> str:
    """Return the trace parent of a run: its producer's, if that is one; for None, that of the current span."""
    return current_traceparent() if given is None else checked(given)
