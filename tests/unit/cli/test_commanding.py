"""Which replica a command means."""

from __future__ import annotations

import click
import pytest

from supervisor.cli.replica.replica_commands import chosen_replica

NAMES = ["web-1.aaa111", "web-1.bbb222", "web-2.ccc333"]


@pytest.mark.parametrize("name", ["web-2", "web-2.ccc333"])
def test_a_replica_is_named_by_its_name_or_its_id(name: str) -> None:
    """People know the name; scripts have the id."""
    assert chosen_replica(NAMES, name) == "web-2.ccc333"


def test_the_only_one_needs_no_name() -> None:
    """One machine, one command."""
    assert chosen_replica(NAMES[2:], None) == "web-2.ccc333"


@pytest.mark.parametrize(
    ("name", "message"),
    [(None, "name the replica"), ("web-1", "several replicas"), ("web-9", "no replica is called")],
)
def test_what_is_not_clear_is_asked_not_guessed(name: str | None, message: str) -> None:
    """A stop must not hit the wrong machine."""
    with pytest.raises(click.UsageError, match=message):
        chosen_replica(NAMES, name)
