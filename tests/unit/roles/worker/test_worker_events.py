"""Which ends of runs are events, by what the settings say."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from supervisor.core.model import Envelope, Kind, Outcome, Template
from supervisor.roles.worker.run_reporting import RunReporter
from supervisor.store.wire.poll import FetchedRun
from supervisor.telemetry import events
from supervisor.telemetry.events import Mailbox
from tests.kit.mailboxes import arrived

RUN = FetchedRun(
    queue="q",
    envelope=Envelope(id="r1", template=Template(job="tests.job", kind=Kind.SYNC), schedule="nightly"),
    attempt=2,
    crashes=0,
    interrupts=0,
    suspect=False,
)
FAILURES = [("run_failed", "warning"), ("run_dead", "error")]
ALL = [("run_started", "info"), ("run_succeeded", "info"), ("run_cancelled", "info"), *FAILURES]


@pytest.mark.parametrize(("runs", "expected"), [("failures", FAILURES), ("all", ALL), ("none", [])])
def test_ends_are_events_as_the_settings_say(mailbox: Mailbox, runs: str, expected: list[tuple[str, str]]) -> None:
    """Failures only, unless asked: at tens of thousands a second nobody reads successes. A give-back failed nothing."""
    events.attach(mailbox.write_fd, replica="r1", role="worker-io-0", runs=runs)
    ends = RunReporter()
    ends.began(RUN, 0.1)
    ends.ended(RUN, Outcome.OK, 0.1, 0)
    ends.ended(RUN, Outcome.CANCELLED, 0.1, 0)
    ends.failed(RUN, Outcome.RETRY, 0.1, 0, error="ValueError: no", retry_s=1.0)
    ends.failed(RUN, Outcome.DEAD, 0.1, 0, error="ValueError: no", retry_s=None)
    ends.refused("job_unknown", RUN, Outcome.GIVEBACK, 0)

    assert [(event.reason, event.level) for event in arrived(mailbox)] == expected


@pytest.mark.parametrize(
    ("outcome", "level", "runs", "is_event"),
    [
        (Outcome.CANCELLED, "info", "failures", False),
        (Outcome.CANCELLED, "info", "all", True),
        (Outcome.DEAD, "error", "failures", True),
        (Outcome.DEAD, "error", "none", False),
    ],
)
def test_a_run_that_a_stop_ends_is_told_as_any_other(
    mailbox: Mailbox, outcome: Outcome, level: str, runs: str, *, is_event: bool
) -> None:
    """One that somebody had cancelled is no warning, and an event where all ends are."""
    events.attach(mailbox.write_fd, replica="r1", role="worker-io-0", runs=runs)
    with capture_logs() as lines:
        RunReporter().ended_by_stop(RUN, outcome, 0, "a stop", label=RUN.envelope.template.job)

    name = f"run_{outcome.value}"
    assert [(line["event"], line["log_level"], line["error"]) for line in lines] == [(name, level, "a stop")]
    told = [(event.reason, event.level, event.note) for event in arrived(mailbox)]
    assert told == [(name, level, "a stop")] * is_event


def test_an_event_names_the_job_and_the_latest_run(mailbox: Mailbox) -> None:
    """Series go by jobs, since runs are without number; which run it was stands beside."""
    events.attach(mailbox.write_fd, replica="r1", role="worker-io-0")
    RunReporter().failed(RUN, Outcome.RETRY, 0.1, 0, error="ValueError: no", retry_s=1.0)

    (event,) = arrived(mailbox)
    assert (event.subject, event.note) == ("tests.job", "ValueError: no")
    assert event.fields == {"run": "r1", "attempt": 2, "queue": "q", "schedule": "nightly"}
