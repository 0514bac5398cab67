"""Control of schedules, sentence by sentence, in a cluster under a clock that the test drives."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from supervisor.core.schedules.triggers import trigger_of
from supervisor.store.schedules.backfills import BackfillState, Request, known_of
from supervisor.store.schedules.control import TriggerCode
from supervisor.store.schedules.definitions import DefineCode
from tests.integration.scheduling.cluster_operator import EVERY_10S, START


def test_a_dynamic_schedule_fires_from_its_creation_on_and_not_for_the_time_before(desk: Any) -> None:
    """And the leader knows of it within 100 ms."""
    here = desk(tick={"job": "demo", "every": "1h"})
    here.cluster.advance(8.5)
    assert here.upsert("dyn") is DefineCode.CREATED
    here.cluster.advance(0.1)
    assert here.show("dyn").record.next_ms == here.now_ms // 10_000 * 10_000 + 10_000
    here.cluster.advance(25)

    assert here.seconds("dyn") == [10, 20, 30]


def test_a_pause_stops_scheduled_starts_and_neither_triggers_nor_backfills(desk: Any) -> None:
    """It is for the plan; people may still run what they need."""
    here = desk(tick=EVERY_10S)
    here.cluster.advance(24)
    here.run(here.control.pause(["tick"], reason="moving"))
    here.cluster.advance(30)
    assert here.seconds("tick") == [10, 20]
    assert here.trigger("tick", "k") is TriggerCode.TRIGGERED
    start_ms = round(datetime.fromisoformat(START).timestamp() * 1000)
    request = Request(from_ms=start_ms - 20_000, until_ms=start_ms)
    here.run(here.backfills.add("b", "tick", request, limit=10, is_forced=False))
    here.cluster.advance(10)

    assert here.queued()[2:] == ["tick!manual!k", *(f"tick@{start_ms + offset}" for offset in (-20_000, -10_000, 0))]


def test_resuming_forgets_the_time_of_the_pause(desk: Any) -> None:
    """Suspended time does not count as missed (Kubernetes #110919)."""
    here = desk(tick=EVERY_10S, other={**EVERY_10S, "missed": "all", "on_resume": "catchup"})
    here.cluster.advance(14)
    here.run(here.control.pause(["tick", "other"]))
    here.cluster.advance(30)
    here.run(here.control.resume(["tick", "other"]))
    here.cluster.advance(11)

    assert here.seconds("tick") == [10, 50]
    assert here.seconds("other") == [10, 20, 30, 40, 50]


def test_a_pause_with_an_end_resumes_by_itself(desk: Any) -> None:
    """By Redis' time, without anybody asking."""
    here = desk(tick=EVERY_10S)
    here.cluster.advance(14)
    here.run(here.control.pause(["tick"], for_ms=30_000))
    here.cluster.advance(50)

    assert here.seconds("tick") == [10, 50, 60]
    assert here.show("tick").record.pause is None


def test_the_pause_of_a_static_schedule_survives_a_reload(desk: Any) -> None:
    """It is an override in Redis, shown beside the schedule, and a deploy does not end it."""
    here = desk(tick=EVERY_10S)
    here.run(here.control.pause(["tick"], reason="moving"))
    here.reload(tick={**EVERY_10S, "description": "edited"})
    here.cluster.advance(30)

    assert here.show("tick").record.revision == 2
    assert here.show("tick").record.pause.reason == "moving"
    assert here.seconds("tick") == []


def test_a_trigger_moves_neither_the_phase_nor_max_runs(desk: Any) -> None:
    """Three scheduled runs were promised, and three come; after that it still can be triggered."""
    here = desk(tick={**EVERY_10S, "max_runs": 3})
    here.cluster.advance(14)
    for key in ("a", "b", "c"):
        assert here.trigger("tick", key) is TriggerCode.TRIGGERED
    here.cluster.advance(60)

    assert here.seconds("tick") == [10, 20, 30]
    assert here.trigger("tick", "d") is TriggerCode.TRIGGERED
    assert here.trigger("tick", "d") is TriggerCode.DUPLICATE


def test_a_backfill_runs_what_an_outage_left_out_and_nothing_twice(desk: Any) -> None:
    """Both ends included; what fired is known."""
    here = desk(tick={**EVERY_10S, "missed": "latest"})
    here.cluster.advance(24)
    here.cluster.kill("r1")
    here.cluster.advance(60)
    here.cluster.restart("r1")
    here.cluster.advance(40)
    begin_ms = round(datetime.fromisoformat(START).timestamp() * 1000)
    fired = here.seconds("tick")
    request = Request(from_ms=begin_ms + 10_000, until_ms=begin_ms + 90_000)
    here.run(here.backfills.add("b", "tick", request, limit=100, is_forced=False))
    here.cluster.advance(10)

    runs = here.queued()
    assert len(set(runs)) == len(runs)
    wanted = {f"tick@{begin_ms + second * 1000}" for second in range(10, 100, 10)}
    assert wanted <= set(runs)
    (done,) = here.run(here.backfills.all())
    assert (done.state, done.enqueued) == (BackfillState.DONE, 9 - len([at for at in fired if at <= 90]))


def test_the_time_of_a_pause_can_be_backfilled_once_it_is_resumed_whoever_leads(desk: Any) -> None:
    """Of a schedule with jitter also before a leader has looked, but for what may still wait for its jitter."""
    here = desk(tick=EVERY_10S | {"jitter": "4s"})
    here.cluster.advance(25)
    here.run(here.control.pause(["tick"]))
    here.cluster.advance(60)
    here.cluster.kill("r1")
    here.run(here.control.resume(["tick"]))
    found = here.show("tick")
    times = trigger_of(found.record.definition()).nominals(here.now_ms - 86_000, known_of(found).mark_ms)
    assert len(list(times)) == 8
    here.cluster.restart("r1")
    here.cluster.advance(40)
    assert here.seconds("tick") == [10, 20, 100, 110, 120]


def test_a_backfill_survives_the_death_of_its_leader(desk: Any) -> None:
    """The next one goes on at the cursor; runs that are due meanwhile are on time."""
    here = desk(replicas=2, tick={**EVERY_10S, "every": "1s"})
    begin_ms = round(datetime.fromisoformat(START).timestamp() * 1000)
    request = Request(from_ms=begin_ms - 2_000_000, until_ms=begin_ms)
    here.run(here.backfills.add("b", "tick", request, limit=5000, is_forced=False))
    here.cluster.advance(0.5)
    (half,) = here.run(here.backfills.all())
    assert 0 < half.enqueued < 2001
    here.cluster.kill(here.cluster.leader)
    here.cluster.advance(40)

    (done,) = here.run(here.backfills.all())
    assert (done.state, done.enqueued) == (BackfillState.DONE, 2001)
    backfilled = [run for run in here.queued() if int(run.partition("@")[2]) <= begin_ms]
    assert backfilled == [f"tick@{begin_ms - second * 1000}" for second in range(2000, -1, -1)]


def test_a_backfill_for_one_revision_runs_no_other(desk: Any) -> None:
    """Who asked may have been judged by its job, its queue or its labels; the definition may change meanwhile."""
    here = desk(tick=EVERY_10S)
    here.cluster.advance(4)
    begin_ms = round(datetime.fromisoformat(START).timestamp() * 1000)
    revision = here.show("tick").record.revision
    for name, of in (("same", revision), ("former", revision + 1)):
        request = Request(from_ms=begin_ms - 20_000, until_ms=begin_ms - 1, revision=of)
        here.run(here.backfills.add(name, "tick", request, limit=10, is_forced=False))
    here.cluster.advance(4)

    ended = {each.id: each for each in here.run(here.backfills.all())}
    assert (ended["same"].state, ended["same"].enqueued) == (BackfillState.DONE, 2)
    assert (ended["former"].state, ended["former"].enqueued) == (BackfillState.FAILED, 0)
    assert "was changed" in ended["former"].note


def test_what_next_shows_is_what_then_fires_across_a_change_of_the_clock(desk: Any) -> None:
    """One code path: the trigger that previews is the trigger that plans."""
    night = {"job": "demo", "cron": "0,30 1,2,3 * * *", "timezone": "Europe/Berlin", "overlap": "allow"}
    here = desk(start="2027-03-27T23:50:00+00:00", night=night)
    (definition,) = here.cluster._world.server.definitions()
    shown = list(trigger_of(definition).nominals(here.now_ms, 1 << 60, 4))
    here.cluster.advance(2 * 3600)
    fired = [round(each.nominal.timestamp() * 1000) for each in here.cluster.fired("night")]

    assert fired == shown
    assert [at // 60_000 % 60 for at in shown] == [0, 30, 0, 30]
