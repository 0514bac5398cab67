"""What schedules promise of time, seen as a user sees it: under the kit's clock, by the code that production runs."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from supervisor.core.calendars.moments import Moment
from supervisor.core.model import Outcome, ScheduleDef
from supervisor.operations.due_times import due_times
from supervisor.store.wire.fire import FireCode
from supervisor.testing.definitions import schedule_of
from tenure import Context, job

seen: list[tuple[Any, ...]] = []


@job("shows.note")
def note(day: str, hour: int, ctx: Context) -> None:
    """Remember what a run was told."""
    seen.append((day, hour, ctx.run_id))


@job("shows.plan")
def plan(parts: int, ctx: Context) -> None:
    """Spawn a run for each part."""
    for number in range(parts):
        ctx.spawn(part, {"number": number}, key=f"p{number}")


@job("shows.part")
async def part(number: int, ctx: Context) -> None:
    """Remember which part of what this was."""
    seen.append((ctx.parent, number, ctx.nominal_ms, ctx.schedule))


@pytest.fixture(autouse=True)
def forget() -> None:
    """Each test starts without memories."""
    seen.clear()


def told(definition: ScheduleDef, now: datetime) -> list[datetime]:
    """Return what ``tenure schedule next --count 10`` prints at ``now``."""
    now_ms = round(now.timestamp() * 1000)
    due = islice(due_times(definition, now_ms), 10)
    return [datetime.fromtimestamp(each.nominal_ms / 1000, UTC) for each in due]


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("zone", "start"),
    [
        ("Europe/Berlin", "2026-03-28T22:05:00+00:00"),
        ("Europe/Berlin", "2026-10-24T22:05:00+00:00"),
        ("Australia/Lord_Howe", "2026-10-03T13:05:00+00:00"),
    ],
)
def test_the_next_ten_that_are_told_are_those_that_fire_across_a_change_of_the_clock(
    tenure_cluster: Any, zone: str, start: str
) -> None:
    """Whatever is done in a gap and in an overlap: nobody is told one thing and given another."""
    crons = ("30 * * * *", "*/45 * * * *", "30 2 * * *", "0,30 1-3 * * *", "15 0 * * *")
    policies = ({}, {"dst_gap": "skip", "dst_overlap": "both"}, {"dst_gap": "shift", "dst_overlap": "last"})
    entries = {
        f"s{row}{column}": {"job": "elsewhere", "cron": cron, "timezone": zone, "overlap": "allow", "missed": "all"}
        | policy
        for row, cron in enumerate(crons)
        for column, policy in enumerate(policies)
    }
    cluster = tenure_cluster(replicas=1, lease="5m", schedules=entries, start=start)
    begin = cluster.now
    expected = {name: told(schedule_of(name, dict(entry)), begin) for name, entry in entries.items()}

    cluster.advance("8h")

    end = begin + timedelta(hours=8)
    compared = 0
    for name, nominals in expected.items():
        fired = [run.nominal for run in cluster.fired(name)]
        within = [nominal for nominal in nominals if nominal <= end]
        assert fired[:10] == within, f"{name} {entries[name]}\n{cluster.history()}"
        compared += len(within)
    assert compared > 60
    offsets = {Moment(round(at.timestamp() * 1000), zone).local().utcoffset() for at in (begin, end)}
    assert len(offsets) == 2, "the change lies within what was compared"


@pytest.mark.long
def test_a_day_without_anybody_is_caught_up_once_each_while_the_rest_is_on_time(tenure_cluster: Any) -> None:
    """The bench does it with 10,000; here every decision can be looked at."""
    hourly = {
        f"h{number:02d}": {"job": "elsewhere", "cron": f"{number} * * * *", "overlap": "allow"} for number in range(60)
    }
    often = {"often": {"job": "elsewhere", "every": "10s", "overlap": "allow"}}
    cluster = tenure_cluster(replicas=1, lease="5m", schedules=hourly | often, start="2026-06-01T00:00:30+00:00")
    cluster.advance("1h")
    before = Counter(run.schedule for run in cluster.fired())
    cluster.kill("r1")
    cluster.advance("1d")
    cluster.restart("r1")
    back = cluster.now
    cluster.advance("6m")  # the lease of the dead one runs out first

    fired = [run for run in cluster.fired()[before.total() :] if run.schedule != "often"]
    due_again = {name for name, minute in ((n, int(n[1:])) for n in hourly) if minute in range(7)}
    assert {run.schedule for run in fired} == set(hourly)
    caught_up = Counter(run.schedule for run in fired if run.nominal <= back)
    assert set(caught_up.values()) == {1}, caught_up
    assert {name for name, count in Counter(run.schedule for run in fired).items() if count > 1} <= due_again
    decisions = [each for each in cluster._world.server.decisions if each.schedule == "often"]
    late = [each.at_ms - each.nominal_ms for each in decisions if each.nominal_ms > back.timestamp() * 1000 + 330_000]
    assert late
    assert max(late) < 1000
    assert all(each.code is FireCode.FIRED for each in decisions)


def test_a_run_is_told_the_time_at_which_it_was_due_not_at_which_it_runs(tenure_cluster: Any) -> None:
    """After an outage, and across a change of the clock: the arguments are those of the nominal time."""
    entry = {
        "job": "shows.note",
        "cron": "30 3 * * *",
        "timezone": "Europe/Berlin",
        "missed": "all",
        "overlap": "allow",
        "args": {"day": '{{ date | minus:"1d" }}', "hour": "{{ hour }}"},
    }
    cluster = tenure_cluster(replicas=1, lease="5m", schedules={"export": entry}, start="2026-03-27T12:00:00+00:00")
    cluster.advance("10m")
    cluster.kill("r1")
    cluster.advance("3d")
    cluster.restart("r1")
    cluster.advance("10m")

    cluster.run_pending()

    assert [(day, hour) for day, hour, _ in seen] == [("2026-03-27", 3), ("2026-03-28", 3), ("2026-03-29", 3)]
    assert [run_id for _, _, run_id in seen] == [
        f"export@{round(run.nominal.timestamp()) * 1000}" for run in cluster.fired()
    ]


def test_a_planner_and_its_children_run_in_the_kit(tenure_cluster: Any) -> None:
    """Children carry the nominal time of their planner, belong to no schedule, and come once it has ended."""
    entry = {"job": "shows.plan", "every": "1h", "args": {"parts": 120}}
    cluster = tenure_cluster(replicas=1, schedules={"plan": entry}, start="2026-06-01T00:59:00+00:00")
    cluster.advance("2m")

    finished = cluster.run_pending()

    (fired,) = cluster.fired("plan")
    nominal_ms = round(fired.nominal.timestamp() * 1000)
    assert {run.outcome for run in finished} == {Outcome.OK}
    assert sorted(seen) == sorted((f"plan@{nominal_ms}", number, nominal_ms, None) for number in range(120))
