"""Execution shared by both pools: from a fetched run to a call, and from its end to an acknowledgement.

Decisions about ends
    A result that is no JSON, nested too deeply, or over 64 KiB, does not fail the run: its work is done, and a retry
    would do it again. A note with the reason is in the result's place and in the log.
    A run that is not executed at all ends by the rules of failure.py.
    A run of the other kind goes back uncharged, with its kind put right.
    A run that was asked to end, and failed after that, ends as it was asked to: replaced or cancelled.
    The children of a run travel with the acknowledgement that it finished, and with no other.

Sans I/O: it logs and counts, and neither waits nor speaks to Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from functools import partial
from typing import Any, cast

import msgspec

from supervisor.clock import Clock
from supervisor.core.errors import ArgumentsError, UnknownJobError
from supervisor.core.jobs.hooks import UnknownProfileError, VetoedError
from supervisor.core.jobs.registry import JobSpec, Registry
from supervisor.core.jobs.trace_context import checked
from supervisor.core.model import Kind, Outcome, RunKey
from supervisor.core.retry import Again
from supervisor.core.schedules.neighbours import Neighbours
from supervisor.core.supervision.scoreboard import execution_hash
from supervisor.core.supervision.states import UnwantedReason
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.roles.worker.attempt.context import Context, Enqueuer
from supervisor.roles.worker.attempt.failure import Refusals, describe, encoded_result, granted, is_clean_exit, is_final
from supervisor.roles.worker.attempt.invocation import JobInvoker, is_planner
from supervisor.roles.worker.attempt.result_check import is_undone, work_undone
from supervisor.roles.worker.attempt.run_output import Children, Leavings
from supervisor.roles.worker.attempt.steps import Steps
from supervisor.roles.worker.run_logs import OutputKeeping
from supervisor.roles.worker.run_reporting import RunReporter
from supervisor.store.queues.run_records import StepCalls
from supervisor.store.wire.poll import Ack, BrokenRun, FetchedRun
from supervisor.telemetry import metrics
from supervisor.telemetry.run_context import RunOutput

_GAVE_WAY = {
    UnwantedReason.REPLACED: (Outcome.REPLACED, "asked to make room for a newer run"),
    UnwantedReason.CANCELLED: (Outcome.CANCELLED, "a person asked for its end"),
}
SOFT_S_MIN, TO_END_S_MIN = 0.01, 0.2  # whatever a record says: a job that ends when it is asked to costs no process
_SPANS_MAX = 1000
_OF_DATA = (ValueError, TypeError, ArithmeticError, LookupError, RecursionError)


class Execution(msgspec.Struct, eq=False):
    """One attempt that can be called, and its times once it was. A struct, because one is made for each run."""

    fetched: FetchedRun
    key: RunKey
    """Queue and id of the run that this is an attempt of."""

    spec: JobSpec
    arguments: dict[str, Any]
    function: Callable[..., Any]
    """What to call with ``arguments``: the job's function, or that with what stands around it (invocation.py)."""

    context: Context | None
    """None for a job that nothing of it could reach."""

    started_ns: int = 0
    started_ms: int = 0
    soft_ns: int = 0
    hard_ns: int = 0
    ended_ns: int = 0
    output: RunOutput | None = None
    unwanted: UnwantedReason | None = None
    """Why it was asked to end, if it was."""

    task: asyncio.Task[None] | None = None
    """Its task, in an async pool."""

    has_begun: bool = False
    """True once its task runs."""

    was_asked: bool = False
    """True once its task was asked to end: it is out of time, or nobody wants it any more."""

    @property
    def hash(self) -> int:
        """Hash of this execution on the board."""
        return execution_hash(self.key, self.fetched.fetched_ms)

    def cancel(self, unwanted: UnwantedReason | None = None) -> None:
        """Note that it is being asked to end, where the job sees it too.

        Args:
            unwanted: why, if nobody wants it any more; None: its time is over, or its process must go.
        """
        if unwanted is not None and self.unwanted is not UnwantedReason.CANCELLED:  # what a person asked for stands
            self.unwanted = unwanted
        if self.context is not None:
            self.context.is_cancelled = True
            self.context.is_replaced = self.unwanted is UnwantedReason.REPLACED


@dataclass(eq=False, kw_only=True)
class Executor:
    """Turns runs into calls and ends into acknowledgements, for one worker process."""

    kind: Kind
    registry: Registry
    worker: str
    clock: Clock
    uniform: Callable[[], float]
    producer: Enqueuer | None = None
    calling: InitVar[JobInvoker | None] = None
    outputs: OutputKeeping | None = None

    def __post_init__(self, calling: JobInvoker | None) -> None:
        self._calling = calling or JobInvoker(kind=self.kind)
        self.ends = RunReporter()
        self.refusals = Refusals(worker=self.worker, clock=self.clock, ends=self.ends)
        self._spans: dict[tuple[float | None, float], tuple[int, int]] = {}

    def prepare(self, fetched: FetchedRun) -> Execution | Ack:
        """Return the call for ``fetched``, or its end without being called."""
        try:
            return self._prepared(fetched)
        except _OF_DATA as error:  # whatever lies in Redis ends its own run, and no process
            reason = f"{type(error).__name__}: {error}"
            broken = BrokenRun(
                queue=fetched.queue,
                run_id=fetched.envelope.id,
                attempt=fetched.attempt,
                fetched_ms=fetched.fetched_ms,
                reason=reason,
            )
            return self.refusals.bury(broken)

    def _prepared(self, fetched: FetchedRun) -> Execution | Ack:
        envelope = fetched.envelope
        if envelope.not_after_ms is not None and self.refusals.is_too_late(fetched):
            return self.refusals.expire(fetched, label=metrics.job_label(envelope.template.job, self.registry))
        template = envelope.template
        try:
            spec = self.registry.get(template.job)
        except UnknownJobError as error:
            return self.refusals.unknown(fetched, error)
        key = fetched.queue, envelope.id
        if spec.kind is not self.kind:
            return self.refusals.other_kind(fetched, spec.kind)
        try:
            arguments = spec.check(template.args) if template.args or spec.arguments.__struct_fields__ else {}
        except ArgumentsError as error:
            return self.refusals.arguments(fetched, error)
        except SystemExit:  # not for ``check`` to take: a handler of a signal may raise it in a program that enqueues
            why = f"job {spec.name}{spec.signature}: the code of its types raised SystemExit"
            return self.refusals.arguments(fetched, ArgumentsError(why))
        profile = template.profile
        is_plain = not profile and self._calling.plain.get(template.job) is spec
        if not is_plain:
            try:
                is_plain = self._calling.is_plain(spec, profile)
            except UnknownProfileError as error:
                return self.refusals.unknown(fetched, error)
        if self.refusals.unknown_runs:
            self.refusals.known(fetched)
        if is_plain:
            return Execution(fetched, key, spec, arguments, spec.function, None)
        context = self._context(fetched, spec)
        if spec.context_parameter is not None:
            arguments[spec.context_parameter] = context
        is_repeated = fetched.crashes + fetched.interrupts > 0
        born = envelope.enqueued_ms
        function = self._calling.prepare(spec, context, profile, born=born, may_have_left=is_repeated)
        return Execution(fetched, key, spec, arguments, function, context)

    def _context(self, fetched: FetchedRun, spec: JobSpec) -> Context:
        envelope = fetched.envelope
        around = Neighbours(envelope.previous_ms, envelope.next_ms)
        children = Children(
            envelope.id, registry=self.registry, nominal_ms=envelope.nominal_ms, around=around,
            wall_ms=self.clock.wall_ms,
        )  # fmt: skip
        return Context(
            run_id=envelope.id, job=spec.name, attempt=fetched.attempt,
            fence=fetched.attempt + fetched.crashes + fetched.interrupts,
            maybe_duplicate=envelope.maybe_duplicate, schedule=envelope.schedule, nominal_ms=envelope.nominal_ms,
            previous_ms=around.previous_ms, next_ms=around.next_ms, parent=envelope.parent, queue=fetched.queue,
            traceparent=checked(envelope.traceparent) if envelope.traceparent else "",
            kind=self.kind, clock=self.clock, producer=self.producer, children=children,
            result_ttl_s=envelope.template.result_ttl_s,
            make_steps=None if self.producer is None else partial(self._steps, fetched),
        )  # fmt: skip

    def _steps(self, fetched: FetchedRun) -> Steps:
        envelope, runner = fetched.envelope, cast("Any", self.producer)
        calls = StepCalls(
            runner.keys,
            run_id=envelope.id,
            queue=fetched.queue,
            fence=f"{self.worker}|{fetched.attempt}|{fetched.fetched_ms}",
            born=f"{envelope.enqueued_ms}",
        )
        return Steps(attempt=fetched.attempt, clock=self.clock, calls=calls, runner=runner)

    def begin(self, execution: Execution) -> None:
        """Start the clocks of ``execution``; the next thing that happens is the call of the job."""
        fetched = execution.fetched
        envelope = fetched.envelope
        template = envelope.template
        execution.started_ns = now_ns = self.clock.elapsed_ns()
        execution.started_ms = now_ms = self.clock.wall_ms()
        key = template.soft_timeout_s, template.timeout_s
        span = self._spans.get(key)
        if span is None:
            if len(self._spans) >= _SPANS_MAX:
                self._spans.clear()
            soft_s = max(SOFT_S_MIN, template.soft_after_s)
            hard_s = max(soft_s + TO_END_S_MIN, template.timeout_s)
            span = self._spans[key] = (round(soft_s * SECOND_NS), round(hard_s * SECOND_NS))
        execution.soft_ns = now_ns + span[0]
        execution.hard_ns = now_ns + span[1]
        if execution.context is not None:
            execution.context.deadline_ns, execution.context.soft_deadline_ns = execution.hard_ns, execution.soft_ns
        waited_s = None
        if fetched.attempt == 1 and fetched.crashes + fetched.interrupts == 0:
            due_ms = None if envelope.parent else envelope.nominal_ms  # a child's is its ancestor's
            waited_s = max(0, now_ms - (due_ms or envelope.enqueued_ms)) / 1000
        self.ends.began(fetched, waited_s)

    def succeed(self, execution: Execution, value: Any) -> Ack:
        """Return the acknowledgement of a job that returned ``value``: failed where that is its work, and not done."""
        if is_undone(value, self.kind):
            return self.fail(execution, work_undone(value))
        result = None
        if value is not None and execution.fetched.envelope.template.result_ttl_s > 0:
            result = encoded_result(execution.fetched, value)
        execution.ended_ns = now_ns = self.clock.elapsed_ns()
        elapsed_ns = max(0, now_ns - execution.started_ns)
        self.ends.ended(execution.fetched, Outcome.OK, elapsed_ns / SECOND_NS, now_ns)
        if execution.context is None:
            return self._ack(execution, Outcome.OK, elapsed_ns, result=result)
        return self._ack(execution, Outcome.OK, elapsed_ns, result=result, **_left(execution, execution.context))

    def end(self, execution: Execution, error: BaseException) -> Ack:
        """Return the acknowledgement of a job that ended with ``error``, where ``sys.exit(0)`` means success.

        ``sys.exit`` is the way many a script's ``main`` reports its end, so its code decides as a process's would.
        """
        try:
            return self.succeed(execution, None) if is_clean_exit(error) else self.fail(execution, error)
        except BaseException:  # noqa: BLE001 - code of the error's class, which a look at it runs
            unreadable = type.__repr__(type(error))
            return self.fail(execution, TypeError(f"the job raised an exception that cannot be read: {unreadable}"))

    def fail(self, execution: Execution, error: BaseException) -> Ack:
        """Return the acknowledgement of a job that ended with ``error``: another attempt later, or none."""
        fetched = execution.fetched
        execution.ended_ns = now_ns = self.clock.elapsed_ns()
        elapsed_ns = max(0, now_ns - execution.started_ns)
        seconds = elapsed_ns / SECOND_NS
        if execution.unwanted is not None:
            outcome, note = _GAVE_WAY[execution.unwanted]
            self.ends.ended(fetched, outcome, seconds, now_ns)
            return self._ack(execution, outcome, elapsed_ns, history_note=note)
        if isinstance(error, VetoedError):
            return self.refusals.vetoed(fetched, error.veto, started_ms=execution.started_ms)
        template = fetched.envelope.template
        error = granted(fetched, error)
        if isinstance(error, Again):
            self.ends.ended(fetched, Outcome.AGAIN, seconds, now_ns)
            return self._ack(execution, Outcome.AGAIN, elapsed_ns, retry_delay_ms=round(1000 * error.delay_s))
        failure = describe(error, worker=self.worker)
        delay_s = (
            None
            if is_final(fetched, execution.spec, error)
            else template.retry.delay_s(fetched.attempt, self.uniform())
        )
        outcome = Outcome.DEAD if delay_s is None else Outcome.RETRY
        self.ends.failed(fetched, outcome, seconds, now_ns, error=failure.note, retry_s=delay_s)
        delay_ms = round(1000 * (delay_s or 0))
        left = execution.context.leavings if execution.context is not None and outcome is Outcome.DEAD else None
        left_behind = left.pack(keep_s=template.result_ttl_s) if left is not None else None
        return self._ack(
            execution, outcome, elapsed_ns,
            error=failure.as_error(), history_note=failure.note, retry_delay_ms=delay_ms, left_behind=left_behind,
        )  # fmt: skip

    def _ack(
        self, execution: Execution, outcome: Outcome, elapsed_ns: int, *, result: bytes | None = None, **more: Any
    ) -> Ack:
        """Return an acknowledgement; ``more`` are the fields that most do not need.

        A call with more than 15 named arguments costs a dictionary of them, made and read for each run.
        """
        fetched = execution.fetched
        envelope = fetched.envelope
        template = envelope.template
        ack = Ack(
            run_id=envelope.id,
            queue=fetched.queue,
            attempt=fetched.attempt,
            fetched_ms=fetched.fetched_ms,
            outcome=outcome,
            schedule=envelope.schedule,
            result=result,
            result_ttl_ms=0 if result is None else round(1000 * template.result_ttl_s),
            started_ms=execution.started_ms,
            # Not by the wall clock, which may have been set back meanwhile: a run never ends before it starts.
            ended_ms=execution.started_ms + (elapsed_ns + 500_000) // MILLISECOND_NS,
            job=template.job,
            log=None if self.outputs is None or execution.output is None else self.outputs.ended(execution, outcome),
        )
        return msgspec.structs.replace(ack, **more) if more else ack


def _left(execution: Execution, context: Context) -> dict[str, Any]:
    """Return the output of a finished attempt, as fields of its acknowledgement."""
    children = () if context.children is None else context.children.take()
    follow = () if context.children is None else context.children.follow()
    leavings = context.leavings
    if leavings is None and not (children or follow):
        return {"history_note": "planned nothing"} if is_planner(execution.spec.function) else {}
    leavings = leavings or Leavings()
    left_behind = leavings.pack(children=children, follow=follow, keep_s=context.result_ttl_s)
    return {"children": children, "left_behind": left_behind, "history_note": leavings.note}
