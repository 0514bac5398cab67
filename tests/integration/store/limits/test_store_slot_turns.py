"""Queues that share a concurrency key have its slots in turn, whatever their workers do."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from supervisor.core.model import Envelope, Kind
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.wire.poll import FetchedRun
from supervisor.testing.server import Server, driven_time
from tests.integration.store.limits.limit_checks import limited
from tests.kit.builders import acknowledged


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
        acks = [acknowledged(run) for run in self.held[name][:ended]]
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


def check_a_busy_queue(own_ms: int) -> None:
    """Let a run wait in a queue whose one worker is always busy for so long; it begins, and the other queue goes on."""
    pools = Pools("bulk", "fast")
    with driven_time(lambda: pools.now_ms / 1000):
        pools.enqueue(*(limited(f"bulk{n}", queue="bulk") for n in range(10)))
        pools.turn("bulk")
        pools.enqueue(limited("fast0", queue="fast"))
        begin_ms = look_ms = pools.now_ms
        used = steps = 0
        while "fast0" not in pools.begun and pools.now_ms < begin_ms + 30 * own_ms:
            if pools.now_ms >= look_ms:
                pools.turn("fast")
                look_ms += own_ms
            pools.enqueue(limited(f"more{steps}", queue="bulk"))
            used, steps = used + len(pools.turn("bulk", ended=len(pools.held["bulk"]))), steps + 1
            pools.now_ms += 100
    assert "fast0" in pools.begun
    assert used / steps > 0.8


@pytest.mark.parametrize("own_ms", [1100, 3000, 6000])
def test_a_queue_whose_workers_are_busy_costs_a_tenth_of_the_slot_and_has_it_in_the_end(own_ms: int) -> None:
    """Each of its looks had a slot kept for a second, which it never took: the other queue had 9 % of its starts."""
    check_a_busy_queue(own_ms)


def test_a_run_from_before_a_deploy_that_raised_the_limit_starts_beside_another_queue(pools: Pools) -> None:
    """By its own number no slot was ever free, and each that was kept for it was lost to both."""
    pools.enqueue(limited("bulk0", queue="bulk"))
    assert pools.turn("bulk") == ["bulk0"]
    pools.enqueue(limited("fast0", queue="fast"), limited("fast1", queue="fast"))
    assert pools.turn("fast") == []
    pools.enqueue(*(limited(f"new{n}", 3, queue="bulk") for n in range(9)))

    assert [pools.turn("bulk"), pools.turn("fast"), pools.turn("fast")] == [["new0"], ["fast0"], []]
    assert [pools.turn("fast", ended=1), pools.turn("bulk"), pools.turn("bulk", ended=1)] == [[], ["new1"], []]
    assert [pools.turn("fast"), pools.turn("bulk")] == [["fast1"], []]


def test_a_rate_that_keeps_a_queue_from_its_slot_counts_as_no_slot_that_it_let_pass(pools: Pools) -> None:
    """Its worker is idle, and was kept from slots for longer each time: it had a sixth of what its rate allows."""
    pools.places["bulk"] = 2
    pools.enqueue(*(limited(f"b{n:03}", 2, queue="bulk") for n in range(300)))
    rated = {"rate": "own", "rate_count": 1, "rate_per_ms": 2000}
    pools.enqueue(*(limited(f"f{n:03}", 2, queue="fast", **rated) for n in range(60)))
    ends: dict[str, int] = {}
    for _ in range(600):
        pools.now_ms += 100
        for name in ("bulk", "fast"):
            ended = [run for run in pools.held[name] if ends[run.envelope.id] <= pools.now_ms]
            pools.held[name].sort(key=lambda run: ends[run.envelope.id])
            ends |= dict.fromkeys(pools.turn(name, ended=len(ended)), pools.now_ms + 500)

    assert sum(name.startswith("f") for name in pools.begun) > 15


def test_a_queue_whose_only_run_waits_for_its_rate_lets_no_slot_pass(pools: Pools) -> None:
    """Its worker is idle, but the run was no more in the line for slots; it began after three minutes."""
    draw, came = random.Random(1), dict[str, int]()
    for first in (0, 400):
        pools.enqueue(*(limited(f"b{first + n:04}", queue="bulk") for n in range(400)))
    ends: dict[str, int] = {}
    waits: list[int] = []
    comes_ms = pools.now_ms
    for _ in range(1200):
        pools.now_ms += 100
        if pools.now_ms >= comes_ms:
            comes_ms += 6000 + draw.randrange(-3000, 3000)
            came[name := f"f{len(came):03}"] = pools.now_ms
            pools.enqueue(limited(name, queue="fast", rate="own", rate_count=1, rate_per_ms=5000))
        for queue in ("bulk", "fast"):
            ended = sum(ends[run.envelope.id] <= pools.now_ms for run in pools.held[queue])
            begun = pools.turn(queue, ended=ended)
            ends |= dict.fromkeys(begun, pools.now_ms + 200)
            waits += [pools.now_ms - came[name] for name in begun if name in came]

    assert len(waits) >= len(came) - 1
    assert max(waits) < 12_000


def test_queues_in_which_nothing_waits_any_more_make_no_other_rest_for_longer(pools: Pools) -> None:
    """Ten whose runs were cancelled two hours before kept one that was busy for a second waiting for 13 minutes."""
    let_a_busy_queue_wait(pools)
    pools.enqueue(*(limited(f"more{n}", queue="bulk") for n in range(200)))
    line = f"{pools.server.keys.prefix}limit:w:tests.noop:k"
    over_ms = 10_000_000_000_000 + pools.now_ms - 7_200_000
    pools.server.store.raw.zadd(line, {f"gone{n}": over_ms for n in range(10)})
    assert pools.turn("bulk", ended=1) == []
    pools.now_ms += 1001
    assert pools.turn("bulk") == ["bulk1"]
    pools.busy.clear()

    for _ in range(130):
        pools.now_ms += 100
        pools.turn("bulk", ended=len(pools.held["bulk"]))
        pools.turn("fast")
    assert "fast0" in pools.begun


@pytest.mark.parametrize("name", ["fast", "bulk", "nobody"])
@pytest.mark.parametrize("score", ["-inf", "inf", "1e308", "-1e308", "1767225600000.9375", "11767225600000.9375"])
def test_scores_that_no_version_writes_keep_nobody_from_a_slot(pools: Pools, name: str, score: str) -> None:
    """Whoever may enqueue by Redis may write them; the turn of each queue with the key was refused."""
    let_a_busy_queue_wait(pools)
    pools.busy.clear()
    pools.server.store.raw.zadd(f"{pools.server.keys.prefix}limit:w:tests.noop:k", {name: score})

    for _ in range(80):
        pools.now_ms += 1001
        for queue in ("bulk", "fast"):
            pools.turn(queue, ended=len(pools.held[queue]))
    assert len(pools.begun) == 21


def test_a_slot_is_kept_for_no_longer_when_the_clock_is_set_back(pools: Pools) -> None:
    """Until the clock had caught up nobody had the slot, where the worker for which it was kept had no place."""
    let_a_busy_queue_wait(pools)
    assert pools.turn("bulk", ended=1) == []

    pools.now_ms -= 3_600_000
    assert pools.turn("bulk") == ["bulk1"]


def test_queues_have_slots_in_turn_when_the_clock_is_set_back(pools: Pools) -> None:
    """Who waited stood in line with a time to come: the other came in front of it until the clock had caught up."""
    numbers = itertools.count()

    def enqueue() -> None:
        number = next(numbers)
        pools.enqueue(*(limited(f"{queue}{number:03}", queue=queue) for queue in ("bulk", "fast")))

    def step() -> None:
        pools.now_ms += 100
        enqueue()
        for queue in ("bulk", "fast"):
            pools.turn(queue, ended=len(pools.held[queue]))

    for _ in range(20):
        enqueue()
    for _ in range(50):
        step()
    pools.now_ms -= 300_000
    pools.begun.clear()
    for _ in range(40):
        step()
    begun = Counter(run[:4] for run in pools.begun)
    assert min(begun["bulk"], begun["fast"]) >= 10, begun


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
