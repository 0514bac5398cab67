"""What operators see of the scheduler's decisions."""

from __future__ import annotations

from typing import Any

from structlog.testing import capture_logs

from supervisor.roles.scheduler.reporting import SchedulerReport
from supervisor.telemetry import metrics

FIRE: dict[str, Any] = {
    "schedule": "tick", "nominal_ms": 10_000, "missed": 0, "late_ms": 3, "run": "tick@10000", "queue": "default", "job": "demo.tick",
}  # fmt: skip


def fires(code: str) -> float:
    return float(metrics.FIRES.labels(code=code)._value.get())


def test_a_fire_is_a_line_and_a_count() -> None:
    """By its result; what was not decided is a warning."""
    before = fires("fired")
    with capture_logs() as lines:
        SchedulerReport()("fire", code="fired", **FIRE)
        SchedulerReport()("fire", code="skewed", **FIRE)

    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("schedule_fired", "info"),
        ("schedule_skewed", "warning"),
    ]
    assert fires("fired") == before + 1


def test_missed_times_are_said() -> None:
    """They were not run: somebody may have to know."""
    with capture_logs() as lines:
        SchedulerReport()("fire", code="fired", **{**FIRE, "missed": 9})

    assert lines[0] == {"event": "schedule_missed", "schedule": "tick", "missed": 9, "log_level": "warning"}


def test_the_next_time_is_readable() -> None:
    """One line for each schedule at the start of a term: name, trigger, next."""
    with capture_logs() as lines:
        SchedulerReport()("schedule_planned", schedule="tick", trigger="every 10s", next_ms=1_767_225_610_000)
        SchedulerReport()("schedule_planned", schedule="never", trigger="cron", next_ms=None)

    assert [line["next"] for line in lines] == ["2026-01-01T00:00:10+00:00", None]


def test_an_outage_is_one_line() -> None:
    """The retries that follow are counted, not told."""
    report = SchedulerReport()
    with capture_logs() as lines:
        for failures in range(1, 20):
            report("scheduler_unanswered", script="fire", failures=failures, error="away")

    assert len(lines) == 1
