"""State, result and children of a run as its caller sees them, read from what Redis keeps of the run."""

from __future__ import annotations

import typing
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

from supervisor.core.errors import JobFailedError, ResultGoneError, ResultTypeError, RunCancelledError
from supervisor.core.jobs import registry as jobs
from supervisor.core.jobs.job_spec import JobCard
from supervisor.core.json_values import read_json
from supervisor.core.model_types import read_model
from supervisor.store.queues.reads import RunView
from supervisor.store.wire.poll import HistoryEntry

DROPPED = "tenure_result_dropped"
"""Name in a result that stands for one that could not be kept; its value is the reason."""


class RunPhase(StrEnum):
    """State of a run in one word."""

    WAITING = "waiting"  # may start as soon as a worker and its limits have room
    DELAYED = "delayed"  # is due later: enqueued with a delay, or tried again after a failure
    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"  # ended without success, and is not kept: expired, rejected, or dropped from the dead
    DEAD = "dead"  # given up, and kept until somebody requeues or drops it
    CANCELLED = "cancelled"  # ended on request, or replaced by a newer run
    GONE = "gone"  # not known: it ended longer ago than is remembered, or never was in this cluster

    @property
    def is_ended(self) -> bool:
        """True if nothing more happens to it by itself."""
        return self not in {RunPhase.WAITING, RunPhase.DELAYED, RunPhase.RUNNING}


_LIVE = {
    "queued": RunPhase.WAITING,
    "blocked": RunPhase.WAITING,
    "later": RunPhase.DELAYED,
    "running": RunPhase.RUNNING,
    "dead": RunPhase.DEAD,
}
_ENDED = {
    "ok": RunPhase.OK,
    "cancelled": RunPhase.CANCELLED,
    "purged": RunPhase.CANCELLED,
    "replaced": RunPhase.CANCELLED,
    "expired": RunPhase.FAILED,
    "rejected": RunPhase.FAILED,
    "duplicate": RunPhase.FAILED,
    "dead": RunPhase.FAILED,
    "dropped": RunPhase.FAILED,
    "crashed": RunPhase.FAILED,
    "lost": RunPhase.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """State of a run at one moment. Times are milliseconds since 1970; None: unknown, or not yet."""

    id: str
    state: RunPhase
    outcome: str = ""
    """Precise word for the end, such as ``expired`` or ``replaced``; empty while it has not ended."""

    job: str = ""
    queue: str = ""
    arguments: tuple[str, ...] = ()
    """Names of its arguments, where they are known."""

    attempt: int = 0
    """Number of the last attempt that ended or runs, from 1; 0: it never began."""

    crashes: int = 0
    """How often its process died."""

    enqueued_ms: int | None = None
    due_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    error_type: str = ""
    """Class of the last exception, or the reason of its end in one word."""

    error_message: str = ""

    @property
    def is_ended(self) -> bool:
        """True if nothing more happens to it by itself."""
        return self.state.is_ended


def status_of(run_id: str, view: RunView | None) -> RunStatus:
    """Return the state that ``view`` shows; None is the view of an unknown run."""
    if view is None:
        return RunStatus(id=run_id, state=RunPhase.GONE)
    return _ended(view) if view.state == "finished" else _kept(view)


def _kept(view: RunView) -> RunStatus:
    """State of a run that exists: what lies in Redis decides, not what a past life of its id left."""
    state = _LIVE[view.state]
    past = next((entry for entry in view.history if entry.attempt), None)
    error = view.error
    envelope = view.envelope
    return RunStatus(
        id=view.run_id,
        state=state,
        outcome="dead" if state is RunPhase.DEAD else "",
        job="" if envelope is None else envelope.template.job,
        queue=view.queue,
        arguments=() if envelope is None else tuple(sorted(envelope.template.args)),
        attempt=view.attempts + (state is RunPhase.RUNNING) or _whole(error.get("attempt")),
        crashes=view.crashes,
        enqueued_ms=None if envelope is None else envelope.enqueued_ms,
        due_ms=view.due_ms,
        started_ms=view.fetched_ms or (past.started_ms if past else None),
        ended_ms=view.died_ms,
        error_type=str(error.get("type") or error.get("reason") or ""),
        error_message=str(error.get("message") or error.get("detail") or ""),
    )


def _ended(view: RunView) -> RunStatus:
    last = next((entry for entry in view.history if entry.outcome in _ENDED), None)
    end = view.ended
    outcome = end.outcome if end is not None else last.outcome if last is not None else "ok" if view.result else ""
    state = _ENDED.get(outcome, RunPhase.GONE)
    has_failed = state is RunPhase.FAILED
    return RunStatus(
        id=view.run_id,
        state=state,
        outcome=outcome,
        job=(end.job if end else "") or (last.job if last else ""),
        queue=view.queue,
        arguments=tuple(sorted(end.args or ())) if end else (),
        attempt=(int(end.attempt) if end else 0) or (last.attempt if last else 0),
        enqueued_ms=int(end.enqueued_ms) or None if end else None,
        started_ms=(int(end.started_ms) if end else 0) or (last.started_ms if last else 0) or None,
        ended_ms=(int(end.ended_ms) if end else 0) or (last.ended_ms if last else 0) or None,
        error_type=outcome if has_failed else "",
        error_message=last.note if has_failed and last else "",
    )


def result_of(run_id: str, view: RunView | None, *, job: str, cluster: str, wall_ms: int) -> Any:
    """Return the result of a run that ended, as plain JSON values, or its type where its job is imported.

    Raises:
        JobFailedError: it ended without success.
        RunCancelledError: it was ended on request.
        ResultGoneError: there is no result, or the run is not known.
        ResultTypeError: the result does not fit the return annotation.
    """
    status = status_of(run_id, view)
    if status.state is RunPhase.CANCELLED:
        raise RunCancelledError(run_id, status.outcome)
    if status.state in {RunPhase.DEAD, RunPhase.FAILED}:
        kind = status.error_type or status.outcome
        raise JobFailedError(run_id, type=kind, message=status.error_message, attempt=status.attempt)
    if view is None or status.state is RunPhase.GONE:
        reason = f"cluster {cluster!r} does not know the run: it ended too long ago, or is in another cluster"
        raise ResultGoneError(run_id, reason)
    if view.result is not None:
        return _decoded(run_id, view.result, status.job or job)
    if reason := _why_none(view, view.history[0] if view.history else None, wall_ms):
        raise ResultGoneError(run_id, reason)
    return None


def _why_none(view: RunView, last: HistoryEntry | None, wall_ms: int) -> str:
    """Return why a run that was ok has no result now; empty: it returned None."""
    end = view.ended
    if end is not None:
        if end.has_result:
            return "it has expired (result_ttl)"
        return "" if end.result_ttl_s > 0 else "its job keeps none (result_ttl: 0)"
    ttl_s = 86_400.0
    with suppress(msgspec.DecodeError):  # a newer version published it: the default is as good a guess as any
        ttl_s = read_json(view.job_card, JobCard).template.result_ttl_s if view.job_card else ttl_s
    if ttl_s <= 0:
        return "its job keeps none (result_ttl: 0)"
    # A result would still be there: the run ended less than its time to live ago.
    is_young = last is not None and wall_ms < last.ended_ms + 1000 * ttl_s
    return "" if is_young else "it has expired (result_ttl)"


def _decoded(run_id: str, result: bytes, job: str) -> Any:
    value = read_json(result)
    if isinstance(value, dict) and value.keys() == {DROPPED}:
        raise ResultGoneError(run_id, f"it could not be kept: {value[DROPPED]}")
    if job not in jobs.registry:
        return value
    wanted = _return_type(jobs.registry.get(job).function)
    if wanted is Any:
        return value
    try:
        return msgspec.convert(value, wanted, strict=False, dec_hook=read_model)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ResultTypeError(f"the result of run {run_id} is not what job {job} returns: {error}") from None
    except (TypeError, NotImplementedError):  # a type of another library, which the reader does not know
        return value


@lru_cache(maxsize=1024)
def _return_type(function: Callable[..., Any]) -> Any:
    """Return the annotation of the result; Any for one that is absent or that no reader is known for."""
    try:
        wanted = typing.get_type_hints(function).get("return", Any)
        if wanted is None or wanted is type(None):
            return Any
        msgspec.inspect.type_info(wanted)
    except (NameError, TypeError, AttributeError):  # names under TYPE_CHECKING, types of other libraries
        return Any
    return wanted


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


CHILDREN_PAGE_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRun:
    """One child of a run."""

    status: RunStatus
    result: Any = None
    """Its result, where it was asked for and is kept."""

    has_result: bool = False
    """True if ``result`` is what the child returned, also if that is None."""


@dataclass(frozen=True, slots=True)
class ChildPage:
    """Some of the numbered children of a run. Children with keys of their own are asked for by their ids."""

    items: tuple[ChildRun, ...]
    next: int | None
    """``start`` of the next page; None: this is the last."""


def checked_page(start: int, limit: int) -> range:
    """Return the numbers of a page.

    Raises:
        ValueError: one of them is out of its range.
    """
    if start < 0 or not 1 <= limit <= CHILDREN_PAGE_MAX:
        raise ValueError(
            f"start must be 0 or more and limit 1 to {CHILDREN_PAGE_MAX}, got start {start} and limit {limit}"
        )
    return range(start, start + limit)
