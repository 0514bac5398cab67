"""What operators see of the scheduler's decisions."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from supervisor.roles.scheduler.firing import Decided
from supervisor.roles.scheduler.main import LINES_PER_S, SchedulerReport
from supervisor.store.wire.envelope import Packed
from supervisor.store.wire.fire import FireCode, FireItem
from supervisor.telemetry import metrics
from tests.kit.clock import FakeClock

TICK = FireItem("tick", 1, 0, 10_000, 10_000, 20_000, Packed("tick@10000", "default", b""), job="demo.tick")


def fires(code: str) -> float:
    return float(metrics.FIRES.labels(code=code)._value.get())


def test_a_fire_is_a_line_and_a_count() -> None:
    """By its result; what was not decided is a warning."""
    before = fires("fired")
    with capture_logs() as lines:
        SchedulerReport()("fires", decided=[Decided(TICK, FireCode.FIRED, 3), Decided(TICK, FireCode.SKEWED, 3)])

    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("schedule_fired", "info"),
        ("schedule_skewed", "warning"),
    ]
    assert lines[0]["run"] == "tick@10000"
    assert fires("fired") == before + 1


def test_what_alarms_look_for_is_counted_from_zero_on() -> None:
    """They see growth: of a series that begins with the first refused fire they would see nothing."""
    metrics.FIRES.clear()
    SchedulerReport()
    (family,) = metrics.FIRES.collect()
    found = {each.labels["code"]: each.value for each in family.samples if each.name.endswith("_total")}
    assert found == {"dropped": 0, "refused": 0, "skewed": 0}


def test_thousands_of_fires_share_a_line_a_second() -> None:
    """A line costs more than the fire itself: 700 batches of a second wrote one each."""
    before, clock = fires("fired"), FakeClock()
    report = SchedulerReport(clock)
    rest = {"event": "schedules_decided", "log_level": "info"}
    with capture_logs() as lines:
        for _ in range(3):
            report("fires", decided=[Decided(TICK, FireCode.FIRED, 3)] * 100)
        report("plan", defined=1, planned=1, overdue=0, paused=0, invalid=0, refused=0)
        assert len(lines) == LINES_PER_S
        clock.advance(1)
        report("plan", defined=1, planned=1, overdue=0, paused=0, invalid=0, refused=0)
        assert lines[LINES_PER_S:] == [{**rest, "decisions": 250, "fired": 250}]

        report("fires", decided=[Decided(TICK, code, 3) for code in [FireCode.FIRED] * 51 + [FireCode.SKIPPED] * 2])
        report("term_left")
        report("term_left")
    assert lines[2 * LINES_PER_S + 1 :] == [{**rest, "decisions": 3, "fired": 1, "skipped": 2}]
    assert fires("fired") == before + 351


def test_missed_times_are_said() -> None:
    """They were not run: somebody may have to know, and why."""
    missed = TICK._replace(missed=9, why="cp")
    with capture_logs() as lines:
        SchedulerReport()("fires", decided=[Decided(missed, FireCode.FIRED, 3)])

    assert lines[0] == {
        "event": "schedule_missed",
        "schedule": "tick",
        "missed": 9,
        "reason": "cap+policy",
        "log_level": "warning",
    }


def test_what_is_overdue_and_what_is_paused_can_be_alarmed_on() -> None:
    """As the leader last saw it."""
    SchedulerReport()("plan", defined=12, planned=11, overdue=3, paused=2, invalid=4, refused=1)

    assert metrics.SCHEDULES_OVERDUE._value.get() == 3
    assert metrics.SCHEDULES_PAUSED._value.get() == 2
    assert metrics.SCHEDULES_INVALID._value.get() == 4
    assert metrics.SCHEDULES_REFUSED._value.get() == 1
    assert metrics.SCHEDULES._value.get() == 12


def test_a_former_leader_tells_of_no_schedules() -> None:
    """Its numbers would hold an alarm until it leads again: ten minutes for one that another leader has ended."""
    report = SchedulerReport()
    report("plan", defined=12, planned=11, overdue=3, paused=2, invalid=4, refused=1)

    report("term_left", epoch=8)

    told = (metrics.SCHEDULES, metrics.SCHEDULES_OVERDUE, metrics.SCHEDULES_PAUSED, metrics.SCHEDULES_INVALID)
    assert [gauge._value.get() for gauge in (*told, metrics.SCHEDULES_REFUSED)] == [0] * 5


def test_the_next_time_is_readable() -> None:
    """One line for each schedule at the start of a term: name, trigger, next."""
    with capture_logs() as lines:
        SchedulerReport()("schedule_planned", schedule="tick", trigger="every 10s", next_ms=1_767_225_610_000)
        SchedulerReport()("schedule_planned", schedule="never", trigger="cron", next_ms=None)

    assert [line["next"] for line in lines] == ["2026-01-01T00:00:10+00:00", None]


@pytest.mark.parametrize("next_ms", [253_402_300_800_000, 10**15, 10**30])
def test_a_next_time_that_no_calendar_has_ends_no_scheduler(next_ms: int) -> None:
    """One watermark that a hand wrote ended the scheduler of each leader in turn."""
    with capture_logs() as lines:
        SchedulerReport()("schedule_planned", schedule="tick", trigger="every 10s", next_ms=next_ms)

    assert lines[0]["next"].startswith("99")


def test_an_outage_is_one_line() -> None:
    """The retries that follow are counted, not told."""
    report = SchedulerReport()
    with capture_logs() as lines:
        for failures in range(1, 20):
            report("scheduler_unanswered", script="fire", failures=failures, error="away")

    assert len(lines) == 1
