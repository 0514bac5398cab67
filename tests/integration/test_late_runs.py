"""A run that is late has the arguments of the moment at which it was due, under a driven clock."""

from __future__ import annotations

from typing import Any

from tenure import job


@job("late.sync")
def sync(hour: int) -> int:
    return hour


def test_a_run_delayed_past_the_next_hour_keeps_its_own(tenure_cluster: Any) -> None:
    """Fired at 10:00, executed at 11:05: the hour is 10, not the wall clock's."""
    cluster = tenure_cluster(
        schedules={"sync": {"job": "late.sync", "cron": "0 10 * * *", "timezone": "UTC", "args": {"hour": "{{ hour }}"}}},
        start="2026-03-01T09:59:00+00:00", replicas=1, lease="5m",
    )  # fmt: skip
    cluster.advance("66m")
    assert cluster.now.hour == 11

    assert [each.value for each in cluster.run_pending()] == [10]


def test_an_hour_of_the_day_is_an_expression_and_not_a_tick_that_does_nothing(tenure_cluster: Any) -> None:
    """At 14 in its own zone, once a day: nothing is enqueued at the other hours."""
    daily = {"job": "late.sync", "cron": "0 14 * * *", "timezone": "Asia/Seoul", "args": {"hour": "{{ hour }}"}}
    cluster = tenure_cluster(schedules={"dormancy": daily}, start="2026-03-01T02:30:00+00:00", replicas=1, lease="5m")
    cluster.advance("5h")

    assert [(each.nominal.hour, each.nominal.minute) for each in cluster.fired()] == [(5, 0)]
    assert [each.value for each in cluster.run_pending()] == [14]
