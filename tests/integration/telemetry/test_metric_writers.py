"""Scrapes while processes write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.telemetry import metrics


@pytest.fixture(autouse=True)
def _in_memory_again() -> Iterator[None]:
    yield
    metrics.forget()


def scrape(directory: Path) -> dict[str, float]:
    """Return the value of every line."""
    lines = metrics.exposition(directory).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


@pytest.mark.parametrize("scrapes", [3, pytest.param(60, marks=pytest.mark.long)])
def test_a_scrape_amid_writers_reads_no_torn_value(tmp_path: Path, scrapes: int) -> None:
    """A counter that seems to fall makes a rate explode."""
    directory = tmp_path / "metrics"
    metrics.prepare(directory)
    read, write = os.pipe()
    writers = []
    for number in range(3):
        pid = os.fork()
        if pid == 0:
            os.close(write)
            metrics.claim_slot(f"worker-io-{number}")
            series = 0
            while not is_closed(read):
                metrics.ACKS_STALE.inc()
                metrics.RUN_DURATION_SECONDS.labels("q", f"job{series % 100}").observe(0.5)
                series += 1
            os._exit(0)
        writers.append(pid)
    os.close(read)
    seen = []
    for _ in range(scrapes):
        samples = scrape(directory)
        seen.append(samples["tenure_acks_stale_total"])
        assert all(value >= 0 for value in samples.values())
    os.close(write)

    assert [os.waitpid(pid, 0)[1] for pid in writers] == [0, 0, 0]
    assert seen == sorted(seen)
    assert seen[-1] > 0


def is_closed(descriptor: int) -> bool:
    os.set_blocking(descriptor, False)
    try:
        return os.read(descriptor, 1) == b""
    except BlockingIOError:
        return False
