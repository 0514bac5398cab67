"""Runs with a concurrency key and a rate have one age, by which they wait for either."""

from __future__ import annotations

import random
from bisect import bisect, insort
from collections.abc import Iterator

import msgspec
import pytest

from supervisor.core.effects import drive
from supervisor.core.model import Envelope, Kind, Outcome
from supervisor.operations.queues import verify
from supervisor.store.queues.control import QueueControl
from supervisor.testing.server import driven_time
from tests.integration.store.limits.limit_checks import limited, rated
from tests.integration.store.limits.test_store_slot_turns import Pools
from tests.kit.builders import acknowledged


@pytest.fixture
def pools() -> Iterator[Pools]:
    """A queue without runs, and one to move runs to."""
    made = Pools("bulk", "fast")
    with driven_time(lambda: made.now_ms / 1000):
        yield made


def both(run_id: str, most: int = 1, queue: str = "bulk", per_ms: int = 1000) -> Envelope:
    """Return a run with both limits: so many at once, and one start in ``per_ms``."""
    return limited(run_id, most, queue=queue, rate="k", rate_count=1, rate_per_ms=per_ms)


def charge_of(pools: Pools, run_id: str, queue: str = "bulk") -> str | None:
    """Return what a run is charged with; its age is in microseconds."""
    value = pools.server.store.raw.hget(pools.server.keys.queue(queue).att, run_id)
    return value.decode() if value else None


def let_one_wait_for_its_rate(pools: Pools) -> None:
    """Let run ``b`` wait for its slot, and then for its rate, while ``x`` has the slot."""
    pools.enqueue(both("a"), both("b"))
    assert pools.turn("bulk") == ["a"]
    assert pools.turn("bulk", ended=1) == []
    pools.enqueue(limited("x", queue="bulk"))
    assert pools.turn("bulk") == ["x"]


def let_one_wait_with_an_age(pools: Pools) -> str:
    """Let run ``b`` wait for its slot, then for its rate, then for the slot that ``x`` has by now; return its charge."""
    came_us = pools.now_ms * 1000
    let_one_wait_for_its_rate(pools)
    pools.now_ms += 1000
    assert pools.turn("bulk") == []
    charge = charge_of(pools, "b")
    assert charge
    assert charge.rpartition(",")[0] == "0,0,0"
    assert 0 <= int(charge.rpartition(",")[2]) - came_us < 1000
    assert not drive(verify(pools.server.keys, ["bulk"], is_mending=True), pools.server.store.run)
    return charge


def most_overtaken(pools: Pools, came: list[str]) -> int:
    """Return how many newer ones began before some run, at most."""
    seen: list[str] = []
    most = 0
    for run_id in [*pools.begun, *sorted({*came} - {*pools.begun})]:
        most = max(most, len(seen) - bisect(seen, run_id))
        if run_id in pools.begun:
            insort(seen, run_id)
    return most


def let_the_idle_look(pools: Pools) -> None:
    """Let a pool of the other kind, which serves the queue too and has no runs there, take a turn."""
    pools.seq["idle"] += 1
    turn = pools.queues.turn(
        session="idle",
        seq=pools.seq["idle"],
        kind=Kind.SYNC,
        queues=["bulk"],
        want=10,
        want_suspect=True,
        acks=[],
    )
    assert not pools.server.store.run(turn).runs


def check_a_rush(most: int, seed: int, *, has_idle: bool = False) -> None:
    """Let twice as many runs come as either limit lets start, whose times vary; few newer ones begin before any."""
    pools, draw, came, ends = Pools("bulk", "idle"), random.Random(seed), list[str](), dict[str, float]()
    pools.places["bulk"], stop_ms, arrives_ms = 50, pools.now_ms + 100_000, float(pools.now_ms)
    with driven_time(lambda: pools.now_ms / 1000):
        while pools.now_ms < stop_ms:
            while pools.now_ms >= arrives_ms:
                came.append(f"r{len(came):05}")
                pools.enqueue(both(came[-1], most, per_ms=500))
                arrives_ms += draw.expovariate(1 / 250)
            held = pools.held["bulk"]
            held.sort(key=lambda run: ends[run.envelope.id])
            for run_id in pools.turn("bulk", ended=sum(ends[run.envelope.id] <= pools.now_ms for run in held)):
                ends[run_id] = pools.now_ms + draw.uniform(0.5, 1.5) * most * 385
            if has_idle:
                let_the_idle_look(pools)
            due = [ends[run.envelope.id] for run in pools.held["bulk"]]
            pools.now_ms = max(pools.now_ms + 1, int(min([arrives_ms, pools.due["bulk"] or stop_ms, *due])))
    assert len(pools.begun) > 150
    assert len(came) > 1.5 * len(pools.begun), "it was no rush"
    assert most_overtaken(pools, came) <= 10


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("most", "seed"),
    [(2, 0), (5, 1), *(pytest.param(*each, marks=pytest.mark.long) for each in [(1, 2), (2, 3), (5, 4), (10, 5)])],
)
def test_at_most_ten_newer_ones_of_its_two_limits_begin_before_any_run(most: int, seed: int) -> None:
    """Each time that one changed from its slot's list to its rate's line and back it went behind hundreds."""
    check_a_rush(most, seed)


@pytest.mark.share(2)
@pytest.mark.parametrize(("most", "seed"), [(2, 0), pytest.param(5, 1, marks=pytest.mark.long)])
def test_an_idle_pool_of_the_other_kind_takes_no_age(most: int, seed: int) -> None:
    """It brings runs of the first for their slot too, and charged them with nothing: they never had an age from then on."""
    check_a_rush(most, seed, has_idle=True)


@pytest.mark.parametrize("set_back_s", [0, 3600])
def test_a_run_that_waited_for_its_slot_has_its_former_place_in_the_line_of_its_rate(
    pools: Pools, set_back_s: int
) -> None:
    """By its age, not by when it comes back; a clock that was set back meanwhile makes it no newer."""
    let_one_wait_with_an_age(pools)
    pools.now_ms -= 1000 * set_back_s
    pools.server.store.raw.delete(f"{pools.server.keys.prefix}limit:r:tests.noop:k")
    pools.enqueue(*(rated(f"p{n}", 1, 1000, queue="bulk") for n in range(3)))
    assert pools.turn("bulk") == ["p0"]
    assert pools.turn("bulk", ended=2) == []

    for run_id in ("b", "p1", "p2"):
        pools.now_ms += 1000
        assert pools.turn("bulk") == [run_id]


@pytest.mark.parametrize("charge", ["0,0,1", "2,0,1", "0,0,0,x", "0,0,0," + "9" * 16, "0,0,0," + "9" * 99])
def test_other_charges_in_the_line_of_a_rate_stay_and_stop_no_turn(pools: Pools, charge: str) -> None:
    """Those of runs that asked to run again, and of other versions: the count of their attempts must not be lost."""
    let_one_wait_for_its_rate(pools)
    pools.server.store.raw.hset(pools.server.keys.queue("bulk").att, "b", charge)
    pools.now_ms += 1000

    assert pools.turn("bulk") == []
    assert charge_of(pools, "b") == charge
    assert pools.turn("bulk", ended=1) == ["b"]


def test_a_run_keeps_its_age_in_another_queue(pools: Pools) -> None:
    """It is moved with its charges, and goes in front of newer ones there."""
    charge = let_one_wait_with_an_age(pools)
    pools.enqueue(*(both(f"f{n}", queue="fast") for n in range(2)))
    assert pools.turn("fast") == []
    control = QueueControl(pools.server.keys)
    assert pools.server.store.run(control.move("bulk", "fast", "wait:tests.noop:k")).moved == 1
    assert (charge_of(pools, "b"), charge_of(pools, "b", "fast")) == (None, charge)
    assert pools.turn("fast") == []
    pools.turn("bulk", ended=1)

    for run_id in ("b", "f0", "f1"):
        assert pools.turn("fast", ended=len(pools.held["fast"])) == [run_id]
        pools.now_ms += 1000


@pytest.mark.parametrize(
    ("outcome", "charge"), [(Outcome.RETRY, "1,0,0"), (Outcome.AGAIN, "0,0,1"), (Outcome.GIVEBACK, None)]
)
def test_a_run_that_is_to_run_later_has_its_age_no_more(pools: Pools, outcome: Outcome, charge: str | None) -> None:
    """What it waits for may be a newer one; what failed is charged, and goes first."""
    let_one_wait_with_an_age(pools)
    assert pools.turn("bulk", ended=1) == ["b"]
    [run] = pools.held["bulk"]
    assert (run.attempt, run.crashes, run.interrupts) == (1, 0, 0)
    acks = [msgspec.structs.replace(acknowledged(run, outcome), retry_delay_ms=1000)]
    pools.server.store.run(
        pools.queues.turn(
            session="bulk",
            seq=pools.seq["bulk"] + 1,
            kind=Kind.ASYNC,
            queues=["bulk"],
            want=0,
            want_suspect=False,
            acks=acks,
        )
    )
    assert charge_of(pools, "b") == charge


def test_a_run_with_more_than_a_page_of_older_ones_before_it_waits_behind_that_page(pools: Pools) -> None:
    """A turn reads no more of the list; those behind are newer, or as many as came from the line at most."""
    let_one_wait_for_its_rate(pools)
    names = [f"o{n:03}" for n in range(250)]
    pools.enqueue(*(both(name) for name in names))
    pools.turn("bulk")
    pools.turn("bulk")
    keys = pools.server.keys.queue("bulk")
    pools.server.store.raw.hset(keys.att, mapping=dict.fromkeys(names, "0,0,0,5"))
    pools.now_ms += 1000
    assert pools.turn("bulk") == []

    waiting = pools.server.store.raw.lrange(f"{keys.prefix}wait:tests.noop:k", 0, -1)
    assert [name.decode() for name in waiting] == [*names[:200], "b", *names[200:]]


def test_ids_beyond_any_length_among_those_that_wait_are_taken_out(pools: Pools) -> None:
    """And charges too: each run that came from the line read them again, so that a turn of a few runs took seconds."""
    let_one_wait_for_its_rate(pools)
    wait = f"{pools.server.keys.queue('bulk').prefix}wait:tests.noop:k"
    pools.server.store.raw.rpush(wait, "n", *(f"{n}{'x' * 2000}" for n in range(30)))
    pools.server.store.raw.hset(pools.server.keys.queue("bulk").att, "n", "9" * 2000)
    pools.now_ms += 1000
    assert pools.turn("bulk") == []
    assert charge_of(pools, "n") is None

    left = pools.server.store.raw.lrange(wait, 0, -1)
    assert left[0] == b"b"
    assert len(left) <= 13
    assert pools.turn("bulk", ended=1) == ["b"]
