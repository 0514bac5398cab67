"""Which bells a worker listens to, and how many slots each queue may fill."""

from __future__ import annotations

from collections import Counter

import pytest

from supervisor.roles.worker.polling.bells import Bells

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
