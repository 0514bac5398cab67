"""One id, several lives: what is remembered of a schedule ends with it."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.jobs.registry import job
from supervisor.store.schedules.reads import addition_of
from tests.integration.scheduling.cluster_operator import EVERY_10S, definition_of


def test_a_schedule_that_came_again_is_fired_by_its_new_definition(desk: Any) -> None:
    """A standby hears of no deletion, and revisions count anew once the former life is forgotten."""
    here = desk(replicas=2, tick=EVERY_10S)
    first = here.cluster.leader
    (other,) = [name for name in here.cluster.replicas if name != first]
    here.upsert("x", every="5s")
    here.cluster.advance(12)
    here.cluster.resign(to=other)
    here.cluster.advance(3)
    here.run(here.definitions.delete([("x", None)]))
    here.cluster.advance(2)
    server = here.cluster._world.server
    server.store.raw.delete(server.keys.schedule_gone)  # as it is after more than a day
    created_s = here.now_s
    here.upsert("x", every="40s")
    here.cluster.resign(to=first)  # who led before is the first to look at it
    here.cluster.advance(50)

    assert here.cluster.leader == first
    assert here.show("x").record.revision == 1
    assert here.seconds("x", since=created_s) == [40, 80]


@pytest.mark.share(2)
@pytest.mark.parametrize("is_heard", [True, False])
def test_a_deleted_schedule_owes_nothing_when_it_comes_again_after_a_loss_of_data(desk: Any, *, is_heard: bool) -> None:
    """Its watermark is not brought back, whether or not the leader still remembers it."""
    here = desk(tick=EVERY_10S)
    server = here.cluster._world.server
    here.upsert("x", every="1m", missed="all")
    here.cluster.advance(130)
    here.run(here.definitions.delete([("x", None)]))
    if not is_heard:
        server.store.raw.delete(server.keys.schedule_changes)
    here.cluster.advance(10)
    here.cluster.empty_redis()
    here.cluster.advance(120)
    assert server.store.raw.hexists(server.keys.schedule_mark, "tick")
    assert not server.store.raw.hexists(server.keys.schedule_mark, "x")
    before = here.seconds("x")
    here.upsert("x", every="1m", missed="all")
    here.cluster.advance(2)

    assert here.seconds("x") == before


def test_the_first_run_is_not_lost_when_the_definition_is_edited_before_a_leader_looks(desk: Any) -> None:
    """Whether there was one decides, and not how often the definition was written."""
    here = desk(tick=EVERY_10S)
    here.cluster.kill(here.cluster.leader)
    here.upsert("x", every="1h", run_on_create=True)
    here.upsert("x", every="1h", run_on_create=True, description="a word")
    here.cluster.restart("r1")
    here.cluster.advance(60)

    assert [run for run in here.queued() if run.startswith("x!")] == ["x!initial"]


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_schedule_that_exists_does_not_begin_with_a_run_because_an_edit_says_so(
    desk: Any, *, is_deleted: bool
) -> None:
    """It has begun; neither does one that is taken out and added again within a day."""
    here = desk(tick=EVERY_10S)
    here.upsert("x", every="1h")
    here.cluster.advance(2)
    if is_deleted:
        here.run(here.definitions.delete([("x", None)]))
    here.upsert("x", every="1h", run_on_create=True)
    here.cluster.advance(10)
    here.upsert("x", every="1h", run_on_create=True, description="a word")
    here.cluster.advance(10)

    assert [run for run in here.queued() if run.startswith("x!")] == []


@job("schedule_lives.noop")
def noop() -> None:
    """Be a job that does nothing."""


COMPLETED: dict[str, Any] = {
    "job": "schedule_lives.noop",
    "every": "1m",
    "run_on_create": True,
    "max_runs": 2,
    "retain_completed": "1m",
}


def end_by_itself(here: Any) -> None:
    """Let the schedule have all of its runs, and be deleted."""
    for _ in range(5):
        here.cluster.advance(60)
        here.cluster.run_pending()
    assert here.show("x").record is None


def test_a_completed_schedule_that_is_applied_again_begins_with_its_first_run(desk: Any) -> None:
    """The next deploy of an unchanged file, within a day of its deletion."""
    here = desk(tick=EVERY_10S)
    for _ in range(2):
        here.upsert("x", **COMPLETED)
        end_by_itself(here)

    runs = [each.run_id for each in here.cluster.finished if each.run_id.startswith("x")]
    assert (len(runs), runs.count("x!initial")) == (6, 2)


@pytest.mark.parametrize("is_lost", [False, True])
def test_who_led_in_a_completed_life_takes_the_next_one_for_no_loss_of_data(desk: Any, *, is_lost: bool) -> None:
    """It remembers a watermark, and finds a schedule that has yet to begin; of one that began, it is right."""
    here = desk(replicas=2, tick=EVERY_10S, lease="60s")
    world, first = here.cluster._world, here.cluster.leader
    (other,) = [name for name in here.cluster.replicas if name != first]
    here.upsert("x", **COMPLETED)
    here.cluster.advance(62)
    here.cluster.resign(to=other)
    end_by_itself(here)
    if not is_lost:
        here.cluster.kill(other)  # who led before is the first to look at it
    here.upsert("x", **COMPLETED)
    if is_lost:
        keys, raw = here.views.keys, world.server.store.raw
        before = raw.hget(keys.schedule_state, "x")
        here.cluster.advance(1)
        here.cluster.run_pending()
        raw.hset(keys.schedule_state, "x", before)
    else:
        here.cluster.advance(90)
        assert here.cluster.leader == first
    here.cluster.advance(3)
    if is_lost:
        here.upsert("x", **COMPLETED, description="a word")  # it is read
        here.cluster.advance(3)

    doubtful = [told for told in world.history if told.event == "fires_doubtful"]
    assert bool(doubtful) == is_lost
    assert "x!initial" in here.queued()


def test_a_completed_schedule_that_is_renamed_and_may_run_on_makes_up_for_nothing(desk: Any) -> None:
    """As where it is edited: what was due while it was completed is not owed."""
    here = desk(tick=EVERY_10S)
    fields: dict[str, Any] = {"every": "1m", "missed": "all"}
    here.upsert("x", **fields, max_runs=2)
    here.cluster.advance("20m")
    definition = definition_of("y", {**EVERY_10S, **fields, "max_runs": 50, "renamed_from": "x"})
    addition = addition_of(definition, former=here.show("x").record, expected_revision=0)
    renamed_s = here.now_s
    here.run(here.definitions.upsert([addition], wall_ms=here.now_ms))
    here.cluster.advance(130)

    assert len(here.seconds("y")) == 2
    assert min(here.seconds("y")) > renamed_s
