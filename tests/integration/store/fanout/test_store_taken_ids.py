"""Ids of children and followers that other runs have: any program may choose them before the parent ends."""

from __future__ import annotations

import pytest

from supervisor.core.model import Outcome
from tests.integration.store.fanout.test_store_tallies import begin, child, end, follow, sums, tally
from tests.integration.store.schedules.backfill_fixture import BackfilledSchedule, nominal
from tests.kit.builders import StoreCalls, envelope

S = "r.1/w-0/1"
TAKEN = {"code": "id_taken", "message": "its id is taken by another run"}


def told(world: StoreCalls, outcome: str) -> dict[str, str]:
    """Return what the history says of the runs that ended so."""
    entries = world.run(world.queues.recent("default"))
    return {entry.run_id: entry.note for entry in entries if entry.outcome == outcome}


def test_a_child_whose_id_another_run_has_is_a_failure_of_its_parent(world: StoreCalls) -> None:
    """Any program may choose that id. As a duplicate it passed for done, and what waits for success started."""
    world.enqueue(envelope("p/0", unique="k"), envelope("p/1"), delays_ms=[60_000, 60_000])
    begin(world, child("p", "0"), child("p", "1"), child("p", "2"), then=[follow("p/s", "success"), follow("p/c")])
    assert sums(world) == (3, 1, {"rejected": 2})
    assert world.fetch(S) == ["p/2"]
    world.turn(S, acks=[end("p/2")])

    found = tally(world)
    assert (found.left, found.outcomes, found.waiting) == (0, {"ok": 1, "rejected": 2}, ["p/s"])
    assert (found.errors, found.first_errors) == (2, [{"run": "p/0"} | TAKEN, {"run": "p/1"} | TAKEN])
    assert told(world, "rejected") == {"p/0": TAKEN["message"], "p/1": TAKEN["message"]}
    assert world.run(world.queues.counts("default")).stats["rejected"] == 2
    assert world.state("p/c") == "queued"

    world.make_due("p/0")
    world.make_due("p/1")
    assert sorted(world.fetch(S)) == ["p/0", "p/1", "p/c"]
    world.turn(S, acks=[end("p/0"), end("p/1", Outcome.DEAD)])
    assert sums(world) == (3, 0, {"ok": 1, "rejected": 2})
    assert world.fsck() == []


@pytest.mark.parametrize("limits", [{}, {"unique": "k"}])
def test_two_runs_of_one_tree_whose_ids_agree_are_two_runs(world: StoreCalls, limits: dict[str, str]) -> None:
    """A key may hold a slash: the child ``x/0`` of a run, and the child ``0`` of its child ``x``."""
    begin(world, child("p", "x/0", **limits), child("p", "x"))
    assert world.fetch(S) == ["p/x/0", "p/x"]
    world.turn(S, acks=[end("p/x", Outcome.OK, child("p/x", "0"))])
    assert sums(world, "p/x") == (1, 0, {"rejected": 1})
    assert sums(world) == (3, 1, {"ok": 1, "rejected": 1})
    world.turn(S, acks=[end("p/x/0")])
    assert sums(world) == (3, 0, {"ok": 2, "rejected": 1})


def test_what_follows_and_finds_its_id_taken_is_told_where_it_was_to_start(world: StoreCalls) -> None:
    """In the history, and in the tally that counts it. The root showed all ok and nothing that waits, and no line said why."""
    ids = ["p/then", "p/0/then"]
    world.enqueue(*map(envelope, ids), delays_ms=[60_000, 60_000])
    begin(world, child("p", "0"), then=[follow("p/then"), follow("p/more")])
    assert world.fetch(S) == ["p/0"]
    world.turn(S, acks=[end("p/0", then=[follow("p/0/then")], errors=[["quota", "no room"]])])

    found = tally(world)
    assert (found.total, found.outcomes, found.waiting) == (2, {"ok": 1, "rejected": 1}, [])
    assert found.first_errors[1:] == [{"run": "p/0/then"} | TAKEN]
    assert told(world, "rejected") == dict.fromkeys(ids, TAKEN["message"])
    assert world.fetch(S) == ["p/more"]


def test_a_due_time_that_a_backfill_finds_taken_is_told(world: StoreCalls) -> None:
    """A program took the id before there was such a schedule; the backfill counts it among what it left out."""
    world.enqueue(envelope(f"m@{nominal(2)}"), delays_ms=[60_000])
    desk = BackfilledSchedule(world)
    desk.add(3)
    done = desk.finish(world.lead())
    assert (done.enqueued, done.skipped) == (2, 1)
    assert told(world, "rejected") == {f"m@{nominal(2)}": TAKEN["message"]}
