"""Commands to replicas: which one is meant, and what becomes of it. Replies are written here, and no Redis answers."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.effects import drive
from supervisor.operations import Delay
from supervisor.operations.workers import (
    LOOK_S,
    ReplicaChoiceError,
    ReplicaFullError,
    Word,
    WorkerTarget,
    choose_replica,
    control,
)
from supervisor.store.keys import Keys

NAMES = ["web-1.aaa111", "web-1.bbb222", "web-2.ccc333"]


@pytest.mark.parametrize("name", ["web-2", "web-2.ccc333"])
def test_a_replica_is_named_by_its_name_or_its_id(name: str) -> None:
    """People know the name; scripts have the id."""
    assert choose_replica(NAMES, name) == "web-2.ccc333"


def test_the_only_one_needs_no_name() -> None:
    """One machine, one command."""
    assert choose_replica(NAMES[2:], None) == "web-2.ccc333"


@pytest.mark.parametrize(
    ("name", "message"),
    [(None, "name the replica"), ("web-1", "several replicas"), ("web-9", "no replica is called")],
)
def test_what_is_not_clear_is_asked_not_guessed(name: str | None, message: str) -> None:
    """A stop must not hit the wrong machine."""
    with pytest.raises(ReplicaChoiceError, match=message):
        choose_replica(NAMES, name)


def test_a_command_without_an_answer_ends_in_time_and_has_none() -> None:
    """The replica may be gone: it is asked for as long as the caller said, and no longer."""
    waited: list[float] = []

    def execute(effect: Any) -> Any:
        if isinstance(effect, Delay):
            return waited.append(effect.seconds)
        return True if effect.script == "command_send" else [None]

    target = WorkerTarget("web-1.aaa111", "w-0", 3)
    answer = drive(control(Keys("c1"), target, Word.QUIET, by="kim", signer=None, at_ms=1, wait_s=2.0), execute)
    assert answer is None
    assert sum(waited) == pytest.approx(2.0, abs=LOOK_S + 0.01)


def test_a_replica_with_many_commands_waiting_is_said_to_be_full() -> None:
    """It does not take them; asking it for more helps nobody."""
    with pytest.raises(ReplicaFullError, match="is it alive"):
        drive(control(Keys("c1"), WorkerTarget("r"), Word.QUIET, by="kim", signer=None, at_ms=1), lambda _effect: False)
