"""Schedules with named calendars in a cluster under a clock that the test drives."""

from __future__ import annotations

from typing import Any

from supervisor.store.schedules.definitions import DefineCode
from supervisor.store.schedules.reads import ScheduleState, Views
from tenure import job

CALENDARS = {
    "de": {"dates": ["2026-12-25 Christmas Day", "2026-12-26"]},
    "weekends": {"weekdays": ["sat", "sun"]},
    "workdays": {"weekdays": ["mon", "tue", "wed", "thu", "fri"]},
}
BASE = {"job": "demo", "cron": "0 9 * * *", "timezone": "Europe/Berlin", "overlap": "allow"}

intervals: list[tuple[str, str]] = []


@job("calendars.interval")
def interval(since: str, then: str) -> None:
    """Note the due times around the own one."""
    intervals.append((since, then))


def fired(cluster: Any, schedule: str) -> list[str]:
    return [run.nominal.strftime("%d %H:%M") for run in cluster.fired(schedule)]


def test_runs_keep_off_holidays_or_move_and_are_caught_up_like_others(tenure_cluster: Any) -> None:
    """Christmas is a Friday: skipped, moved ahead, moved back, and nothing of it is owed after an outage."""
    schedules = {
        "skip": BASE | {"only": ["workdays"], "exclude": ["de"], "missed": "all"},
        "next": BASE | {"exclude": ["de", "weekends"], "on_excluded": "next", "missed": "all"},
        "previous": BASE | {"cron": "0 9 25,27 * *", "exclude": ["de", "weekends"], "on_excluded": "previous"},
        "templated": BASE
        | {
            "job": "calendars.interval",
            "exclude": ["de", "weekends"],
            "on_excluded": "next",
            "missed": "all",
            "args": {"since": "{{ interval_start }}", "then": "{{ next }}"},
        },
    }
    cluster = tenure_cluster(
        replicas=1, lease="5m", schedules=schedules, calendars=CALENDARS, start="2026-12-24T07:50:00+00:00"
    )
    cluster.advance("12m")
    cluster.kill("r1")
    cluster.advance("5d")
    cluster.restart("r1")
    cluster.advance("6m")
    for name in ("skip", "next"):
        assert fired(cluster, name) == ["24 08:00", "28 08:00", "29 08:00"], name
    assert fired(cluster, "previous") == ["24 08:00"]
    intervals.clear()
    cluster.run_pending()
    assert intervals[1] == ("2026-12-24T09:00:00+01:00", "2026-12-29T09:00:00+01:00")


def test_a_calendar_that_changes_plans_anew(desk: Any) -> None:
    """A due time that became a holiday is not fired, nor made up for; one that became free is."""
    here = desk(tick={"job": "demo", "every": "7d"})
    here.upsert("x", cron="0 9 * * *", every=None, exclude=["2026-01-02"], on_excluded="next")
    here.cluster.advance(60)
    day = here.show("x").record.next_ms // 86_400_000
    dates = [here.cluster.now.date().replace(day=n).isoformat() for n in (1, 2)]
    assert here.upsert("x", cron="0 9 * * *", every=None, exclude=dates, on_excluded="next") is DefineCode.CHANGED
    here.cluster.advance(60)
    assert here.show("x").record.next_ms // 86_400_000 == day + 2
    assert here.upsert("x", cron="0 9 * * *", every=None, exclude=[], on_excluded="skip") is DefineCode.CHANGED
    here.cluster.advance(60)
    assert here.show("x").record.next_ms // 86_400_000 == day


def test_a_schedule_whose_only_days_are_over_is_completed(tenure_cluster: Any) -> None:
    """It neither searches for ever nor counts as broken."""
    cluster = tenure_cluster(
        replicas=1,
        lease="5m",
        schedules={"a": BASE | {"only": ["paydays"]}},
        calendars={"paydays": {"dates": ["2026-12-23"]}},
        start="2026-12-23T07:50:00+00:00",
    )
    cluster.advance("20m")
    assert fired(cluster, "a") == ["23 08:00"]
    server = cluster._world.server
    (found,) = server.execute(Views(server.keys).inspect(["a"]))
    assert found.record is not None
    assert not found.record.invalid
    assert ScheduleState.parse(found.state).counters.completed_ms
