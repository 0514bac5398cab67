"""Nothing waits without a bound: with more runs than a limit lets start, the oldest start in their turn."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.core.model import Envelope, Kind, Outcome
from supervisor.store.keys import Keys
from supervisor.store.queues.control import QueueControl
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.wire.poll import FetchedRun
from supervisor.testing.server import Server, driven_time
from tests.integration.store.limits.limit_checks import limited, rated
from tests.kit.builders import acknowledged, envelope

STEP_MS = 50
S = "r.1/w-0/1"


class Counter:
    """A queue under a clock that the test moves, and the order in which its runs start."""

    def __init__(self) -> None:
        self.now_ms = 1_767_225_600_000
        self.server = Server(Keys("fair"))
        self.queues = Queues(self.server.keys)
        self.control = QueueControl(self.server.keys)
        self.seq = 0
        self.started: list[str] = []
        self.held: list[FetchedRun] = []

    def run(self, call: Any) -> Any:
        return self.server.store.run(call)

    def enqueue(self, *runs: Envelope) -> None:
        self.run(self.queues.enqueue(nonce=runs[0].id, envelopes=runs))

    def turn(self, want: int = 10, outcome: Outcome = Outcome.OK) -> list[str]:
        """End what runs, and start what may."""
        self.run(Sessions(self.server.keys).open(S, {}))
        self.seq += 1
        acks = [acknowledged(run, outcome) for run in self.held]
        turn = self.queues.turn(
            session=S, seq=self.seq, kind=Kind.ASYNC, queues=["default"], want=want, want_suspect=False, acks=acks
        )
        self.held = self.run(turn).runs
        begun = [run.envelope.id for run in self.held]
        self.started += begun
        return begun


@pytest.fixture
def counter() -> Iterator[Counter]:
    """An empty queue."""
    made = Counter()
    with driven_time(lambda: made.now_ms / 1000):
        yield made


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("count", "seed"),
    [(1, 0), (5, 1), *(pytest.param(*each, marks=pytest.mark.long) for each in [(1, 1), (1, 2), (5, 0), (5, 2)])],
)
def test_twice_as_many_runs_as_a_rate_allows_start_in_the_order_in_which_they_came(
    counter: Counter, count: int, seed: int
) -> None:
    """And the rate is used up: a schedule that skips while its run waits would stand still behind newer ones."""
    draw, number = random.Random(seed), 0
    for _ in range(600):
        counter.now_ms += draw.randrange(STEP_MS // 2)
        if draw.random() < 0.5:
            counter.enqueue(*(rated(f"r{number + n:04}", count, count * STEP_MS) for n in range(2)))
            number += 2
        counter.turn()
    most = (counter.now_ms - 1_767_225_600_000) / STEP_MS + count
    places = [int(name[1:]) for name in counter.started]
    assert max(abs(place - n) for n, place in enumerate(places)) <= count, places
    assert 0.75 * most <= len(places) <= most
    assert number > 1.5 * len(places), "it was no rush"


def test_runs_that_are_gone_hold_no_place_in_the_line_of_a_rate(counter: Counter) -> None:
    """What was purged or cancelled starts nothing, so who comes next waits for what started alone."""
    names = [f"r{n:03}" for n in range(400)]
    for first in range(0, 400, 100):
        counter.enqueue(*(rated(name, 10, 60_000) for name in names[first : first + 100]))
    for _ in range(6):
        counter.turn(want=100)
    assert counter.started == names[:10]
    counter.run(counter.control.cancel([("default", name) for name in names[10:20]]))
    counter.now_ms += 6_000
    assert counter.turn() == [names[20]]
    while counter.run(counter.control.purge("default", "later", count=100)).position:
        pass
    counter.enqueue(rated("fresh", 10, 60_000))
    assert counter.turn() == []
    counter.now_ms += 6_000
    assert counter.turn() == ["fresh"]


@pytest.mark.parametrize("state", ["dead", "running", "blocked"])
def test_a_run_that_a_version_without_lines_left_in_one_holds_nobody_up(counter: Counter, state: str) -> None:
    """In a rolling update workers of before start runs without a look at the line, and take nobody out of it."""
    rate = {"rate": "k", "rate_count": 1, "rate_per_ms": 1000}
    counter.enqueue(limited("slot", 1, "c"), limited("left", 1, "c", **rate))
    assert counter.turn() == ["slot"]
    if state != "blocked":
        assert counter.turn() == ["left"]
    if state == "dead":
        counter.turn(outcome=Outcome.DEAD)
    counter.held = []  # who executes goes on
    line = f"{counter.server.keys.queue('default').prefix}rate:a:tests.noop:k"
    counter.server.store.raw.zadd(line, {"left": 1})
    counter.enqueue(*(rated(f"r{n}", 1, 1000) for n in range(3)))
    begun = []
    for _ in range(4):
        begun += counter.turn()
        counter.now_ms += 1000
    assert [name for name in begun if name != "left"] == ["r0", "r1", "r2"]


def test_a_run_that_is_told_to_start_now_keeps_its_place_in_the_line_of_a_rate(counter: Counter) -> None:
    """It starts no earlier than the rate allows, and no later than it would have."""
    counter.enqueue(*(rated(f"r{n}", 1, 1000) for n in range(5)))
    assert counter.turn() == ["r0"]
    counter.run(counter.control.hasten([("default", "r1"), ("default", "r3")]))
    for name in ("r1", "r2", "r3", "r4"):
        assert counter.turn() == []
        counter.now_ms += 1000
        assert counter.turn() == [name]


def test_a_run_that_waits_for_a_slot_holds_nobody_up_who_waits_for_a_rate(counter: Counter) -> None:
    """They share the rate of their job, and not the key of which too many execute."""
    rate = {"rate": "k", "rate_count": 1, "rate_per_ms": 1000}
    counter.enqueue(limited("a0", 1, "a", **rate), limited("a1", 1, "a", **rate), limited("b0", 1, "b", **rate))
    assert counter.turn() == ["a0"]
    held, counter.held = counter.held, []  # a0 goes on
    begun = []
    for _ in range(4):
        counter.now_ms += 1000
        begun += counter.turn()
    assert begun == ["b0"]
    counter.held += held
    counter.turn()
    counter.now_ms += 1000
    assert "a1" in counter.started + counter.turn()


def test_a_key_with_twice_as_many_runs_as_slots_serves_the_oldest_first(counter: Counter) -> None:
    """Newer ones overtake an old one by no more than a turn starts."""
    for number in range(0, 200, 2):
        counter.enqueue(*(limited(f"r{number + n:04}", 1) for n in range(2)))
        counter.turn()
    places = [int(name[1:]) for name in counter.started]
    assert len(places) >= 50
    assert max(abs(place - n) for n, place in enumerate(places)) <= 10, places


def test_low_priority_starts_with_every_tenth_run_at_least(counter: Counter) -> None:
    """While high ones never end to come."""
    counter.enqueue(*(envelope(f"low{n}", priority=2) for n in range(10)))
    for number in range(100):
        counter.enqueue(*(envelope(f"high{number}-{n}", priority=0) for n in range(4)))
        counter.turn(want=2)
    low = [n for n, name in enumerate(counter.started) if name.startswith("low")]
    assert len(low) == 10
    assert all(place <= 10 * (n + 1) for n, place in enumerate(low)), low
