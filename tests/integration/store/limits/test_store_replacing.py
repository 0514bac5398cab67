"""What a newer run of the same key does to an older one: every policy, at every moment of the older one's life."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from supervisor.core.model import Envelope, Outcome
from supervisor.store.queues.control import QueueControl
from supervisor.store.queues.runs import UnwantedRun
from supervisor.store.wire.poll import Ack
from tests.kit.builders import StoreCalls, envelope

S, Z = "r.1/w-0/1", "r.1/w-1/1"
POLICIES: dict[str, dict[str, Any]] = {
    "allow": {},
    "skip": {"unique": "k"},
    "queue": {"concurrency": "k", "concurrency_max": 1},
    "replace": {"concurrency": "k", "concurrency_max": 1, "concurrency_replaces": True},
}
WANTED = {
    # what becomes of (the older, the newer) run, once the newer has come and a worker has room for both
    ("allow", "waiting"): ("running", "running"),
    ("allow", "running"): ("running", "running"),
    ("allow", "retrying"): ("later", "running"),
    ("allow", "ended"): ("finished", "running"),
    ("skip", "waiting"): ("running", "duplicate"),
    ("skip", "running"): ("running", "duplicate"),
    ("skip", "retrying"): ("later", "duplicate"),
    ("skip", "ended"): ("finished", "running"),
    ("queue", "waiting"): ("running", "blocked"),
    ("queue", "running"): ("running", "blocked"),
    ("queue", "retrying"): ("later", "running"),
    ("queue", "ended"): ("finished", "running"),
    ("replace", "waiting"): ("replaced", "running"),
    ("replace", "running"): ("asked", "blocked"),
    ("replace", "retrying"): ("later", "running"),
    ("replace", "ended"): ("finished", "running"),
}


def run(run_id: str, policy: str = "replace", **more: Any) -> Envelope:
    """Return a run with the key ``k``."""
    return envelope(run_id, **POLICIES[policy], **more)


def ended(run_id: str, outcome: Outcome, attempt: int = 1) -> Ack:
    """Return the acknowledgement of a run; one that failed is tried again in a minute."""
    delay_ms = 60_000 if outcome is Outcome.RETRY else 0
    return Ack(run_id=run_id, queue="default", attempt=attempt, outcome=outcome, retry_delay_ms=delay_ms)


def asked(world: StoreCalls) -> list[UnwantedRun]:
    """Return what the agent of both sessions is told to end."""
    found: list[UnwantedRun] = world.run(world.queues.unwanted([S, Z]))
    return found


def place(world: StoreCalls, run_id: str) -> str:
    """Return where a run is, ``asked`` for one that is to give way."""
    if run_id in {each.run_id for each in asked(world)}:
        return "asked"
    entries = [entry.outcome for entry in world.run(world.queues.recent("default")) if entry.run_id == run_id]
    return entries[0] if entries[:1] in (["duplicate"], ["replaced"]) else world.state(run_id)


@pytest.mark.parametrize(("policy", "moment"), list(WANTED))
def test_a_newer_run_does_to_the_older_one_what_its_policy_says(world: StoreCalls, policy: str, moment: str) -> None:
    """Allow, skip, queue, replace, by when the newer one comes: before, while, between attempts, after."""
    world.open(S)
    world.enqueue(run("old", policy))
    if moment != "waiting":
        world.fetch(S)
    if moment in {"retrying", "ended"}:
        world.turn(S, acks=[ended("old", Outcome.RETRY if moment == "retrying" else Outcome.OK)])
    is_new = world.enqueue(run("new", policy))[0]
    world.fetch(S)
    world.fetch(S)
    newer = place(world, "new") if is_new else "duplicate"
    assert (place(world, "old"), newer) == WANTED[policy, moment]
    assert world.fsck() == []


def test_the_one_that_gave_way_has_ended_and_the_newer_one_runs(world: StoreCalls) -> None:
    """It ends replaced, is not tried again, and its slot is the newer one's."""
    world.open(S)
    world.enqueue(run("old"))
    world.fetch(S)
    world.enqueue(run("new"))
    assert world.fetch(S) == []
    (request,) = asked(world)
    assert (request.run_id, request.is_killed, request.is_cancelled) == ("old", False, False)
    assert world.fetch(S, acks=[ended("old", Outcome.REPLACED)]) == ["new"]
    assert (world.state("old"), asked(world)) == ("finished", [])
    assert world.fsck() == []


def test_one_that_does_not_give_way_is_let_go_of(world: StoreCalls) -> None:
    """A job that swallows the request for half a minute loses its run, and its process if need be."""
    world.open(S)
    world.enqueue(run("old"))
    world.fetch(S)
    world.enqueue(run("new"))
    world.fetch(S)
    cancel = f"{world.keys.queue('default').prefix}cancel"
    request = world.raw.hget(cancel, "old").decode()
    world.raw.hset(cancel, "old", f"{request.rpartition('|')[0]}|1")  # its time has passed
    (late,) = asked(world)
    assert (late.run_id, late.is_killed, late.is_cancelled) == ("old", True, False)
    assert [entry.outcome for entry in world.run(world.queues.recent("default"))] == ["replaced"]
    assert world.fetch(S) == ["new"]
    assert world.turn(S, acks=[ended("old", Outcome.OK)]).stale == ["old"]
    assert world.fsck() == []


def test_of_several_that_wait_only_the_newest_begins(world: StoreCalls) -> None:
    """A burst of clicks starts one collection, the last."""
    world.open(S)
    world.enqueue(run("r0"))
    world.fetch(S)
    world.enqueue(*(run(f"r{n}") for n in range(1, 6)))
    assert world.fetch(S) == []
    assert world.fetch(S, acks=[ended("r0", Outcome.REPLACED)]) == ["r5"]
    outcomes = {entry.run_id: entry.outcome for entry in world.run(world.queues.recent("default"))}
    assert outcomes == dict.fromkeys(["r0", "r1", "r2", "r3", "r4"], "replaced")
    world.turn(S, acks=[ended("r5", Outcome.OK)])
    assert world.raw.hlen(world.keys.queue("default").limits) == 0
    assert world.fsck() == []


def test_one_that_is_tried_again_replaces_nobody(world: StoreCalls) -> None:
    """It is the older one: it ends, and whoever came later goes on."""
    world.open(S)
    world.enqueue(run("old"))
    world.fetch(S)
    world.turn(S, acks=[ended("old", Outcome.RETRY)])
    world.enqueue(run("new"))
    assert world.fetch(S) == ["new"]
    world.make_due("old")
    assert (world.fetch(S), asked(world), place(world, "old")) == ([], [], "replaced")
    world.turn(S, acks=[ended("new", Outcome.OK)])
    assert world.raw.hlen(f"{world.keys.prefix}limit:n") == 0
    assert world.fsck() == []


def test_one_that_is_tried_again_after_the_newer_one_ended_runs(world: StoreCalls) -> None:
    """Nobody took its place: nobody is newer any more."""
    world.open(S)
    world.enqueue(run("old"))
    world.fetch(S)
    world.turn(S, acks=[ended("old", Outcome.RETRY)])
    world.enqueue(run("new"))
    world.fetch(S)
    world.turn(S, acks=[ended("new", Outcome.DEAD)])
    world.make_due("old")
    assert world.fetch(S) == ["old"]


def test_the_older_one_is_asked_although_no_worker_is_free_for_the_newer(world: StoreCalls) -> None:
    """Where one process is all there is, and the older run has it."""
    world.open(S)
    world.enqueue(run("old"))
    assert world.fetch(S, want=1) == ["old"]
    world.enqueue(run("new"))
    assert [each.run_id for each in asked(world)] == ["old"]
    world.enqueue(run("newer"))
    assert world.fetch(S, want=1, acks=[ended("old", Outcome.REPLACED)]) == ["newer"]
    assert place(world, "new") == "replaced"
    assert world.fsck() == []


def test_a_newer_one_that_is_delayed_replaces_when_it_is_due(world: StoreCalls) -> None:
    """Not when it was asked for."""
    world.open(S)
    world.enqueue(run("old"))
    world.fetch(S)
    world.enqueue(run("new"), delays_ms=[60_000])
    assert asked(world) == []
    world.make_due("new")
    world.fetch(S, want=0)
    assert [each.run_id for each in asked(world)] == ["old"]


def test_with_more_slots_the_oldest_gives_way(world: StoreCalls) -> None:
    """Two at once, and a third comes: one of the two goes."""
    world.open(S)
    both = {"concurrency": "k", "concurrency_max": 2, "concurrency_replaces": True}
    world.enqueue(envelope("a", **both))
    world.fetch(S)
    world.raw.hset(world.keys.queue("default").run, "a", f"{S}|1|1")  # a while ago
    world.enqueue(envelope("b", **both), envelope("c", **both))
    assert world.fetch(S) == ["b"]
    assert [each.run_id for each in asked(world)] == ["a"]


def test_a_persons_request_is_not_overwritten(world: StoreCalls) -> None:
    """Whoever asked first is obeyed: the run ends cancelled, and the newer one begins."""
    world.open(S)
    world.enqueue(run("old"))
    world.fetch(S)
    world.run(QueueControl(world.keys).cancel([("default", "old")]))
    world.enqueue(run("new"))
    world.fetch(S)
    assert [each.is_cancelled for each in asked(world)] == [True]
    assert world.fetch(S, acks=[ended("old", Outcome.CANCELLED)]) == ["new"]


def test_the_newest_is_still_the_newest_in_another_queue_and_is_forgotten_with_its_end(world: StoreCalls) -> None:
    """A move changes where a run waits, not which one is wanted; nothing of a key stays when its runs have ended."""
    world.open(S)
    world.enqueue(run("a"), run("b"))
    part = "ready:a:1"
    while world.run(QueueControl(world.keys).move("default", "other", part)).seen:
        pass
    taken = world.turn(S, want=5, queues=["other"]).runs
    assert [each.envelope.id for each in taken] == ["b"]
    world.turn(S, acks=[Ack(run_id="b", queue="other", attempt=1, outcome=Outcome.OK)])
    assert not world.raw.exists(f"{world.keys.prefix}limit:n")


def test_one_that_waited_for_its_rate_is_no_newer_when_it_comes_back(world: StoreCalls) -> None:
    """The last of many requests is the one that must be carried out, however fast they came."""
    rate = {"rate": "k", "rate_count": 1, "rate_per_ms": 60_000}
    world.open(S)
    world.enqueue(run("first", **rate))
    assert world.fetch(S) == ["first"]
    world.turn(S, acks=[ended("first", Outcome.OK)])
    world.enqueue(run("a", **rate))
    assert (world.fetch(S), world.state("a")) == ([], "later")
    world.enqueue(run("b", **rate))
    world.make_due("a")
    assert world.fetch(S) == []
    assert (place(world, "a"), world.state("b")) == ("replaced", "later")
    world.raw.delete(f"{world.keys.prefix}limit:r:tests.noop:k")
    world.make_due("b")
    (begun,) = world.turn(S, want=5).runs
    assert (begun.envelope.id, begun.attempt, begun.crashes, begun.interrupts) == ("b", 1, 0, 0)
    world.turn(S, acks=[ended("b", Outcome.OK)])
    assert world.fsck() == []


def test_one_that_is_put_off_is_no_newer_when_it_comes_back(world: StoreCalls) -> None:
    """A hook, or a worker that does not know the job yet, let it wait; of what came meanwhile the last is wanted."""
    world.open(S)
    world.enqueue(run("old"))
    world.fetch(S)
    put_off = Ack(run_id="old", queue="default", attempt=1, outcome=Outcome.GIVEBACK, retry_delay_ms=5000)
    world.turn(S, acks=[put_off])
    world.enqueue(run("new"))
    world.make_due("old")
    assert (world.fetch(S), asked(world), place(world, "old")) == (["new"], [], "replaced")
    world.turn(S, acks=[ended("new", Outcome.OK)])
    world.enqueue(run("alone"))
    world.fetch(S)
    world.turn(S, acks=[msgspec.structs.replace(put_off, run_id="alone")])
    world.make_due("alone")
    (begun,) = world.turn(S, want=5).runs
    assert (begun.envelope.id, begun.attempt, begun.crashes, begun.interrupts) == ("alone", 1, 0, 0)
    assert world.fsck() == []


@pytest.mark.parametrize("is_executed", [False, True])
def test_a_newer_one_that_a_person_hastens_replaces(world: StoreCalls, *, is_executed: bool) -> None:
    """As when its time had come: it is the one that must be carried out."""
    world.open(S)
    world.enqueue(run("old"))
    if is_executed:
        world.fetch(S)
    world.enqueue(run("new"), delays_ms=[60_000])
    world.run(QueueControl(world.keys).hasten([("", "new")]))
    world.fetch(S)
    wanted = ("asked", "blocked") if is_executed else ("replaced", "running")
    assert (place(world, "old"), place(world, "new")) == wanted
    assert world.fsck() == []


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_once_the_newest_has_ended_nobody_gives_way_to_an_older_one(world: StoreCalls, *, is_cancelled: bool) -> None:
    """Those that are left come to the head of their lists in any order: the one that runs may be newer."""
    control = QueueControl(world.keys)
    world.open(S)
    world.enqueue(run("put-off"))
    world.fetch(S)
    world.turn(
        S, acks=[Ack(run_id="put-off", queue="default", attempt=1, outcome=Outcome.GIVEBACK, retry_delay_ms=5000)]
    )
    world.enqueue(*(run(name, priority=2) for name in ("oldest", "old")), run("new"), run("newest", queue="other"))
    if is_cancelled:
        world.run(control.cancel([("", "newest")], by="tests"))
    else:
        assert world.fetch(S, queues=["other"]) == ["newest"]
        world.turn(S, acks=[msgspec.structs.replace(ended("newest", Outcome.OK), queue="other")])
    assert (world.fetch(S), asked(world), place(world, "old")) == (["new"], [], "blocked")
    world.run(control.cancel([("", "put-off")], by="tests"))  # whoever waits is looked at again
    assert (world.fetch(S), asked(world)) == ([], [])
    world.turn(S, acks=[ended("new", Outcome.OK)])
    assert (world.fetch(S), place(world, "oldest")) == (["old"], "replaced")
    assert world.fsck() == []
