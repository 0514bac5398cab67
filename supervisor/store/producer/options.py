"""Options of callers for the runs that they enqueue. Types only: annotating with them loads no Redis client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from supervisor.core.durations import Duration
from supervisor.store.queues.runs import Enqueued

JobRef = str | Callable[..., Any]
"""A job's name, or the function that ``@job`` registered."""

Args = Mapping[str, Any]
Each = Callable[[Sequence[Enqueued]], None]


class EnqueueOptions(TypedDict, total=False):
    """Options of an enqueued run, beside its job and its arguments."""

    queue: str | None
    """The queue; default: the job's."""

    priority: str | None
    """``high``, ``normal`` or ``low``; default: the job's."""

    delay: Duration | None
    """Seconds, a duration such as ``"5m"``, or a ``timedelta``, before it may start; by Redis' clock."""

    at: datetime | None
    """Moment before which it does not start, with a time zone, by this machine's clock; instead of ``delay``."""

    run_id: str | None
    """Its identity: enqueued in its queue once in an hour, and not while its run exists. Default: a fresh UUIDv7."""

    traceparent: str | None
    """The trace it belongs to, as the header of that name has it (W3C); a malformed one is dropped. Default: that of
    OpenTelemetry's current span, if there is one."""


class ChildOptions(TypedDict, total=False):
    """Options that the envelope of a spawned run carries."""

    queue: str | None
    """As of any run, and so is ``priority``."""

    priority: str | None
    traceparent: str | None
    """As of any run; default: OpenTelemetry's current span, else the trace of the run that spawns it."""


class SpawnOptions(ChildOptions, total=False):
    """Options of a run that a job spawns."""

    key: str | int | None
    """Tells it from its siblings: its id is the parent's, a slash and this. Default: a number, from 0. The same again
    is the same child."""

    delay: Duration | None
    """Before it may start, counted from when its parent is acknowledged."""


class ManyOptions(TypedDict, total=False):
    """Options shared by many runs that are enqueued at once."""

    queue: str | None
    """As of one run, and so are ``priority``, ``delay``, ``at`` and ``traceparent``."""

    priority: str | None
    delay: Duration | None
    at: datetime | None
    traceparent: str | None
    run_id: Callable[[Args], str] | None
    """Makes the identity of a run from its arguments, so that a call that is repeated enqueues none twice."""

    each: Each | None
    """Called with what became of each batch, in their order: the ids are there."""


def unknown_option(name: str) -> TypeError:
    """Return the error of a keyword argument that no run has."""
    known = ", ".join(EnqueueOptions.__annotations__)
    return TypeError(
        f"enqueue() takes no option {name!r}, only {known}; arguments of the job are one mapping: "
        f"enqueue(job, {{{name!r}: …}})"
    )
