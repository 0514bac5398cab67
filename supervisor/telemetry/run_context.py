"""Run context: the run that the current code belongs to, for each log line and for crash blame.

One context variable for all of a run's fields, because a worker sets it for each run: code that a
job starts, tasks included, inherits it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from supervisor.core.jobs.trace_context import trace_id_of


class Attempt(Protocol):
    """Attempt that code runs in."""

    ended_ns: int
    """When it ended; 0 while it goes on."""


class Keeper(Protocol):
    """Keeper of the outputs of attempts."""

    def of(self, attempt: Any) -> Any:
        """Return the output of an attempt that goes on."""
        ...


_RUN: ContextVar[Mapping[str, Any] | None] = ContextVar("tenure_run", default=None)
_SPEAKER: ContextVar[tuple[Keeper, Attempt] | None] = ContextVar("tenure_speaker", default=None)


def run_fields(
    *, run: str, job: str, schedule: str | None = None, attempt: int = 1, traceparent: str = ""
) -> dict[str, Any]:
    """Return the fields that name a run on a line of the log."""
    fields = {"run": run, "job": job, "attempt": attempt}
    if schedule is not None:
        fields["schedule"] = schedule
    if traceparent and (trace_id := trace_id_of(traceparent)):
        fields["trace_id"] = trace_id
    return fields


def enter_trace(traceparent: str) -> None:
    """Note that the run which is executed right now belongs to this trace."""
    fields = _RUN.get()
    if fields is not None:
        _RUN.set({**fields, "trace_id": trace_id_of(traceparent)})


def enter_run(fields: Mapping[str, Any] | None, speaker: tuple[Keeper, Attempt] | None = None) -> None:
    """Note that the code of this task, from now on, belongs to the run that ``fields`` name; None: to none.

    Its output belongs to the attempt of ``speaker``, whose keeper keeps it (run_output.py); None: nobody does.
    """
    _RUN.set(fields)
    _SPEAKER.set(speaker)


def current_speaker() -> tuple[Keeper, Attempt] | None:
    """Return the attempt that what is written right now belongs to, and its keeper; None where none is kept."""
    return _SPEAKER.get()


def current_run() -> Mapping[str, Any] | None:
    """Return the fields of the run that is executed right now; None outside of runs."""
    return _RUN.get()


@contextmanager
def bind_run(*, run: str, job: str, schedule: str | None = None, attempt: int = 1) -> Iterator[None]:
    """Put the run's identity on every line that is logged inside, by this task or those it starts."""
    token = _RUN.set(run_fields(run=run, job=job, schedule=schedule, attempt=attempt))
    try:
        yield
    finally:
        _RUN.reset(token)


def merge_run(_logger: Any, _level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the fields of the current run to an event, behind its own; a processor of structlog."""
    fields = _RUN.get()
    if fields is not None:
        for name, value in fields.items():
            event.setdefault(name, value)
    return event
