"""Which bells a worker listens to, and how many slots each queue may fill."""

from __future__ import annotations

import operator
from collections import Counter

import pytest

from supervisor.core.effects import drive
from supervisor.core.errors import StoreRefusedError
from supervisor.roles.worker.polling.bells import RETRY_NS, BellListener, Bells
from tests.kit.clock import FakeClock

BELLS = {"a": "bell-a", "b": "bell-b"}


def bells(shares: dict[str, int], here: dict[str, int]) -> Bells:
    """Return the bells of a worker that holds some runs."""
    return Bells(BELLS, shares=shares, here=lambda: Counter(here))


def test_without_shares_every_bell_is_heard_and_every_slot_is_free() -> None:
    """Nobody counts what is here then: it is asked for each turn."""
    subject = Bells(BELLS, shares={}, here=lambda: pytest.fail("counted for nothing"))

    assert subject.audible() == ["bell-a", "bell-b"]
    assert subject.room(7) == 7
    assert subject.is_ours("bell-b")
    assert not subject.is_ours("bell-c")


@pytest.mark.parametrize(
    ("here", "audible", "room"),
    [
        ({}, ["bell-a", "bell-b"], 10),
        ({"a": 2}, ["bell-b"], 10),
        ({"a": 3, "b": 9}, ["bell-b"], 10),
        ({"a": 1, "b": 9}, ["bell-a", "bell-b"], 10),
    ],
)
def test_a_queue_whose_share_is_used_up_is_not_listened_to(here: dict[str, int], audible: list[str], room: int) -> None:
    """Its bell would be heard for nothing, and by nobody else."""
    subject = bells({"a": 2}, here)

    assert subject.audible() == audible
    assert subject.room(10) == room
    assert subject.is_ours("bell-a") is ("bell-a" in audible)


def test_where_all_shares_are_used_up_there_is_no_room() -> None:
    """Then no turn asks for anything until a run ends."""
    subject = bells({"a": 1, "b": 1}, {"a": 1, "b": 1})

    assert subject.audible() == []
    assert subject.room(10) == 0


class Redis:
    """Bells, of which some are keys of another type."""

    def __init__(self, *refused: str) -> None:
        self.refused, self.asked = set(refused), list[tuple[str, ...]]()

    def ring(self, bells: list[str], _wait_s: float) -> str:
        self.asked.append(tuple(bells))
        if self.refused & set(bells):
            raise StoreRefusedError("BLPOP")
        return bells[0]

    def command(self, *parts: str) -> int:
        self.asked.append(parts)
        if parts[1] in self.refused:
            raise StoreRefusedError("LLEN")
        return 0


def test_a_bell_that_redis_refuses_is_left_out_for_a_while_and_reported() -> None:
    """One command waits at all of them, and Redis refuses it for the sake of one."""
    clock, redis, told, paused = FakeClock(), Redis("b"), list[str](), list[float]()
    listener = BellListener(clock, lambda failure, _now_ns: told.append(failure))

    def ring(*bells: str) -> str | None:
        return drive(listener.ring(redis, bells, 2.0, pause=paused.append), operator.call)

    assert ring("a", "b") is None
    assert redis.asked == [("a", "b"), ("LLEN", "a"), ("LLEN", "b")]
    assert told == ["b: LLEN"]
    assert ring("a", "b") == "a"
    assert redis.asked[3:] == [("a",)]
    assert (ring("b"), paused) == (None, [2.0])

    redis.refused.clear()
    clock.now_ns += RETRY_NS
    assert ring("b", "a") == "b"


def test_a_wait_that_redis_refuses_for_another_reason_fails() -> None:
    """No bell is to blame, so that the worker tells of it as of any outage."""
    redis = Redis("all")
    redis.command = lambda *_: 0  # type: ignore[method-assign]
    listener = BellListener(FakeClock(), lambda *_: pytest.fail("reported"))

    with pytest.raises(StoreRefusedError, match="BLPOP"):
        drive(listener.ring(redis, ["all"], 2.0, pause=pytest.fail), operator.call)
