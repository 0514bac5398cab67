"""One line for each decision, and the counters that dashboards and alarms look at."""

from __future__ import annotations

from structlog.testing import capture_logs

from supervisor.roles.agent.reporting import AgentReport
from supervisor.telemetry import metrics


def value(counter: object, **labels: str) -> float:
    """Return what a counter shows."""
    child = counter.labels(**labels)  # type: ignore[attr-defined]  # every counter of the project has labels here
    return float(child._value.get())


def test_an_outage_is_one_line_and_its_end_another() -> None:
    """However many questions go unanswered."""
    report = AgentReport()
    with capture_logs() as lines:
        for failures in range(1, 50):
            report("election_unanswered", operation="renew", failures=failures, error="away")
        report("election_answer", operation="renew", result="renewed", seconds=0.001)

    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("redis_unanswered", "warning"),
        ("redis_answers_again", "info"),
    ]


def test_renewals_are_counted_by_result() -> None:
    """A rate of time-outs is an alarm."""
    report = AgentReport()
    before = {result: value(metrics.ELECTION_RENEWALS, result=result) for result in ("ok", "lost", "timeout")}
    with capture_logs():
        report("election_answer", operation="renew", result="reclaimed", seconds=0.001)
        report("election_answer", operation="renew", result="lost", seconds=0.001)
        report("election_answer", operation="campaign", result="denied", seconds=0.001)
        report("election_unanswered", operation="renew", failures=1, error="away")

    assert {result: value(metrics.ELECTION_RENEWALS, result=result) - seen for result, seen in before.items()} == {
        "ok": 1,
        "lost": 1,
        "timeout": 1,
    }


def test_transitions_and_reclaimed_runs_are_told_and_counted() -> None:
    """With the fields that answer who, what and how many."""
    report = AgentReport()
    before = value(metrics.RUNS_RECLAIMED, reason="crashed")
    with capture_logs() as lines:
        report("leader_acquired", epoch=7, reason="granted")
        report("session_reclaimed", session="r1/worker-io-0/1", runs=3, death="crashed", reasons={"crashed": 1})

    assert [line["event"] for line in lines] == ["leader_acquired", "session_reclaimed"]
    assert lines[1]["runs"] == 3
    assert value(metrics.RUNS_RECLAIMED, reason="crashed") == before + 1
