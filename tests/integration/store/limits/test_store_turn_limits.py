"""The turn at its edges: what wakes whom, what is capped, what cannot be read, and the largest call."""

from __future__ import annotations

from supervisor.core.model import Kind, Outcome
from supervisor.store.wire.poll import Ack
from tests.integration.store.limits.limit_checks import limited
from tests.kit.builders import StoreCalls, envelope

S = "r.1/w-0/1"


def test_a_paused_queue_hands_out_nothing_but_takes_acknowledgements(world: StoreCalls) -> None:
    """Pausing stops starts, not what runs."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"))
    world.fetch(S, want=1)
    world.raw.set(world.keys.queue("default").paused, "deploy")

    assert world.fetch(S) == []
    assert world.ack(S, "a").stale == []
    assert world.run(world.queues.counts("default")).paused == "deploy"


def test_a_fetch_of_nothing_leaves_only_its_number(world: StoreCalls) -> None:
    """An idle cluster writes little: no run, no counter, no history."""
    world.open(S)
    before = {key: world.raw.dump(key) if world.server.is_real else world.raw.type(key) for key in world.raw.keys("*")}
    world.turn(S, want=10)
    after = {key: world.raw.dump(key) if world.server.is_real else world.raw.type(key) for key in world.raw.keys("*")}

    del after[world.keys.turns.encode()]
    assert before == after


def test_a_copy_of_a_turn_that_got_nothing_takes_nothing_later(world: StoreCalls) -> None:
    """Redis may work off the request of a dead connection after its caller was answered on another: who would run it?"""
    world.open(S)
    first = world.queues.turn(session=S, seq=1, kind=Kind.ASYNC, queues=["default"], want=5, want_suspect=False)
    assert world.run(first).runs == []
    world.enqueue(envelope("a"))
    assert world.run(first).runs == []
    second = world.queues.turn(session=S, seq=2, kind=Kind.ASYNC, queues=["default"], want=5, want_suspect=False)

    assert [run.envelope.id for run in world.run(second).runs] == ["a"]


def test_the_bell_wakes_idle_workers_of_the_right_kind(world: StoreCalls) -> None:
    """And whoever leaves work behind rings for the next; tokens are bounded."""
    world.open(S)
    keys = world.keys.queue("default")
    bells = [keys.bell(Kind.ASYNC), keys.bell(Kind.SYNC)]
    world.enqueue(*(envelope(f"r{i}") for i in range(3)))
    assert [world.rung(*bells) for _ in range(4)] == [bells[0]] * 3 + [None]

    world.fetch(S, want=1)
    assert world.rung(*bells) == bells[0]
    world.fetch(S, want=2)
    assert world.rung(*bells) is None
    for i in range(40):
        world.enqueue(envelope(f"many{i}", kind=Kind.SYNC))
    assert world.raw.llen(bells[1]) == 16


def test_a_fetch_does_not_ring_where_somebody_is_being_woken(world: StoreCalls) -> None:
    """Each token costs an idle worker a turn."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"))
    bell = world.keys.queue("default").bell(Kind.ASYNC)
    assert world.raw.llen(bell) == 2
    world.fetch(S, want=1)
    assert world.raw.llen(bell) == 2


def test_history_is_capped_and_can_be_turned_off(world: StoreCalls) -> None:
    """Nothing grows without a bound."""
    world.open(S)
    for i in range(400):
        world.enqueue(envelope(f"r{i}"))
        world.turn(
            S, want=1, history=100, acks=[Ack(run_id=f"r{i - 1}", queue="default", attempt=1, outcome=Outcome.OK)]
        )
    assert 100 <= world.raw.llen(world.keys.queue("default").hist) <= 200  # trimmed once there are 100 too many
    world.turn(S, history=0, acks=[Ack(run_id="r399", queue="default", attempt=1, outcome=Outcome.OK)])
    assert world.run(world.queues.recent("default", 1))[0].run_id == "r398"


def test_an_envelope_that_cannot_be_read_is_handed_out_as_broken(world: StoreCalls) -> None:
    """Raising would crash every worker in turn, for ever; its worker acknowledges it as dead."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"))
    world.raw.hset(world.keys.queue("default").data, "a", "a1{not json")

    reply = world.turn(S, want=2)
    assert [run.envelope.id for run in reply.runs] == ["b"]
    assert [(run.run_id, run.attempt) for run in reply.broken] == [("a", 1)]
    assert world.ack(S, "a", Outcome.DEAD, error={"reason": reply.broken[0].reason}).stale == []
    assert world.run(world.queues.dead("default"))[0].envelope is None


def test_two_hundred_runs_of_the_largest_size_come_in_several_turns_and_end_in_one(world: StoreCalls) -> None:
    """The bounds of one call: what it brings by its weight, what it acknowledges by its number."""
    world.open(S)
    big = [envelope(f"r{i}", args={"blob": "x" * 60_000}) for i in range(200)]
    for i in range(0, 200, 50):
        world.enqueue(*big[i : i + 50])

    turns = []
    while sum(map(len, turns)) < 200:
        turns.append(world.turn(S, want=200 - sum(map(len, turns))).runs)
    assert {len(turn) for turn in turns[:-1]} == {18}
    runs = [run for turn in turns for run in turn]
    assert all(len(run.envelope.template.args["blob"]) == 60_000 for run in runs)
    acks = [Ack(run_id=run.envelope.id, queue="default", attempt=1, outcome=Outcome.OK) for run in runs]
    assert world.turn(S, acks=acks).stale == []
    assert world.run(world.queues.counts("default")).stats == {"in": 200, "ok": 200}


def test_a_turn_takes_no_more_of_a_queue_than_it_is_told(world: StoreCalls) -> None:
    """One queue of long jobs must not hold every slot, so the share of each is capped; suspects count."""
    world.open(S)
    world.enqueue(*(envelope(f"a{i}") for i in range(5)), *(envelope(f"b{i}", queue="other") for i in range(5)))
    runs = world.turn(S, want=9, queues=[("default", 2), ("other", 4)]).runs
    assert sorted(run.queue for run in runs) == ["default"] * 2 + ["other"] * 4
    assert world.turn(S, want=6, queues=[("default", 0)]).runs == []


def test_a_run_that_a_person_cancelled_ends_so(world: StoreCalls) -> None:
    """Its end is on record as what it was, and nothing of it stays."""
    world.open(S)
    world.enqueue(envelope("a"))
    world.fetch(S)
    assert world.ack(S, "a", Outcome.CANCELLED, started_ms=1, ended_ms=2).stale == []
    assert world.state("a") == "finished"
    assert [entry.outcome for entry in world.run(world.queues.recent("default"))] == ["cancelled"]
    assert world.run(world.queues.counts("default")).stats["cancelled"] == 1


def test_names_of_queues_that_wait_for_a_slot_make_no_end_long(world: StoreCalls) -> None:
    """Each end told all of them in one step: with 300,000, which whoever may enqueue can write, for 20 s."""
    world.open(S)
    world.enqueue(limited("a"), limited("b"))
    assert world.fetch(S) == ["a"]
    world.raw.sadd(f"{world.keys.prefix}limit:q:tests.noop:k", *(f"user-{n}" for n in range(5000)))
    world.ack(S, "a")

    assert len(world.raw.keys(f"{world.keys.prefix}q:*:woken")) < 1000
    assert world.fetch(S) == ["b"]


def turns_until(world: StoreCalls, run_id: str, queue: str) -> int:
    """Return how many turns of a queue without runs there were until another queue got its run."""
    for turns in range(1, 1000):
        assert world.fetch(S) == []
        if found := world.fetch(S, queues=[queue]):
            assert found == [run_id]
            return turns
    raise AssertionError(f"{run_id} waits for a slot that is free")


def test_a_slot_is_told_to_some_of_very_many_queues_until_one_takes_it(world: StoreCalls) -> None:
    """Of 3,000 that had no runs 500 were told, and nobody ever looked into the one that had one."""
    world.open(S)
    world.enqueue(limited("a"), limited("b", queue="other"))
    assert world.fetch(S) == ["a"]
    assert world.fetch(S, queues=["other"]) == []
    waiting = f"{world.keys.prefix}limit:q:tests.noop:k"
    world.raw.sadd(waiting, *(f"user-{n}" for n in range(3000)))
    world.ack(S, "a")

    assert turns_until(world, "b", "other") < 201
    world.ack(S, "b", queue="other")
    for _ in range(200):
        assert world.fetch(S, queues=["default", "other"]) == []
    assert world.raw.scard(waiting) < 500
    assert not world.raw.exists(world.keys.queue("default").woken)


def test_a_slot_that_nobody_who_was_told_serves_goes_to_whom_somebody_serves(world: StoreCalls) -> None:
    """Each of very many queues has a run that waits, and all but one no worker; those are not asked in a hurry."""
    world.open(S)
    world.enqueue(limited("a"), limited("b", queue="other"))
    assert world.fetch(S) == ["a"]
    assert world.fetch(S, queues=["other"]) == []
    names = [f"user-{n}" for n in range(1000)]
    world.raw.sadd(f"{world.keys.prefix}limit:q:tests.noop:k", *names)
    for name in names:
        world.raw.rpush(f"{world.keys.prefix}q:{name}:wait:tests.noop:k", "theirs")
    world.ack(S, "a")
    bell = world.keys.queue("default").bell(Kind.ASYNC)
    world.raw.delete(bell)

    turns_until(world, "b", "other")
    assert not world.raw.exists(bell)


def let_wait(world: StoreCalls, limits: str) -> list[str]:
    """Let a run with ``limits`` wait for a slot in each of 600 queues that nobody serves; return these."""
    names, pipe = [f"user-{n}" for n in range(600)], world.raw.pipeline()
    pipe.sadd(f"{world.keys.prefix}limit:q:tests.noop:k", *names)
    for name in names:
        pipe.rpush(f"{world.keys.prefix}q:{name}:wait:tests.noop:k", "theirs")
        pipe.hset(world.keys.queue(name).limits, "theirs", limits)
    pipe.execute()
    return names


def test_one_of_several_slots_is_told_to_very_many_queues_while_another_is_held(world: StoreCalls) -> None:
    """It stayed free until the holder of the other had ended, where none of the 500 that were told had a worker."""
    world.open(S)
    world.enqueue(limited("a", most=2), limited("b", most=2), limited("c", queue="other", most=2))
    assert world.fetch(S) == ["a", "b"]
    assert world.fetch(S, queues=["other"]) == []
    let_wait(world, "[c2:tests.noop:k]")
    world.ack(S, "a")

    turns_until(world, "c", "other")


def test_nobody_is_told_of_a_slot_for_which_all_that_wait_have_no_room(world: StoreCalls) -> None:
    """Each turn would tell 20 of very many queues, for as long as the holder runs."""
    world.open(S)
    world.enqueue(limited("a"), limited("b", queue="other"))
    assert world.fetch(S) == ["a"]
    assert world.fetch(S, queues=["other"]) == []
    names = let_wait(world, "[c1:tests.noop:k]")
    world.ack(S, "a")
    world.raw.sadd(world.keys.queue("other").woken, "tests.noop:k")
    assert world.fetch(S, queues=["other"]) == ["b"]
    world.raw.delete(*(world.keys.queue(name).woken for name in names))
    assert world.fetch(S) == []

    assert not any(world.raw.exists(world.keys.queue(name).woken) for name in ("default", *names))


def test_queues_of_which_all_can_be_told_are_told_once(world: StoreCalls) -> None:
    """With 500, of which nobody serves any, each turn told all of them anew: Redis stood still for 40 ms each time."""
    world.open(S)
    world.enqueue(limited("a"))
    assert world.fetch(S) == ["a"]
    names = [f"user-{n}" for n in range(500)]
    world.raw.sadd(f"{world.keys.prefix}limit:q:tests.noop:k", *names)
    for name in names:
        world.raw.rpush(f"{world.keys.prefix}q:{name}:wait:tests.noop:k", "theirs")
    world.ack(S, "a")
    assert world.fetch(S) == []

    assert all(world.raw.exists(world.keys.queue(name).woken) for name in names)
    assert not world.raw.exists(world.keys.queue("default").woken)
