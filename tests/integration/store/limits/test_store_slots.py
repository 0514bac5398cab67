"""Who gets a slot of a concurrency key next: the oldest that waits, also while its limit and its priorities change."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from supervisor.core.model import Envelope, Kind, Outcome, Release
from supervisor.store.keys import Keys
from supervisor.store.queues.control import QueueControl
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.wire.poll import Ack, FetchedRun
from supervisor.testing.server import Server, driven_time
from tests.integration.store.limits.limit_checks import limited
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


class Pools:
    """Queues with a worker each, under a clock that the test moves. Workers without a place are in ``busy``."""

    def __init__(self, *names: str) -> None:
        self.now_ms = 1_767_225_600_000
        self.server = Server(Keys("pools"))
        self.queues = Queues(self.server.keys)
        self.seq = dict.fromkeys(names, 0)
        self.held: dict[str, list[FetchedRun]] = {name: [] for name in names}
        self.begun: list[str] = []
        self.due: dict[str, int | None] = {}
        self.busy: set[str] = set()
        self.places = dict.fromkeys(names, 10)
        for name in names:
            self.server.store.run(Sessions(self.server.keys).open(name, {}))

    def enqueue(self, *runs: Envelope) -> None:
        self.server.store.run(self.queues.enqueue(nonce=runs[0].id, envelopes=runs))

    def turn(self, name: str, ended: int = 0) -> list[str]:
        """End the first so many of a queue, and start there what may."""
        self.seq[name] += 1
        acks = [
            Ack(
                run_id=run.envelope.id,
                queue=run.queue,
                attempt=run.attempt,
                fetched_ms=run.fetched_ms,
                outcome=Outcome.OK,
            )
            for run in self.held[name][:ended]
        ]
        turn = self.queues.turn(
            session=name,
            seq=self.seq[name],
            kind=Kind.ASYNC,
            queues=[name],
            want=0 if name in self.busy else self.places[name] - len(self.held[name]) + ended,
            want_suspect=False,
            acks=acks,
        )
        reply = self.server.store.run(turn)
        self.held[name] = self.held[name][ended:] + reply.runs
        self.due[name] = reply.next_due_ms
        begun = [run.envelope.id for run in reply.runs]
        self.begun += begun
        return begun


@pytest.fixture
def pools() -> Iterator[Pools]:
    """Two queues without runs."""
    made = Pools("bulk", "fast")
    with driven_time(lambda: made.now_ms / 1000):
        yield made


def test_queues_with_workers_of_their_own_have_the_slots_of_a_key_in_turn(pools: Pools) -> None:
    """The turn that ended a run gave its slot to the next of its own queue: the other queue had none for 3000 starts."""
    pools.enqueue(*(limited(f"bulk{n}", queue="bulk") for n in range(20)))
    assert pools.turn("bulk") == ["bulk0"]
    pools.enqueue(*(limited(f"fast{n}", queue="fast") for n in range(3)))
    assert pools.turn("fast") == []

    for _ in range(12):
        for name in ("bulk", "fast"):
            pools.turn(name, ended=len(pools.held[name]))

    assert pools.begun[:7] == ["bulk0", "fast0", "bulk1", "fast1", "bulk2", "fast2", "bulk3"]


def let_a_busy_queue_wait(pools: Pools) -> None:
    """Let one queue have the slot and a backlog, and a run of the other, whose worker then is busy, wait for it."""
    pools.enqueue(*(limited(f"bulk{n}", queue="bulk") for n in range(20)))
    assert pools.turn("bulk") == ["bulk0"]
    pools.enqueue(limited("fast0", queue="fast"))
    assert pools.turn("fast") == []
    pools.busy.add("fast")


def test_a_slot_is_kept_for_another_queue_for_a_second_at_most_and_once(pools: Pools) -> None:
    """Its worker may be busy by then, or dead; and who passed asks again by itself."""
    let_a_busy_queue_wait(pools)

    assert pools.turn("bulk", ended=1) == []
    due = pools.due["bulk"]
    assert due is not None
    assert due <= pools.now_ms + 1001
    pools.now_ms = due
    assert pools.turn("fast") == []
    assert pools.turn("bulk") == ["bulk1"]
    assert [pools.turn("bulk", ended=1) for _ in range(3)] == [["bulk2"], ["bulk3"], ["bulk4"]]


def test_a_pool_with_no_place_beside_the_slots_has_them_in_turn_too(pools: Pools) -> None:
    """Of its queue no run waits for a slot, they wait for a place: the other queue stood in no line, and had none for ever."""
    pools.places["bulk"] = 2
    pools.enqueue(*(limited(f"bulk{n}", 2, queue="bulk") for n in range(20)))
    assert pools.turn("bulk") == ["bulk0", "bulk1"]
    pools.enqueue(limited("fast0", 2, queue="fast"))
    assert pools.turn("fast") == []

    assert pools.turn("bulk", ended=2) == ["bulk2"]
    assert pools.turn("fast") == ["fast0"]


def test_a_slot_is_kept_for_no_longer_when_the_clock_is_set_back(pools: Pools) -> None:
    """Until the clock had caught up nobody had the slot, where the worker for which it was kept had no place."""
    let_a_busy_queue_wait(pools)
    assert pools.turn("bulk", ended=1) == []

    pools.now_ms -= 3_600_000
    assert pools.turn("bulk") == ["bulk1"]


def test_of_several_slots_one_is_kept_for_each_queue_and_the_others_are_used(pools: Pools) -> None:
    """What is free beside it is for whoever comes."""
    pools.enqueue(*(limited(f"bulk{n}", 3, queue="bulk") for n in range(20)))
    assert pools.turn("bulk") == ["bulk0", "bulk1", "bulk2"]
    pools.enqueue(*(limited(f"fast{n}", 3, queue="fast") for n in range(3)))
    assert pools.turn("fast") == []

    assert pools.turn("bulk", ended=3) == ["bulk3", "bulk4"]
    assert pools.turn("fast") == ["fast0"]


@pytest.mark.share(2)
@pytest.mark.parametrize("seed", range(6))
def test_of_any_queues_with_any_workers_each_has_its_turn(seed: int) -> None:
    """A backlog in one, workers with and without a place: the oldest of a queue with one starts within few starts."""
    draw, names = random.Random(seed), ("a", "b", "c")
    pools = Pools(*names)
    with driven_time(lambda: pools.now_ms / 1000):
        number, most = 0, draw.choice([1, 2, 3])
        pools.places = {name: draw.choice([1, 3, 10]) for name in names}
        waiting: dict[str, list[str]] = {name: [] for name in names}
        since = dict.fromkeys(names, 0)
        for _ in range(200):
            pools.now_ms += draw.choice([1, 20, 300])
            for name in names:
                for _ in range(draw.choice([0, 2]) if name == "a" else draw.choice([0, 0, 0, 1])):
                    number += 1
                    waiting[name].append(f"{name}{number:04}")
                    pools.enqueue(limited(waiting[name][-1], most, queue=name))
            pools.busy = {name for name in names if draw.random() < 0.2}
            for name in draw.sample(names, len(names)):
                ended = min(draw.choice([0, 1, 1, 2]), len(pools.held[name]))
                begun = pools.turn(name, ended)
                assert begun == waiting[name][: len(begun)]
                del waiting[name][: len(begun)]
                for other in names:
                    has_place = other not in pools.busy and len(pools.held[other]) < pools.places[other]
                    idle = not (waiting[other] and has_place)
                    since[other] = 0 if (other == name and begun) or idle else since[other] + len(begun)
            assert sum(len(held) for held in pools.held.values()) <= most
            assert max(since.values()) <= most * len(names), since
        pools.busy = set()
        for _ in range(len(pools.begun) + number):
            pools.now_ms += 1001
            for name in names:
                pools.turn(name, ended=len(pools.held[name]))
        assert len(pools.begun) == number
