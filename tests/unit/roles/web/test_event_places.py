"""Ids of events, as a follower that comes back gives them."""

from __future__ import annotations

from supervisor.roles.web.events.handlers import _place


def test_ids_are_in_the_order_of_their_time_and_then_of_their_number() -> None:
    """By the number alone, who resumes would get old events again and miss new ones."""
    mixed = ["7-0", "6-10", "", "10-0", "6-9", "6-0"]
    assert sorted(mixed, key=_place) == ["", "6-0", "6-9", "6-10", "7-0", "10-0"]
