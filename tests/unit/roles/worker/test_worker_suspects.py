"""Which process takes a suspect, and when."""

from __future__ import annotations

import math
import os
import random
from dataclasses import dataclass, field

import pytest

from supervisor.core.supervision.scoreboard import Board
from supervisor.core.supervision.states import SlotState
from supervisor.process.spawn import allocate
from supervisor.roles.child import ChildContext
from supervisor.roles.worker.polling.poll import LOOK_EVERY_S, QUIET_S, Part, SuspectLane
from supervisor.settings.sections.models import Settings
from tests.kit.clock import FakeClock
from tests.kit.tables import table

SLOTS = 4
NAMES = ("worker-io-0", "worker-io-1", "worker-io-x-0")  # two of one pool, one of another


@dataclass
class House:
    """A board with the processes of two pools."""

    board: Board = field(default_factory=lambda: allocate(slots=len(NAMES), inflight=8))
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        for row in self.board.rows:
            row.desired, row.state = 1, SlotState.RUNNING

    def lane(self, slot: int = 0) -> SuspectLane:
        """Return what a fresh process in ``slot`` does about suspects."""
        child = ChildContext(
            settings=Settings(),
            replica="r.000001",
            name=NAMES[slot],
            slot=slot,
            generation=1,
            board=self.board,
            slot_names=NAMES,
            parent_pid=os.getpid(),
            clock=self.clock,  # type: ignore[arg-type]
            redis_url="",
            pool="io",
        )
        return SuspectLane(child, self.clock, lambda: 0.5, slots=SLOTS)  # type: ignore[arg-type]

    def alone(self) -> House:
        """Let the first process be the only one of its pool."""
        self.board.rows[1].desired = 0
        return self

    def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.now_ns += round(seconds * 1e9)


def test_one_process_of_a_pool_has_a_suspect_and_the_others_do_not_ask() -> None:
    """Several poisonous runs would otherwise take all processes away from everybody."""
    house = House()
    one, two, other = house.lane(0), house.lane(1), house.lane(2)

    one.asked(for_suspect=True, has_one=True)
    assert (one.may_ask, two.may_ask, other.may_ask) == (True, False, True)

    one.asked(for_suspect=True, has_one=False)
    assert two.may_ask


@pytest.mark.parametrize("state", [SlotState.BACKOFF, SlotState.STARTING, SlotState.RUNNING])
def test_a_process_that_died_of_a_suspect_keeps_the_others_from_the_next_one(state: SlotState) -> None:
    """While it is started again, a second process must not be lost to a second poisonous run."""
    house = House()
    house.lane(0).asked(for_suspect=True, has_one=True)
    house.board.rows[0].state = state
    house.board.rows[0].clear_child_words()
    two = house.lane(1)
    assert not two.may_ask

    fresh = house.lane(0)
    assert fresh.may_ask  # the other one serves what is ready
    assert two.may_ask


def test_a_process_that_is_not_wanted_any_more_keeps_nobody_from_suspects() -> None:
    """A pool that shrank, or a row that a successor took, has no part in it."""
    house = House()
    house.lane(0).asked(for_suspect=True, has_one=True)
    house.board.rows[0].desired = 0

    assert house.lane(1).may_ask


def test_a_process_that_is_alone_in_its_pool_asks_for_what_is_ready_in_between() -> None:
    """Also the one that follows a process which a suspect ended: else poison alone would be served."""
    house = House().alone()
    lane = house.lane(0)
    lane.asked(for_suspect=True, has_one=True)
    assert not lane.may_ask
    lane.asked(for_suspect=False, has_one=False)
    assert lane.may_ask

    lane.asked(for_suspect=True, has_one=True)
    fresh = house.lane(0)
    assert not fresh.may_ask
    fresh.asked(for_suspect=False, has_one=False)
    assert fresh.may_ask


def test_an_idle_process_takes_a_suspect_that_another_only_makes_room_for() -> None:
    """Whoever can begin it first does."""
    house = House()
    one, two = house.lane(0), house.lane(1)
    one.looked(1, idle_by_ns=house.clock.now_ns + 10**12)

    assert one.is_quiet
    assert two.may_ask
    two.looked(1, idle_by_ns=house.clock.now_ns + 10**12)
    assert not two.is_quiet  # one that makes room is enough


def test_a_busy_process_looks_now_and_then_and_never_while_it_can_ask_anyway() -> None:
    """What waits is counted in Redis, which costs a call."""
    house = House()
    lane = house.lane()
    house.pass_s(LOOK_EVERY_S - 1)
    assert not lane.must_look
    lane.asked(for_suspect=True, has_one=False)
    house.pass_s(LOOK_EVERY_S - 1)
    assert not lane.must_look
    house.pass_s(1)
    assert lane.must_look
    lane.looked(0, idle_by_ns=house.clock.now_ns + 1)
    assert (lane.is_quiet, house.board.rows[0].suspect) == (False, Part.NONE)


def test_it_makes_room_for_as_long_as_needed_at_most() -> None:
    """After the last hard deadline it is idle for certain; before, each try is twice as long."""
    house = House()
    lane, long_ns = house.lane(), house.clock.now_ns + 10**12
    for tries in range(4):
        lane.looked(1, idle_by_ns=long_ns)
        assert lane.quiet_s == pytest.approx(QUIET_S * 2**tries)
        house.pass_s(lane.quiet_s)
        assert not lane.is_quiet
    lane.looked(1, idle_by_ns=house.clock.now_ns + 3 * 10**9)
    assert lane.quiet_s == pytest.approx(3)


def test_it_makes_room_no_longer_than_a_suspect_waits() -> None:
    """Another replica takes it, or a person pauses its queue: nothing else began until the last try was over."""
    house = House()
    lane, long_ns = house.lane(), house.clock.now_ns + 10**12
    for _ in range(3):
        lane.looked(1, idle_by_ns=long_ns)
        house.pass_s(lane.quiet_s)
    assert lane.must_look, "a try is over, and the next one follows on it"
    lane.looked(1, idle_by_ns=long_ns)
    assert not lane.must_look

    house.pass_s(lane.look_s)
    assert lane.must_look
    left_s = lane.quiet_s
    lane.looked(1, idle_by_ns=long_ns)
    assert (lane.quiet_s, house.board.rows[0].suspect) == (left_s, Part.MAKES_ROOM)

    house.pass_s(lane.look_s)
    lane.looked(0, idle_by_ns=long_ns)
    assert (lane.is_quiet, lane.must_look, house.board.rows[0].suspect) == (False, False, Part.NONE)


@table("seed", range(40))
def test_a_suspect_begins_after_a_written_number_of_other_runs(seed: int) -> None:
    """Work without end, each run as long as its hard timeout allows: the worst that a pool can be given."""
    draw = random.Random(seed)
    timeout_s = draw.choice([1.0, 9.0, 31.0, 300.0, 3600.0])
    house = House()
    lane = house.lane()
    ends: list[int] = []
    begun = 0
    while True:
        now = house.clock.now_ns
        ends = [end for end in ends if end > now]
        if not ends and lane.may_ask and begun:
            break  # idle: it takes the suspect
        if not lane.is_quiet:
            free = SLOTS - len(ends)
            ends += [now + round(draw.uniform(0.5, 1) * timeout_s * 1e9) for _ in range(free)]
            begun += free
            lane.begun(free)
        if lane.must_look:
            lane.looked(1, idle_by_ns=max(ends, default=0))
        house.clock.now_ns = min([*ends, now + round(LOOK_EVERY_S * 1e9)])

    before_it_looked = SLOTS * (1 + 1.5 * LOOK_EVERY_S / (0.5 * timeout_s))
    assert begun <= SLOTS * (1 + max(0, math.ceil(math.log2(timeout_s / QUIET_S)))) + before_it_looked + SLOTS
