"""Files of values on a disk that is full, or becomes full."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.telemetry import metrics
from supervisor.telemetry.metric_files import slots
from supervisor.telemetry.metric_files.values import SlotFile

pytestmark = pytest.mark.usefixtures("metrics_restored")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A prepared directory, forgotten afterwards: these tests claim a slot in this very process."""
    metrics.prepare(tmp_path / "metrics")
    yield tmp_path / "metrics"
    metrics.forget()


def fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file take room any more."""

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)


def test_a_file_of_values_has_no_holes(directory: Path) -> None:
    """A value that is stored into a hole on a full disk kills its process by SIGBUS."""
    metrics.claim_slot("worker-io-0")
    files = [path.stat() for path in directory.glob("*.db")]
    assert len(files) == 3
    assert all(each.st_blocks * 512 >= each.st_size > 0 for each in files)


def test_a_file_that_grows_takes_its_room_first(tmp_path: Path) -> None:
    """Also for one long key that needs more than the double."""
    file = SlotFile(str(tmp_path / "f.db"))
    file.write_value("k" * 200_000, 1.0, 0.0)
    file.write_value("l", 2.0, 0.0)
    found = (tmp_path / "f.db").stat()
    assert found.st_blocks * 512 >= found.st_size >= 200_000
    assert [value for _, value, _ in file.read_all_values()] == [1.0, 2.0]
    file.close()


def test_a_full_disk_costs_metrics_not_the_role(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process counts in memory, and says so."""
    fill_the_disk(monkeypatch)
    assert not metrics.claim_slot("worker-io-0")
    metrics.ACKS_STALE.inc(3)
    assert slots.exposition(directory) == b""


def test_a_disk_that_fills_up_costs_only_what_is_new(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A series that finds no room is counted in memory; those before it go on."""
    assert metrics.claim_slot("worker-io-0")
    fill_the_disk(monkeypatch)
    invented = slots.Counter("tenure_full_total", "Counts.", ["job"], registry=None)
    for number in range(2000):
        invented.labels(job=f"job{number % 900}-{'x' * 200}").inc()
    metrics.ACKS_STALE.inc(3)
    text = slots.exposition(directory).decode()
    assert "tenure_acks_stale_total 3.0" in text
    assert 0 < text.count("tenure_full_total{") < 900


def test_claims_by_the_hundred_leave_one_file_of_a_kind_and_every_count(directory: Path) -> None:
    """By process id they would be a file each, and a counter that starts over is one that lost."""
    for _ in range(20):
        for slot in ("worker-io-0", "worker-io-1"):
            metrics.claim_slot(slot)
            metrics.ACKS_STALE.inc()
    assert len(list(directory.iterdir())) == 6
    assert "tenure_acks_stale_total 40.0" in slots.exposition(directory).decode()
