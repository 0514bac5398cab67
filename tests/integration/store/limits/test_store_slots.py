"""Who gets a slot of a concurrency key next: the oldest that waits, also while its limit and its priorities change."""

from __future__ import annotations

import random

import pytest

from supervisor.core.model import Kind, Outcome, Release
from supervisor.store.queues.control import QueueControl
from supervisor.store.wire.poll import Ack, FetchedRun
from tests.integration.store.limits.limit_checks import broken_limits, limited
from tests.kit.builders import StoreCalls

S, Z = "r.1/w-0/1", "r.1/w-1/1"


class Key:
    """The runs of one key, of which as many end as a test says, the earliest first."""

    def __init__(self, world: StoreCalls) -> None:
        self.world = world
        self.held: list[FetchedRun] = []
        self.begun: list[str] = []
        world.open(S, Z)

    def cancel(self, *names: str) -> None:
        """Cancel runs that wait, as a person does."""
        self.world.run(QueueControl(self.world.keys).cancel([("default", name) for name in names]))

    def turn(self, ended: int = 0, want: int = 10) -> list[str]:
        """End the first so many, and start what may."""
        acks = [
            Ack(run_id=run.envelope.id, queue=run.queue, attempt=run.attempt, outcome=Outcome.OK)
            for run in self.held[:ended]
        ]
        runs = self.world.turn(S, want=want, acks=acks).runs
        self.held = self.held[ended:] + runs
        begun = [run.envelope.id for run in runs]
        self.begun += begun
        return begun


@pytest.mark.parametrize("raised", [2, 5])
def test_those_from_before_a_deploy_that_raised_the_limit_start_first(world: StoreCalls, raised: int) -> None:
    """Newer ones found a slot free by their own number, and the older ones by theirs never: not one of 19 began."""
    key = Key(world)
    old = [f"old{n}" for n in range(8)]
    world.enqueue(*(limited(name) for name in old))
    assert key.turn() == old[:1]

    new = [f"new{n}" for n in range(20)]
    for name in new:
        world.enqueue(limited(name, raised))
        key.turn(ended=1)
        assert len(key.held) <= raised
    while key.held:
        key.turn(ended=1)

    assert key.begun == old + new


def test_all_slots_of_a_raised_limit_are_used_while_one_run_of_before_goes_on(world: StoreCalls) -> None:
    """With one long run four slots of five stood idle until it ended."""
    key = Key(world)
    world.enqueue(*(limited(f"old{n}") for n in range(8)))
    assert key.turn() == ["old0"]
    world.enqueue(limited("new", 5))

    begun = [key.turn(), key.turn()]

    assert begun == [[], ["old1", "old2", "old3", "old4"]]


def test_a_deploy_that_lowers_the_limit_reaches_those_that_wait(world: StoreCalls) -> None:
    """From when one of it waits: until no more run than it allows, none starts."""
    key = Key(world)
    old = [f"old{n}" for n in range(8)]
    world.enqueue(*(limited(name, 4) for name in old))
    assert key.turn() == old[:4]
    world.enqueue(limited("new0", 2), limited("new1", 2))
    assert key.turn() == []

    assert [key.turn(ended=1) for _ in range(4)] == [[], [], ["old4"], ["old5"]]
    while key.held:
        key.turn(ended=1)
        assert len(key.held) <= 2
    assert key.begun == [*old, "new0", "new1"]


def test_the_newest_number_is_not_that_of_one_that_is_gone(world: StoreCalls) -> None:
    """Its id is still the last of the list."""
    key = Key(world)
    world.enqueue(*(limited(name, 2) for name in "abcd"), *(limited(f"gone{n}", 9) for n in range(3)))
    assert key.turn() == ["a", "b"]
    key.cancel("gone0", "gone1", "gone2")

    assert [key.turn(), key.turn(ended=1)] == [[], ["c"]]


def test_one_that_was_brought_for_a_slot_by_a_worker_of_the_other_kind_keeps_its_place(world: StoreCalls) -> None:
    """Those behind it in the line wait, and so it must not be judged as one that has just come."""
    world.open(S, Z)
    world.enqueue(*(limited(f"r{n}", kind=Kind.SYNC) for n in range(4)))
    begun = world.fetch(Z, kind=Kind.SYNC)
    for _ in range(3):
        world.ack(Z, begun[-1])
        assert world.fetch(S) == []
        begun += world.fetch(Z, kind=Kind.SYNC)

    assert begun == ["r0", "r1", "r2", "r3"]
    assert world.fsck() == []


def charge(world: StoreCalls, how: str, run_id: str) -> None:
    """Let a run come back charged, to wait behind whatever waits by then."""
    world.enqueue(limited(run_id))
    assert world.fetch(S) == [run_id]
    if how == "requeued":
        world.ack(S, run_id, Outcome.DEAD)
        return
    if how == "failed and asked":
        world.ack(S, run_id, Outcome.RETRY, retry_delay_ms=60_000, error={"type": "ValueError"})
        world.make_due(run_id)
        assert world.fetch(S) == [run_id]
    world.ack(S, run_id, Outcome.AGAIN, attempt=2 if "failed" in how else 1, retry_delay_ms=60_000)


@pytest.mark.parametrize("how", ["asked", "failed and asked", "requeued"])
def test_charged_runs_have_a_free_slot_in_turn_where_workers_of_the_other_kind_look_between(
    world: StoreCalls, how: str
) -> None:
    """Each was judged as one that had just come, and went behind the next one, whose turn it was then: none ever began."""
    world.open(S, Z)
    names = [f"r{n}" for n in range(4)]
    for name in names:
        charge(world, how, name)
    world.run(QueueControl(world.keys).requeue("default", names))
    world.run(QueueControl(world.keys).hasten([("default", name) for name in names]))

    runs = world.turn(S, want=10).runs
    begun: list[str] = []
    for _ in names:
        (run,) = runs
        begun.append(run.envelope.id)
        assert (run.attempt, run.interrupts) == ((2, 1) if how == "failed and asked" else (1, 1))
        world.ack(S, run.envelope.id, attempt=run.attempt)
        assert world.fetch(Z, kind=Kind.SYNC) == []
        runs = world.turn(S, want=10).runs
    assert begun == names
    assert world.fsck() == []


def test_one_that_is_put_off_waits_behind_others_although_the_other_kind_had_brought_it(world: StoreCalls) -> None:
    """That it was brought for a slot once stayed with it, so that it went before all that waited each time."""
    world.open(S, Z)
    world.enqueue(*(limited(f"r{n}") for n in range(4)))
    assert world.fetch(S) == ["r0"]
    world.ack(S, "r0")
    assert world.fetch(Z, kind=Kind.SYNC) == []
    assert world.fetch(S) == ["r1"]
    world.ack(S, "r1", Outcome.GIVEBACK, retry_delay_ms=60_000)
    assert world.fetch(S) == ["r2"]
    world.make_due("r1")
    assert world.fetch(S) == []
    world.ack(S, "r2")

    assert world.fetch(S) == ["r3"]


def end_some(world: StoreCalls, draw: random.Random, held: list[FetchedRun]) -> list[FetchedRun]:
    """Let some runs ask again, fail, be given back or interrupted; return those that go on."""
    ended = [run for run in held if draw.random() < 0.6]
    back = [run for run in ended if draw.random() < 0.2]
    if back:
        items = [("default", run.envelope.id, Release.INTERRUPTED) for run in back]
        world.run(world.queues.release_runs(session=S, items=items))
    for run in ended:
        if run not in back:
            outcome = draw.choice([Outcome.AGAIN] * 5 + [Outcome.GIVEBACK, Outcome.RETRY])
            world.ack(S, run.envelope.id, outcome, run.attempt, retry_delay_ms=60_000)
    return [run for run in held if run not in ended]


@pytest.mark.share(2)
@pytest.mark.parametrize("seed", range(4))
def test_a_slot_is_used_however_often_workers_of_the_other_kind_look(world: StoreCalls, seed: int) -> None:
    """Of runs that come back charged, in any way: no second turn with a free slot begins none of those that wait."""
    world.open(S, Z)
    draw, later, held = random.Random(seed), world.keys.queue("default").later, list[FetchedRun]()
    most, unused = 1 + seed % 2, 0
    world.enqueue(*(limited(f"r{n}", most) for n in range(6)))
    for _ in range(100):
        held = end_some(world, draw, held)
        for run_id in world.raw.zrange(later, 0, -1):
            world.make_due(run_id.decode())
        for _ in range(draw.choice([0, 1, 1, 3])):
            assert world.fetch(Z, kind=Kind.SYNC) == []
        runs = world.turn(S, want=draw.choice([1, 10])).runs
        held += runs
        unused = unused + 1 if len(held) < most and not runs else 0
        assert unused < 2
        assert len(held) <= most
    assert broken_limits(world, ("default",)) == []
    assert world.fsck() == []


@pytest.mark.share(2)
@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_limit_becomes_the_oldest_that_waits_starts_next(world: StoreCalls, seed: int) -> None:
    """Changed numbers, cancels, workers with few places: nobody is overtaken by one that came in a later turn."""
    key, draw = Key(world), random.Random(seed)
    most, came = 1, []
    for step in range(150):
        if draw.random() < 0.1:
            most = draw.choice([1, 1, 2, 3, 5])
        for n in range(draw.choice([0, 1, 1, 3])):
            name = f"r{step:03}-{n}"
            world.enqueue(limited(name, draw.choice([most, most, most, 1])))
            came.append(name)
        if draw.random() < 0.1:
            waiting = [name for name in came if name not in key.begun]
            if waiting:
                gone = draw.choice(waiting)
                key.cancel(gone)
                came.remove(gone)
        key.turn(ended=min(len(key.held), draw.choice([0, 1, 1, 2])), want=draw.choice([1, 2, 10]))
        assert len(key.held) <= 5
    for _ in range(1000):
        key.turn(ended=1)
        if not key.held and len(key.begun) == len(came):
            break

    assert key.begun == came
    assert world.fsck() == []


@pytest.mark.parametrize("most", [1, 5])
def test_an_idle_worker_takes_a_suspect_for_a_free_slot_though_others_wait_for_it(world: StoreCalls, most: int) -> None:
    """It counted as one that had just come, behind all that waited: with load it never began, and rang at each turn."""
    key = Key(world)
    world.enqueue(limited("suspect", most))
    assert key.turn() == ["suspect"]
    world.enqueue(*(limited(f"new{n}") for n in range(9)))
    world.run(world.queues.release_runs(session=S, items=[("default", "suspect", Release.CRASHED)]))
    key.held = []
    assert key.turn() == ["new0"]
    bell = world.keys.queue("default").bell(Kind.ASYNC)
    world.raw.delete(bell)

    assert world.turn(Z, want=1, want_suspect=True).runs == []
    assert world.raw.llen(bell) == 0
    ended = Ack(run_id="new0", queue="default", attempt=1, outcome=Outcome.OK)
    (run,) = world.turn(S, want=1, want_suspect=True, acks=[ended]).runs
    assert run.envelope.id == "suspect"


@pytest.mark.parametrize("score", ["-inf", "inf"])
def test_infinite_scores_in_the_line_of_a_key_refuse_no_turn(world: StoreCalls, score: str) -> None:
    """Whoever may enqueue by Redis may write them: no queue of that key had an answer any more."""
    key = Key(world)
    world.enqueue(*(limited(name) for name in "abc"))
    world.raw.zadd(f"{world.keys.prefix}limit:w:tests.noop:k", {"nobody": score, "default": score})

    assert [key.turn(), key.turn(ended=1), key.turn(ended=1)] == [["a"], ["b"], ["c"]]
