"""One id, several lives: what is remembered of a schedule ends with it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.scheduling.cluster_operator import EVERY_10S


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
