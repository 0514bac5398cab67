"""What an edit or a deploy does to schedules, row by row, in a cluster under a clock that the test drives."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from supervisor.operations.apply import compared
from supervisor.store.schedules.definitions import DefineCode
from tests.integration.scheduling.cluster_operator import EVERY_10S, START, definition_of


def test_an_unchanged_reload_changes_nothing(desk: Any) -> None:
    """Byte for byte the same record; no run is lost or doubled around it."""
    here = desk(tick=EVERY_10S)
    raw, keys = here.cluster._world.server.store.raw, here.cluster._world.server.keys
    before = raw.hgetall(keys.schedule_def)
    here.reload(tick=EVERY_10S)
    here.cluster.advance(30)

    assert raw.hgetall(keys.schedule_def) == before
    assert len(here.seconds("tick")) == len(set(here.seconds("tick")))


def test_editing_the_job_keeps_the_grid_and_owes_what_was_due_meanwhile(desk: Any) -> None:
    """Editing arguments must not restart the clock of a schedule (redbeat #313)."""
    here = desk(tick={**EVERY_10S, "every": "1m", "missed": "all"})
    here.cluster.advance(50)
    here.reload(tick={**EVERY_10S, "every": "1m", "missed": "all", "args": {"a": 1}})
    here.cluster.advance(60)

    assert here.seconds("tick") == [60, 120]


@pytest.mark.parametrize(("before", "after", "first"), [("12h", "1m", 60), ("1m", "12h", 43_200)])
def test_a_change_of_interval_takes_the_next_point_of_the_new_grid(
    desk: Any, before: str, after: str, first: int
) -> None:
    """From 12 h to 1 m: at most a minute; from 1 m to 12 h: the next 12 h point."""
    here = desk(tick={**EVERY_10S, "every": "7d"}, dyn={"job": "demo", "every": "30d"})
    here.upsert("x", every=before)
    here.cluster.advance(5)
    assert here.upsert("x", every=after) is DefineCode.CHANGED
    here.cluster.advance(0.2)

    begin_ms = round(datetime.fromisoformat(START).timestamp() * 1000)
    assert here.show("x").record.next_ms == begin_ms + first * 1000


def test_a_change_of_timing_is_never_retroactive(desk: Any) -> None:
    """Editing a schedule fires nothing at once (Kubernetes #63371)."""
    here = desk(tick={"job": "demo", "every": "7d"})
    here.upsert("x", cron="0 0 1 1 *", every=None)
    here.cluster.advance(3605)
    here.upsert("x", cron="30 0 * * *", every=None)
    here.cluster.advance(60)

    assert here.seconds("x") == []


def test_on_change_run_now_runs_once_at_once(desk: Any) -> None:
    """For those who want to see an edit at work."""
    here = desk(tick={"job": "demo", "every": "7d"})
    here.upsert("x", every="12h", on_change="run_now")
    here.cluster.advance(5)
    here.upsert("x", every="6h", on_change="run_now")
    here.cluster.advance(5)

    assert len([run for run in here.queued() if run.startswith("x!changed!")]) == 1


@pytest.mark.parametrize(("until_s", "runs"), [(None, 1), (7, 1), (3600, 0)], ids=["resumed", "over", "paused"])
def test_on_change_run_now_runs_as_soon_as_a_pause_has_ended(desk: Any, until_s: int | None, runs: int) -> None:
    """Also before the leader has looked, which may be away: it alone takes the pause out of a schedule with jitter."""
    here = desk(tick={"job": "demo", "every": "7d"})
    fields = {"jitter": "1h", "on_change": "run_now"}
    here.upsert("x", every="12h", **fields)
    here.cluster.advance(5)
    here.run(here.control.pause(["x"], until_ms=None if until_s is None else here.now_ms + 1000 * until_s))
    here.cluster.advance(5)
    here.cluster.stop("r1")
    here.cluster.advance(5)
    if until_s is None:
        here.run(here.control.resume(["x"]))
    here.upsert("x", every="6h", **fields)

    assert len([run for run in here.queued() if run.startswith("x!changed!")]) == runs


def test_an_edit_between_a_due_time_and_its_jittered_fire_fires_once(desk: Any) -> None:
    """Temporal #4866, whichever side of the edit the fire is on."""
    here = desk(tick={"job": "demo", "every": "7d"})
    here.upsert("j", every="1h", jitter="1h")
    here.cluster.advance(3600)
    next_ms = here.show("j").record.next_ms
    assert next_ms is not None
    waits_s = (next_ms - here.now_ms) / 1000
    assert waits_s > 30, "the jitter of this id must leave room for an edit"
    here.cluster.advance(10)
    found = here.show("j")
    wanted = definition_of("j", {**EVERY_10S, "every": "1h", "jitter": "1h", "end_at": "2027-01-01T00:00:00Z"})
    change = compared(wanted, found.record, found.now_ms).change
    assert change is not None
    assert change.kept_mark_ms is not None
    here.run(here.definitions.upsert([change], wall_ms=here.now_ms))
    here.cluster.advance(3600)

    assert here.seconds("j")[:1] == [3600]
    assert here.seconds("j").count(3600) == 1


def test_a_removed_schedule_fires_no_more_and_comes_back_without_a_past(desk: Any) -> None:
    """Nominal times while it was absent are not missed and not run; its counters are restored."""
    here = desk(
        tick=EVERY_10S, other={**EVERY_10S, "every": "1h", "missed": "all"}, gone={**EVERY_10S, "missed": "all"}
    )
    here.cluster.advance(24)
    here.reload(tick=EVERY_10S)
    absent_from = here.now_s
    here.cluster.advance(60)
    assert here.seconds("gone", since=absent_from) == []
    back_from = here.now_s
    here.reload(tick=EVERY_10S, gone={**EVERY_10S, "missed": "all"})
    here.cluster.advance(20)

    assert here.seconds("gone", since=absent_from)[0] > back_from
    assert here.show("gone").record.revision == 2


HARMFUL = {"job": "demo", "every": "10m", "missed": "all"}


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("edited", "ran"),
    [
        ({}, []),
        ({"bad": HARMFUL | {"paused": True}}, []),
        ({"bad": HARMFUL | {"every": "7m"}}, []),
        ({"bad": HARMFUL | {"max_catchup": 1}}, ["bad@1200000"]),
        ({"bad": HARMFUL}, ["bad@600000", "bad@1200000"]),
        ({"bad": HARMFUL | {"cron": "*/10 * * * *", "every": None}}, ["bad@600000", "bad@1200000"]),
        ({"good": HARMFUL | {"renamed_from": "bad"}}, ["good@600000", "good@1200000"]),
    ],
    ids=["removed", "paused", "retimed", "another field", "unchanged", "spelled otherwise", "renamed"],
)
def test_what_was_edited_while_nobody_led_is_not_run_as_it_was(desk: Any, edited: Any, ran: list[str]) -> None:
    """A job does harm: everything is stopped, it is taken out or corrected, everything is started again."""
    here = desk(bad=HARMFUL | {"overlap": "allow"}, other=EVERY_10S)
    here.cluster.kill("r1")
    here.cluster.advance("21m")
    here.reload(other=EVERY_10S, **{name: entry | {"overlap": "allow"} for name, entry in edited.items()})

    begin_ms = round(datetime.fromisoformat(START).timestamp() * 1000)
    found = [f"{fired.schedule}@{round(fired.nominal.timestamp() * 1000) - begin_ms}" for fired in here.cluster.fired()]
    assert [each for each in found if not each.startswith("other")] == ran


def test_a_renamed_schedule_misses_nothing(desk: Any) -> None:
    """What was due around the rename runs under the new name."""
    here = desk(old={**EVERY_10S, "missed": "all"})
    here.cluster.advance(24)
    here.reload(new={**EVERY_10S, "missed": "all", "renamed_from": "old"})
    here.cluster.advance(30)

    together = here.seconds("old") + here.seconds("new")
    assert together == [10.0 * number for number in range(1, len(together) + 1)]
    assert here.show("old").record is None


def test_a_clash_keeps_the_old_configuration_running(desk: Any) -> None:
    """The reload is rejected as a whole."""
    here = desk(tick=EVERY_10S)
    here.upsert("mine", every="1h")
    here.reload(tick={**EVERY_10S, "every": "1m"}, mine={"job": "demo", "every": "5m"})
    since = here.now_s
    here.cluster.advance(20)

    assert len(here.seconds("tick", since=since)) == 2
    assert here.show("mine").record.is_dynamic
    assert "schedules_refused" in here.cluster.history()


def test_an_empty_configuration_silences_nobody(desk: Any) -> None:
    """It schedules what is stored."""
    here = desk(tick=EVERY_10S)
    here.reload()
    since = here.now_s
    here.cluster.advance(20)

    assert len(here.seconds("tick", since=since)) == 2


def test_an_older_replica_that_leads_in_a_rolling_deploy_removes_nothing(desk: Any) -> None:
    """It schedules from the stored set while a replica that holds the newer one is alive; alone, it rolls back."""
    here = desk(replicas=2, tick=EVERY_10S)
    old = here.cluster.leader
    new = next(name for name in here.cluster.replicas if name != old)
    here.reload(new, tick=EVERY_10S, fresh=EVERY_10S)
    here.cluster.stop(old)
    here.cluster.restart(old)
    here.cluster.advance(20)
    assert (here.cluster.leader, len(here.seconds("fresh"))) == (new, 2)
    here.cluster.pause(new)
    here.cluster.advance(45)
    since = here.now_s
    assert here.cluster.leader == old
    here.cluster.advance(10)
    assert len(here.seconds("fresh", since=since)) == 1
    here.cluster.resume(new)
    here.cluster.kill(new)
    here.cluster.kill(old)
    here.cluster.advance(120)
    here.cluster.restart(old)
    here.cluster.advance(60)
    assert here.show("fresh").record is None
