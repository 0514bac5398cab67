"""What ``tenure doctor`` says of names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.cli.doctor import data_directory, replica_names, replicas_of, schedule_sets
from supervisor.store.election.leases import CandidateInfo, LeaseCode, LeaseView
from supervisor.store.queues.reads import Served
from tests.kit.users import as_nobody

LEASE = LeaseView(
    code=LeaseCode.VIEW, epoch=7, nonce="n", holder="a.1", seq=1, remaining_ms=1, duration_ms=5000, now_ms=100_000,
    genesis="g", last_event="0-0",
)  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "is_ok"),
    [
        ({"a.1": 99_000, "b.2": 99_000}, True),
        ({"a.1": 99_000, "a.2": 99_000}, False),
        ({"a.1": 99_000, "a.2": 84_000}, True),
        ({"a": 99_000, "b": 99_000}, True),
        ({}, True),
    ],
)
def test_a_name_that_two_living_replicas_have_is_found(seen: dict[str, int], *, is_ok: bool) -> None:
    """Safe, but nobody can tell their logs and metrics apart; one that left long ago does not count."""
    candidates = [CandidateInfo(replica=replica, seen_ms=seen_ms) for replica, seen_ms in seen.items()]

    assert replica_names(candidates, LEASE).is_ok is is_ok


@pytest.mark.parametrize(
    ("other", "is_ok"),
    [
        (CandidateInfo(replica="b.2", schedules_digest="d2", seen_ms=99_000), False),
        (CandidateInfo(replica="b.2", schedules_digest="d1", seen_ms=99_000), True),
        (CandidateInfo(replica="b.2", schedules_digest="", seen_ms=99_000), True),
        (CandidateInfo(replica="b.2", schedules_digest="d2", seen_ms=84_000), True),
        (CandidateInfo(replica="b.2", schedules_digest="d2", seen_ms=99_000, participates=False), True),
    ],
)
def test_replicas_with_other_schedules_are_found(other: CandidateInfo, *, is_ok: bool) -> None:
    """Only one set is in place; a replica without schedules, or that never leads, brings none."""
    found = schedule_sets([CandidateInfo(replica="a.1", schedules_digest="d1", seen_ms=99_000), other], LEASE)

    assert found.is_ok is is_ok
    assert is_ok or found.seen == "2 sets that differ, of a.1 - b.2"


def test_a_cluster_without_replicas_is_found_for_producers_with_the_names_there_are() -> None:
    """Whoever asks why nothing runs reads the name to correct."""
    wrong = replicas_of("default", Served.NO_CLUSTER, ["shop"])
    right = replicas_of("shop", Served.NO, ["shop"])

    assert (wrong.is_ok, right.is_ok) == (False, True)
    assert "no replica of default was ever seen; the database holds shop" in wrong.seen
    assert "TENURE_CLUSTER" in wrong.remedy


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o703])
def test_a_data_directory_that_a_start_refuses_is_found(tmp_path: Path, mode: int) -> None:
    """The start ends with 73, as it should: what others may write to may hold a server of theirs."""
    place = tmp_path / "data"
    place.mkdir()
    place.chmod(mode)
    os.chown(place, -1, 0 if os.geteuid() else 1)  # the group of nobody who could be this user alone

    found = data_directory(place)

    assert not found.is_ok
    assert "may write to it" in found.seen
    place.chmod(0o755)
    assert data_directory(place).is_ok  # the start makes it private


def test_a_data_directory_that_cannot_be_made_or_seen_is_found(tmp_path: Path) -> None:
    """A file in its place or above it, a name that no file may have, a directory that may not be entered."""
    (tmp_path / "file").write_text("")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)

    assert "file is no directory" in data_directory(tmp_path / "file").seen
    assert "file is no directory" in data_directory(tmp_path / "file" / "data").seen
    assert "File name too long" in data_directory(tmp_path / ("x" * 300)).seen
    assert data_directory(tmp_path / "new" / "data").is_ok
    with as_nobody():
        assert "Permission denied" in data_directory(closed / "data").seen
