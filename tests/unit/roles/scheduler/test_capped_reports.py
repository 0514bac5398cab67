"""Reports of a plan: once per change, and bounded whatever the number of schedules."""

from __future__ import annotations

from typing import Any

from supervisor.roles.scheduler.prefetcher import NAMED_MAX
from supervisor.roles.scheduler.window import CappedReports
from supervisor.store.wire.fire import DueReply
from tests.unit.roles.scheduler.scheduler_stepper import serving


def reply(overdue: int) -> DueReply:
    return DueReply(
        now_ms=1, planned=3, defined=3, overdue=overdue, next_ms=None, is_full=False, last_change="", is_late_full=False, seen=[]
    )  # fmt: skip


def test_schedules_that_are_overdue_are_reported_from_the_first_read_on_once_each_time() -> None:
    """A leader takes over a plan that is late: its very first look says so, and the next ones do not repeat it."""
    told: list[tuple[str, dict[str, Any]]] = []
    telling = CappedReports(lambda event, **fields: told.append((event, fields)))
    for overdue in (2, 3, 0, 1):
        telling.read(reply(overdue), refused=0)
    assert [fields["count"] for event, fields in told if event == "schedule_overdue"] == [2, 1]
    assert [event for event, _ in told].count("term_read") == 1


def test_a_line_names_a_few_of_many_refused_schedules_and_counts_all() -> None:
    """Ten thousand names would be a line that no collector takes."""
    bench = serving()
    prefetcher = bench.scheduler._prefetcher
    names = [f"s{number}" for number in range(NAMED_MAX + 5)]
    prefetcher.put_off(names, "WRONGTYPE")
    prefetcher.accepted(names)
    prefetcher.accepted(names)
    told = [(event, fields) for event, fields in bench.told if "schedules" in fields and event != "term_read"]
    assert [(event, len(fields["schedules"]), fields["count"]) for event, fields in told] == [
        ("schedules_put_off", NAMED_MAX, NAMED_MAX + 5),
        ("schedules_accepted_again", NAMED_MAX, NAMED_MAX + 5),
    ]
