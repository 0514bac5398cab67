"""Reporting of runs by a worker: lines in the log and numbers for the metrics.

Guarantees
    Up to ``LINES_MAX`` ends a second are logged one by one, and up to ``FAILURES_MAX`` failures; further
    ones are folded to a line for each job and second, with their count, so that nothing goes unsaid: of up to
    ``FOLDED_MAX`` jobs and outcomes, and all others together, since whoever enqueues invents names of jobs.
    Numbers are collected and written to the metrics together, before the acknowledgements that
    they belong to are sent.
    A queue with a key of another type, and such a key that keeps runs from being fetched, is told once a minute.

Does not guarantee
    That a run that ended in the last moment before a kill is in either: Redis has the record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import structlog

from supervisor.core.jobs.trace_context import trace_id_of
from supervisor.core.model import Outcome
from supervisor.core.units import SECOND_NS
from supervisor.store.keys import Keys
from supervisor.store.wire.poll import FetchedRun, TurnReply
from supervisor.telemetry import events, metrics
from supervisor.telemetry.run_context import enter_run, run_fields
from supervisor.telemetry.run_events import RUN_ENDS, record_end
from supervisor.telemetry.run_lines import Fold

if TYPE_CHECKING:
    from supervisor.roles.worker.attempt.executor import Execution
    from supervisor.roles.worker.run_logs import OutputKeeping

LINES_MAX = 50
FAILURES_MAX = 200
TELL_AGAIN_NS = 60 * SECOND_NS
TOLD_MAX = 200
_DEBUG = 10
_FOREIGN = "a key of this queue, or of that of a child, holds another type; ends of runs wait for it"

log = structlog.get_logger("tenure.worker")


def log_as(execution: Execution, outputs: OutputKeeping) -> None:
    """Note that the code of this task, from now on, belongs to ``execution``: its lines in the log name the run."""
    envelope, attempt = execution.fetched.envelope, execution.fetched.attempt
    fields = run_fields(
        run=envelope.id, job=execution.spec.name, schedule=envelope.schedule, attempt=attempt,
        traceparent=envelope.traceparent,
    )  # fmt: skip
    enter_run(fields, (outputs, execution) if outputs.is_on else None)


class _Seconds:
    """A histogram's worth of durations that were not written yet."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * len(bounds)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total_s += seconds

    def take(self) -> tuple[list[int], float]:
        found = self.counts, self.total_s
        self.counts, self.total_s = [0] * len(self.bounds), 0.0
        return found


class _Job:
    """Metrics of one job in one queue that are not written yet."""

    def __init__(self, queue: str, job: str) -> None:
        self.queue = queue
        self.job = job
        self.seconds = _Seconds(metrics.RUN_DURATION_SECONDS.bounds)
        self.outcomes: dict[Outcome, int] = {}


class RunReporter:
    """Reports of the runs of one worker process."""

    def __init__(self) -> None:
        self._lines = Fold(LINES_MAX)
        self._failures = Fold(FAILURES_MAX)
        self._jobs: dict[tuple[str, str], _Job] = {}
        self._changed: set[_Job] = set()
        self._waits: dict[str, _Seconds] = {}
        self._is_debugging = log.is_enabled_for(_DEBUG)
        self._run_events = events.run_events()

    def began(self, fetched: FetchedRun, waited_s: float | None) -> None:
        """Count a start; ``waited_s`` is how long the run was ready, None when it had begun before."""
        if waited_s is not None:
            queue = fetched.queue
            waits = self._waits.get(queue)
            if waits is None:
                waits = self._waits[queue] = _Seconds(metrics.RUN_WAIT_SECONDS.bounds)
            waits.add(waited_s)
        if self._is_debugging:
            log.debug("run_started", **identity(fetched))
        if self._run_events == "all":
            facts = identity(fetched)
            events.record("run_started", subject=facts.pop("job"), is_logged=True, **facts)

    def ended(self, fetched: FetchedRun, outcome: Outcome, seconds: float, now_ns: int) -> None:
        """Report a run that succeeded, or that ended because it was asked to."""
        self._count(fetched, outcome, seconds)
        if self._lines.admits(now_ns):
            log.info(RUN_ENDS[outcome].event, **identity(fetched), duration_s=round(seconds, 6))
        else:
            self._lines.add(fetched.envelope.template.job, outcome, seconds)
        if self._run_events == "all":
            _record(fetched, outcome, "")

    def failed(
        self, fetched: FetchedRun, outcome: Outcome, seconds: float, now_ns: int, *, error: str, retry_s: float | None
    ) -> None:
        """Report an attempt that failed."""
        self._count(fetched, outcome, seconds)
        event, level, _ = RUN_ENDS.get(outcome, RUN_ENDS[Outcome.RETRY])
        retry_in_s = None if retry_s is None else round(retry_s, 3)
        fields = {"error": error, "duration_s": round(seconds, 6), "retry_in_s": retry_in_s}
        self._tell(event, level, fetched, outcome, now_ns, seconds=seconds, **fields)

    def refused(self, event: str, fetched: FetchedRun, outcome: Outcome, now_ns: int, **fields: Any) -> None:
        """Report a run that was not executed; the metrics are the caller's, who knows under which name."""
        level = "error" if event in {"job_unknown", "run_dead"} else "warning"
        self._tell(event, level, fetched, outcome, now_ns, **fields)

    def ended_by_stop(self, fetched: FetchedRun, outcome: Outcome, now_ns: int, reason: str, *, label: str) -> None:
        """Report a run that the stop of its process ended: it must not run twice, or was to end anyway."""
        metrics.RUNS_FINISHED.labels(fetched.queue, label, outcome.value).inc()
        event, level, _ = RUN_ENDS[outcome]
        self._tell(event, level, fetched, outcome, now_ns, error=reason)

    def _tell(
        self,
        event: str,
        level: str,
        fetched: FetchedRun,
        outcome: Outcome,
        now_ns: int,
        *,
        seconds: float = 0.0,
        **fields: Any,
    ) -> None:
        """Report an end that people look for; a run that is only late or given back did not fail."""
        why = str(fields.get("error", event))
        if self._failures.admits(now_ns):
            getattr(log, level)(event, **identity(fetched), outcome=outcome.value, **fields)
        else:
            self._failures.add(fetched.envelope.template.job, outcome, seconds, why)
        _record(fetched, outcome, why)

    def _count(self, fetched: FetchedRun, outcome: Outcome, seconds: float) -> None:
        key = fetched.queue, fetched.envelope.template.job
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = _Job(*key)
        job.seconds.add(seconds)
        job.outcomes[outcome] = job.outcomes.get(outcome, 0) + 1
        self._changed.add(job)

    def flush(self, now_ns: int, *, is_last: bool = False) -> None:
        """Write the numbers, and the folded lines of a second that is over; of any with ``is_last``."""
        self._is_debugging = log.is_enabled_for(_DEBUG)
        for job in self._changed:
            for outcome, count in job.outcomes.items():
                metrics.RUNS_FINISHED.labels(job.queue, job.job, outcome.value).inc(count)
            job.outcomes.clear()
            metrics.RUN_DURATION_SECONDS.labels(job.queue, job.job).add(*job.seconds.take())
        self._changed.clear()
        for queue, waits in self._waits.items():
            metrics.RUN_WAIT_SECONDS.labels(queue).add(*waits.take())
        self._waits.clear()
        for folded in self._lines.take(now_ns, is_last=is_last):
            log.info("runs_folded", **folded.fields())
        for folded in self._failures.take(now_ns, is_last=is_last):
            log.warning("failures_folded", **folded.fields(), last_error=folded.note)


def _record(fetched: FetchedRun, outcome: Outcome, note: str) -> None:
    facts = identity(fetched)
    record_end(outcome, note, job=facts.pop("job"), facts=facts)


def identity(fetched: FetchedRun) -> dict[str, Any]:
    """Return the fields that name a run on a line of the log."""
    envelope = fetched.envelope
    fields = {"run": envelope.id, "job": envelope.template.job, "attempt": fetched.attempt, "queue": fetched.queue}
    if envelope.schedule is not None:
        fields["schedule"] = envelope.schedule
    if envelope.maybe_duplicate:
        fields["maybe_duplicate"] = True
    if envelope.traceparent and (trace_id := trace_id_of(envelope.traceparent)):
        fields["trace_id"] = trace_id
    return fields


class ForeignKeyReporter:
    """Reports of keys that hold another type, as turns and waits at bells find them."""

    def __init__(self, keys: Keys, queues: Sequence[str]) -> None:
        """Build it; ``queues``: from which this process fetches."""
        self._keys = keys
        self._queues = queues
        self._told_ns: dict[str, int] = {}  # queue, or failure of a fetch, to when it was told

    def report(self, reply: TurnReply, now_ns: int) -> None:
        """Log what ``reply`` says of such keys."""
        for queue in sorted({queue for queue, _ in reply.refused}):
            self._tell(queue, queue, _FOREIGN, now_ns)
        if reply.failed:
            self.failed(reply.failed, now_ns)

    def failed(self, failure: str, now_ns: int) -> None:
        """Log a failure that begins with such a key."""
        of = next((queue for queue in self._queues if failure.startswith(self._keys.queue(queue).prefix)), "")
        self._tell(failure, of, failure, now_ns)

    def _tell(self, what: str, queue: str, error: str, now_ns: int) -> None:
        if now_ns - self._told_ns.get(what, -TELL_AGAIN_NS) >= TELL_AGAIN_NS:
            if len(self._told_ns) >= TOLD_MAX:
                self._told_ns.clear()
            self._told_ns[what] = now_ns
            log.error("queue_refused", queue=queue, error=error)
