"""Declaring the schedules of a configuration: what an edit does to watermarks, and whose set rules."""

from __future__ import annotations

import pytest

from supervisor.core.errors import FencedError
from supervisor.store.leases import CandidateInfo
from tests.integration.store.making import World, schedule

OTHER = "cd" * 16


def test_new_schedules_start_at_the_servers_now(world: World) -> None:
    """No catch-up for the time before a schedule was first seen, by whatever clock the leader has."""
    term = world.lead()
    declared = world.run(world.declare_call(term, schedule("a"), schedule("b"), next_due={"a": 77}))

    assert (declared.applied, declared.revision, declared.added) == (True, 1, ["a", "b"])
    stored = world.stored()
    assert stored["a"].mark_ms == stored["b"].mark_ms == declared.now_ms
    assert (stored["a"].next_ms, stored["b"].next_ms, stored["a"].revision) == (77, None, 1)
    assert stored["a"].definition == schedule("a")


def test_declaring_again_changes_nothing(world: World) -> None:
    """Each new term declares; an unchanged schedule keeps watermark, next and revision."""
    term = world.lead()
    call = world.declare_call(term, schedule("a"))
    world.run(call)
    world.raw.hset(world.keys.schedule_mark, "a", 5)
    before = world.stored()
    again = world.run(call)

    assert (again.applied, again.added, again.changed, again.removed) == (True, [], [], [])
    assert world.stored() == before


def test_an_edit_that_leaves_the_timing_keeps_the_watermark(world: World) -> None:
    """Editing arguments must not restart the clock of a schedule."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("a")))
    world.raw.hset(world.keys.schedule_mark, "a", 5)
    edited = world.run(world.declare_call(term, schedule("a", description="x"), digest="d2", next_due={"a": 9}))

    assert edited.changed == ["a"]
    stored = world.stored()["a"]
    assert (stored.mark_ms, stored.next_ms, stored.revision, stored.definition.description) == (5, 1, 2, "x")


@pytest.mark.parametrize(
    "timing", [{"every_ms": 2000}, {"phase_ms": 7}, {"cron": "* * * * *", "every_ms": None}, {"timezone": "Asia/Tokyo"}]
)
def test_an_edit_of_the_timing_is_never_retroactive(world: World, timing: dict[str, object]) -> None:
    """The new due times count from now, and never from before a watermark that is ahead."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("a"), schedule("b")))
    ahead = world.run(world.leases.view()).now_ms + 10**9
    world.raw.hset(world.keys.schedule_mark, mapping={"a": 5, "b": ahead})
    edited = world.run(
        world.declare_call(
            term, schedule("a", **timing), schedule("b", **timing), digest="d2", next_due={"a": 9, "b": 9}
        )
    )

    stored = world.stored()
    assert (stored["a"].mark_ms, stored["a"].next_ms, stored["a"].revision) == (edited.now_ms, 9, 2)
    assert stored["b"].mark_ms == ahead


def test_what_a_set_no_longer_names_is_removed(world: World) -> None:
    """With the last page of the set, and not before."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("a"), schedule("b"), schedule("c")))
    first = world.run(world.declare_call(term, schedule("a"), digest="d2", is_last=False))
    assert first.removed == []
    last = world.run(world.declare_call(term, schedule("b"), digest="d2"))

    assert last.removed == ["c"]
    assert sorted(world.stored()) == ["a", "b"]
    assert world.raw.hkeys(world.keys.schedule_mark) == [b"a", b"b"]
    assert world.raw.zscore(world.keys.schedule_next, "c") is None
    back = world.run(world.declare_call(term, schedule("c"), digest="d3"))
    assert (back.added, sorted(back.removed)) == (["c"], ["a", "b"])


def test_an_older_set_changes_nothing_while_a_newer_one_is_held(world: World) -> None:
    """During a rolling update an old replica that leads must not undo what a new one declared."""
    term = world.lead("old", info=CandidateInfo(replica="old", schedules_digest="d1"))
    world.run(world.declare_call(term, schedule("a")))
    world.run(world.campaign_call("new", OTHER, info=CandidateInfo(replica="new", schedules_digest="d2")))
    newer = world.run(world.declare_call(term, schedule("b"), digest="d2"))
    older = world.run(world.declare_call(term, schedule("a"), digest="d1"))

    assert (newer.revision, older.revision, older.applied) == (2, 1, False)
    assert sorted(world.stored()) == ["b"]


def test_rolling_a_deploy_back_works_once_the_newer_replicas_are_gone(world: World) -> None:
    """Gone means withdrawn, or not seen for two leases."""
    term = world.lead("old", info=CandidateInfo(replica="old", schedules_digest="d1"))
    world.run(world.campaign_call("new", OTHER, info=CandidateInfo(replica="new", schedules_digest="d2")))
    world.run(world.declare_call(term, schedule("a")))
    world.run(world.declare_call(term, schedule("b"), digest="d2"))
    info = world.raw.hget(world.keys.candidates, "new").split(b" ", 1)[1]
    world.raw.hset(world.keys.candidates, "new", b"1000 " + info)

    back = world.run(world.declare_call(term, schedule("a"), digest="d1"))
    assert (back.applied, back.added, back.removed) == (True, ["a"], ["b"])


def test_candidates_of_other_formats_do_not_stop_a_declaration(world: World) -> None:
    """What cannot be read holds no set."""
    term = world.lead()
    world.raw.hset(world.keys.candidates, mapping={"x": "garbage", "y": "99999999999999 [1]", "z": "99999999999999 {"})
    assert world.run(world.declare_call(term, schedule("a"))).applied


def test_only_the_current_term_declares(world: World) -> None:
    """A stale leader's configuration must not overwrite its successor's."""
    old = world.lead("a")
    call = world.declare_call(old, schedule("a"))
    world.lead("b", OTHER, mode="expired", observed_epoch=old.epoch)

    with pytest.raises(FencedError, match="schedule_declare"):
        world.run(call)
    assert world.stored() == {}


def test_a_thousand_schedules_are_declared_and_paged(world: World) -> None:
    """The largest page, read back in several."""
    term = world.lead()
    many = [schedule(f"team-{i:04}/job", description="d" * 200) for i in range(1000)]
    assert len(world.run(world.declare_call(term, *many)).added) == 1000
    assert world.run(world.schedules.page()).cursor != "0"
    assert len(world.stored()) == 1000


def test_a_definition_that_cannot_be_read_is_named(world: World) -> None:
    """One record of another version must not stop the scheduler."""
    term = world.lead()
    world.run(world.declare_call(term, schedule("a")))
    world.raw.hset(world.keys.schedule_def, "weird", "1\nab\nd1\n{}")

    page = world.run(world.schedules.page())
    assert [item.definition.id for item in page.items] == ["a"]
    assert page.unreadable == ["weird"]
