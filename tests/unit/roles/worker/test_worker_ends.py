"""What a worker tells of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from supervisor.core.model import Envelope, Kind, Outcome, Template
from supervisor.roles.worker.run_reporting import FAILURES_MAX, LINES_MAX, RunReporter
from supervisor.store.wire.poll import FetchedRun
from supervisor.telemetry import metrics

SECOND_NS = 1_000_000_000


def fetched(job: str, queue: str = "ends") -> FetchedRun:
    """Return a run as a turn brings it."""
    envelope = Envelope(id="r1", template=Template(job=job, kind=Kind.SYNC), schedule="nightly")
    return FetchedRun(queue=queue, envelope=envelope, attempt=1, crashes=0, interrupts=0, suspect=False)


def told(name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a metric in the queue ``ends``, by label values."""
    found = {}
    for metric in (metrics.RUNS_FINISHED, metrics.RUN_DURATION_SECONDS, metrics.RUN_WAIT_SECONDS):
        for family in metric.collect():
            for sample in family.samples:
                if sample.name == name and sample.labels["queue"] == "ends":
                    found[tuple(value for key, value in sample.labels.items() if key != "queue")] = sample.value
    return found


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What was logged."""
    with capture_logs() as entries:
        yield entries


def test_ends_beyond_the_bound_are_folded_and_counted(logs: list[Any]) -> None:
    """At 20,000 runs a second nobody reads lines, and each costs more than the run."""
    ends, run = RunReporter(), fetched("quick")
    for _ in range(LINES_MAX + 30):
        ends.ended(run, Outcome.OK, 0.25, 5 * SECOND_NS)
    ends.flush(5 * SECOND_NS)
    assert [line["event"] for line in logs] == ["run_succeeded"] * LINES_MAX
    assert (
        logs[0] | {"run": "r1", "job": "quick", "queue": "ends", "schedule": "nightly", "duration_s": 0.25} == logs[0]
    )

    ends.flush(6 * SECOND_NS)

    assert logs[LINES_MAX:] == [
        {
            "event": "runs_folded",
            "log_level": "info",
            "job": "quick",
            "outcome": "ok",
            "count": 30,
            "total_s": 7.5,
            "mean_s": 0.25,
            "max_s": 0.25,
        }
    ]


def test_failures_have_a_bound_of_their_own_and_keep_the_last_error(logs: list[Any]) -> None:
    """A flood of good runs hides none of them, and a flood of them hides no other."""
    ends, run = RunReporter(), fetched("broken")
    for number in range(FAILURES_MAX + 2):
        ends.failed(run, Outcome.RETRY, 0.1, SECOND_NS, error=f"E{number}", retry_s=1.0)
    ends.ended(run, Outcome.OK, 0.1, SECOND_NS)
    ends.flush(SECOND_NS, is_last=True)

    events = [line["event"] for line in logs]
    assert events == ["run_failed"] * FAILURES_MAX + ["run_succeeded", "failures_folded"]
    assert (logs[-1]["count"], logs[-1]["outcome"], logs[-1]["last_error"]) == (2, "retry", f"E{FAILURES_MAX + 1}")


def test_a_flood_of_runs_that_cannot_be_executed_is_folded_too(logs: list[Any]) -> None:
    """A deploy without a job, or a producer with wrong arguments, may send as many as there are."""
    ends, run = RunReporter(), fetched("gone")
    for _ in range(FAILURES_MAX + 3):
        ends.refused("job_unknown", run, Outcome.GIVEBACK, SECOND_NS, refused_s=7)
    ends.flush(SECOND_NS, is_last=True)

    assert (logs[0]["event"], logs[0]["refused_s"], logs[0]["outcome"]) == ("job_unknown", 7, "giveback")
    assert (logs[-1]["event"], logs[-1]["count"], logs[-1]["last_error"]) == ("failures_folded", 3, "job_unknown")


def test_numbers_are_collected_and_written_together() -> None:
    """Each of them once, into the bucket that an observation of its own would have met."""
    ends, run = RunReporter(), fetched("numbered")
    for seconds in (0.0005, 0.001, 0.3, 9000.0):
        ends.ended(run, Outcome.OK, seconds, 0)
    ends.ended(run, Outcome.CANCELLED, 0.3, 0)
    for waited_s in (0.004, 2.0, None):
        ends.began(run, waited_s)
    assert ("numbered", "ok") not in told("tenure_runs_finished_total")

    for _ in range(2):
        ends.flush(0)

    outcomes = told("tenure_runs_finished_total")
    assert (outcomes["numbered", "ok"], outcomes["numbered", "cancelled"]) == (4, 1)
    buckets = told("tenure_run_duration_seconds_bucket")
    assert [buckets["numbered", bound] for bound in ("0.001", "0.1", "0.5", "7200.0", "+Inf")] == [2, 2, 4, 4, 5]
    assert told("tenure_run_duration_seconds_sum")["numbered",] == pytest.approx(9000.6015)
    waits = told("tenure_run_wait_seconds_bucket")
    assert (waits["0.005",], waits["2.0",], waits["+Inf",]) == (1, 2, 2)
