"""Texts of people in records of Redis, which anybody who reaches it may have written."""

from __future__ import annotations

import msgspec

from supervisor.core.json_values import read_json
from supervisor.store.election.commands import Command
from supervisor.store.election.leases import LeaseEvent
from supervisor.store.schedules.backfills import Request
from supervisor.store.schedules.reads import PAUSE_WORDS_MAX, unpack_pause
from supervisor.store.wire.codec import WORDS_MAX

LONG = "a." * 30_000


def test_texts_are_cut_when_they_are_read() -> None:
    """What is logged, masked or shown of them costs no more than its writers are allowed."""
    command = read_json(msgspec.json.encode({"word": "stacks", "by": LONG, "slot": LONG}), Command)
    request = read_json(msgspec.json.encode({"from_ms": 1, "until_ms": 2, "by": LONG}), Request)
    event = LeaseEvent.of("5-0", {"who": LONG, "reason": LONG})
    pause = unpack_pause(msgspec.json.encode({"reason": LONG, "by": LONG}))

    assert pause is not None
    assert (len(pause.reason), len(pause.by)) == (PAUSE_WORDS_MAX, PAUSE_WORDS_MAX)
    assert {len(each) for each in (command.by, command.slot, request.by, event.who, event.reason)} == {WORDS_MAX}


def test_a_text_within_the_limit_is_left_as_it_is() -> None:
    """A cut must not reach what a writer may write."""
    pause = unpack_pause(msgspec.json.encode({"reason": "r" * 500, "by": "anna"}))

    assert pause is not None
    assert (pause.reason, pause.by) == ("r" * 500, "anna")
