"""What both pools share: from a fetched run to something that can be called, and from its end to an acknowledgement.

Decisions about ends
    A result that is no JSON, or over 64 KiB, does not fail the run: its work is done, and a retry
    would do it again. A note says why it is missing, in the result's place and in the log.
    Arguments that do not fit end the run at once: the same arguments fit no better next time.
    A run whose job is unknown here may be one that the next deploy brings, or the last one took
    away: it goes back uncharged for five seconds, and is dead once this process has refused it for
    ten minutes by its own clock. The producer's clock, and how long a run was delayed, play no part.
    A run of the other kind goes back uncharged, with its kind put right.
    A run that is too late for its first start ends as expired: judged by Redis' time when it was
    fetched, never again once an attempt has begun.
    What a run spawned travels with the acknowledgement that it finished, and with no other.

Sans I/O: it logs and counts, and neither waits nor speaks to Redis.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from supervisor.clock import Clock
from supervisor.core.errors import ArgumentsError, UnknownJobError
from supervisor.core.model import PAYLOAD_BYTES_MAX, Kind, Outcome
from supervisor.core.registry import JobSpec, Registry
from supervisor.roles.worker.children import Children
from supervisor.roles.worker.context import Context, Enqueuer
from supervisor.roles.worker.failure import Failure, describe
from supervisor.store.queues import Ack, BrokenRun, Child, FetchedRun
from supervisor.telemetry import metrics

UNKNOWN_JOB = "unknown"  # in metrics: names that no module registered are not bounded
UNKNOWN_DELAY_MS = 5_000
UNKNOWN_GRACE_NS = 600 * 1_000_000_000
UNKNOWN_RUNS_MAX = 10_000

log = structlog.get_logger("tenure.worker")


@dataclass(slots=True)
class Execution:
    """One attempt that can be called, and its times once it was."""

    fetched: FetchedRun
    spec: JobSpec
    arguments: dict[str, Any]
    context: Context
    started_ns: int = 0
    started_ms: int = 0
    soft_ns: int = 0
    hard_ns: int = 0
    index: int = field(default=0)  # in the in-flight table

    @property
    def run_id(self) -> str:
        """Which run this is an attempt of."""
        return self.fetched.envelope.id


class Executor:
    """Turns runs into calls and ends into acknowledgements, for one worker process."""

    def __init__(
        self,
        *,
        kind: Kind,
        registry: Registry,
        worker: str,
        clock: Clock,
        uniform: Callable[[], float],
        producer: Enqueuer | None = None,
    ) -> None:
        self._kind = kind
        self._registry = registry
        self._worker = worker
        self._clock = clock
        self._uniform = uniform
        self._producer = producer
        self._refused_since: OrderedDict[str, int] = OrderedDict()

    def prepare(self, fetched: FetchedRun) -> Execution | Ack:
        """Return what to call for ``fetched``, or how it ends without being called."""
        envelope = fetched.envelope
        if self._is_too_late(fetched):
            return self._expire(fetched)
        try:
            spec = self._registry.get(envelope.template.job)
        except UnknownJobError as error:
            return self._refuse_unknown(fetched, error)
        self._refused_since.pop(envelope.id, None)
        if spec.kind is not self._kind:
            log.warning("run_of_other_kind", run=envelope.id, job=spec.name, kind=spec.kind.value)
            return self.give_back(fetched, kind=spec.kind)
        try:
            arguments = spec.check(envelope.template.args)
        except ArgumentsError as error:
            return self._refuse_arguments(fetched, error)
        context = Context(
            run_id=envelope.id,
            job=spec.name,
            attempt=fetched.attempt,
            fence=fetched.attempt + fetched.crashes + fetched.interrupts,
            schedule=envelope.schedule,
            nominal_ms=envelope.nominal_ms,
            parent=envelope.parent,
            kind=self._kind,
            clock=self._clock,
            producer=self._producer,
            children=Children(
                envelope.id, registry=self._registry, nominal_ms=envelope.nominal_ms, wall_ms=self._clock.wall_ms
            ),
        )
        if spec.context_parameter is not None:
            arguments[spec.context_parameter] = context
        return Execution(fetched, spec, arguments, context)

    def begin(self, execution: Execution) -> None:
        """Start the clocks of ``execution``; the next thing that happens is the call of the job."""
        envelope = execution.fetched.envelope
        template = envelope.template
        execution.started_ns = self._clock.elapsed_ns()
        execution.started_ms = self._clock.wall_ms()
        execution.soft_ns = execution.started_ns + round(template.soft_after_s * 1e9)
        execution.hard_ns = execution.started_ns + round(template.timeout_s * 1e9)
        execution.context.deadline_ns = execution.hard_ns
        if execution.context.fence == 1:
            due_ms = None if envelope.parent else envelope.nominal_ms  # a child's is its ancestor's
            waited_ms = execution.started_ms - (due_ms or envelope.enqueued_ms)
            metrics.RUN_WAIT_SECONDS.labels(template.queue).observe(max(0, waited_ms) / 1000)
        log.debug("run_started", **_identity(execution.fetched))

    def succeed(self, execution: Execution, value: Any) -> Ack:
        """Return the acknowledgement of a job that returned ``value``."""
        template = execution.fetched.envelope.template
        result = None
        if value is not None and template.result_ttl_s > 0:
            result = self._encode(execution, value)
        self._observe(execution, Outcome.OK)
        log.info("run_finished", **_identity(execution.fetched), duration_s=self._duration_s(execution))
        spawned = execution.context.children
        return self._ack(execution, Outcome.OK, result=result, children=spawned.take() if spawned else ())

    def end(self, execution: Execution, error: BaseException) -> Ack:
        """Return the acknowledgement of a job that ended with ``error``, where ``sys.exit(0)`` means success.

        ``sys.exit`` is how many a script's ``main`` says that it is done, so its code decides as a process's would.
        """
        if isinstance(error, SystemExit) and error.code in {None, 0}:
            return self.succeed(execution, None)
        return self.fail(execution, error)

    def fail(self, execution: Execution, error: BaseException) -> Ack:
        """Return the acknowledgement of a job that ended with ``error``: another attempt later, or none."""
        if execution.context.is_replaced:
            return self._give_way(execution)
        template = execution.fetched.envelope.template
        attempt = execution.fetched.attempt
        failure = describe(error, worker=self._worker)
        # At most once means that what it did before it failed is not done again either.
        delay_s = None if template.at_most_once else template.retry.delay_s(attempt, self._uniform())
        outcome = Outcome.DEAD if delay_s is None else Outcome.RETRY
        self._observe(execution, outcome)
        log.warning(
            "run_failed",
            **_identity(execution.fetched),
            outcome=outcome.value,
            error=failure.note,
            duration_s=self._duration_s(execution),
            retry_in_s=None if delay_s is None else round(delay_s, 3),
        )
        return self._ack(execution, outcome, failure=failure, retry_delay_ms=round(1000 * (delay_s or 0)))

    def _give_way(self, execution: Execution) -> Ack:
        self._observe(execution, Outcome.REPLACED)
        log.info("run_replaced", **_identity(execution.fetched), duration_s=self._duration_s(execution))
        return self._ack(execution, Outcome.REPLACED, note="asked to make room for a newer run of its schedule")

    def give_back(self, fetched: FetchedRun, *, delay_ms: int = 0, kind: Kind | None = None) -> Ack:
        """Return the acknowledgement of a run that was not started: it waits again, nothing charged."""
        now_ms = self._clock.wall_ms()
        return Ack(
            run_id=fetched.envelope.id,
            queue=fetched.queue,
            attempt=fetched.attempt,
            outcome=Outcome.GIVEBACK,
            schedule=fetched.envelope.schedule,
            retry_delay_ms=delay_ms,
            kind=kind,
            started_ms=now_ms,
            ended_ms=now_ms,
        )

    def bury(self, broken: BrokenRun) -> Ack:
        """Return the acknowledgement of a run that cannot be read: no version that reads it is likely to come."""
        log.error("run_unreadable", run=broken.run_id, queue=broken.queue, reason=broken.reason)
        metrics.RUNS_FINISHED.labels(broken.queue, UNKNOWN_JOB, Outcome.DEAD.value).inc()
        failure = Failure(type="UnreadableRun", message=broken.reason, worker=self._worker)
        now_ms = self._clock.wall_ms()
        return Ack(
            run_id=broken.run_id,
            queue=broken.queue,
            attempt=broken.attempt,
            outcome=Outcome.DEAD,
            error=failure.as_error(),
            started_ms=now_ms,
            ended_ms=now_ms,
            history_note=failure.note,
        )

    @staticmethod
    def _is_too_late(fetched: FetchedRun) -> bool:
        """Whether it must not be started any more; an attempt that began in time may be repeated later."""
        limit_ms = fetched.envelope.not_after_ms
        has_begun = fetched.attempt > 1 or fetched.crashes + fetched.interrupts > 0
        return limit_ms is not None and fetched.fetched_ms > limit_ms and not has_begun

    def _expire(self, fetched: FetchedRun) -> Ack:
        envelope = fetched.envelope
        late_s = (fetched.fetched_ms - (envelope.not_after_ms or 0)) / 1000
        log.warning("run_expired", **_identity(fetched), late_s=late_s)
        metrics.RUNS_FINISHED.labels(fetched.queue, envelope.template.job, Outcome.EXPIRED.value).inc()
        now_ms = self._clock.wall_ms()
        return Ack(
            run_id=envelope.id,
            queue=fetched.queue,
            attempt=fetched.attempt,
            outcome=Outcome.EXPIRED,
            schedule=envelope.schedule,
            started_ms=now_ms,
            ended_ms=now_ms,
            history_note=f"not started within its start deadline, {late_s:g} s too late",
            job=envelope.template.job,
        )

    def _refuse_unknown(self, fetched: FetchedRun, error: UnknownJobError) -> Ack:
        run_id = fetched.envelope.id
        now_ns = self._clock.elapsed_ns()
        since_ns = self._refused_since.setdefault(run_id, now_ns)
        if len(self._refused_since) > UNKNOWN_RUNS_MAX:
            self._refused_since.popitem(last=False)
        is_dead = now_ns - since_ns >= UNKNOWN_GRACE_NS
        outcome = Outcome.DEAD if is_dead else Outcome.GIVEBACK
        log.error("job_unknown", **_identity(fetched), outcome=outcome.value, refused_s=(now_ns - since_ns) // 10**9)
        metrics.RUNS_FINISHED.labels(fetched.queue, UNKNOWN_JOB, outcome.value).inc()
        if not is_dead:
            return self.give_back(fetched, delay_ms=UNKNOWN_DELAY_MS)
        del self._refused_since[run_id]
        return self._dead_unstarted(fetched, error)

    def _refuse_arguments(self, fetched: FetchedRun, error: ArgumentsError) -> Ack:
        log.warning("run_failed", **_identity(fetched), outcome=Outcome.DEAD.value, error=str(error))
        template = fetched.envelope.template
        metrics.RUNS_FINISHED.labels(fetched.queue, template.job, Outcome.DEAD.value).inc()
        return self._dead_unstarted(fetched, error)

    def _dead_unstarted(self, fetched: FetchedRun, error: Exception) -> Ack:
        failure = Failure(type=type(error).__name__, message=str(error), worker=self._worker)
        now_ms = self._clock.wall_ms()
        return Ack(
            run_id=fetched.envelope.id,
            queue=fetched.queue,
            attempt=fetched.attempt,
            outcome=Outcome.DEAD,
            schedule=fetched.envelope.schedule,
            error=failure.as_error(),
            started_ms=now_ms,
            ended_ms=now_ms,
            history_note=failure.note,
            job=fetched.envelope.template.job,
        )

    def _ack(
        self,
        execution: Execution,
        outcome: Outcome,
        *,
        result: bytes | None = None,
        failure: Failure | None = None,
        retry_delay_ms: int = 0,
        children: tuple[Child, ...] = (),
        note: str = "",
    ) -> Ack:
        fetched = execution.fetched
        template = fetched.envelope.template
        return Ack(
            run_id=fetched.envelope.id,
            queue=fetched.queue,
            attempt=fetched.attempt,
            outcome=outcome,
            schedule=fetched.envelope.schedule,
            result=result,
            result_ttl_ms=round(1000 * template.result_ttl_s),
            retry_delay_ms=retry_delay_ms,
            error=failure.as_error() if failure else None,
            started_ms=execution.started_ms,
            # The wall clock may have been set back meanwhile; a run never ends before it starts.
            ended_ms=max(execution.started_ms, execution.started_ms + round(1000 * self._duration_s(execution))),
            history_note=failure.note if failure else note,
            job=template.job,
            children=children,
        )

    def _encode(self, execution: Execution, value: Any) -> bytes:
        try:
            encoded = msgspec.json.encode(value)
            reason = f"{len(encoded)} bytes, the limit is {PAYLOAD_BYTES_MAX}"
            if len(encoded) <= PAYLOAD_BYTES_MAX:
                return encoded
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            reason = f"not JSON: {error}"
        log.warning("run_result_dropped", **_identity(execution.fetched), reason=reason)
        return msgspec.json.encode({"tenure_result_dropped": reason})

    def _duration_s(self, execution: Execution) -> float:
        return round(max(0, self._clock.elapsed_ns() - execution.started_ns) / 1e9, 6)

    def _observe(self, execution: Execution, outcome: Outcome) -> None:
        template = execution.fetched.envelope.template
        metrics.RUNS_FINISHED.labels(template.queue, template.job, outcome.value).inc()
        metrics.RUN_DURATION_SECONDS.labels(template.queue, template.job).observe(self._duration_s(execution))


def _identity(fetched: FetchedRun) -> dict[str, Any]:
    """Return the fields that name a run on a line of the log."""
    envelope = fetched.envelope
    fields = {"run": envelope.id, "job": envelope.template.job, "attempt": fetched.attempt, "queue": fetched.queue}
    if envelope.schedule is not None:
        fields["schedule"] = envelope.schedule
    return fields
