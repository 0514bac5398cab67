"""Scrapes while processes write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervisor.telemetry import metrics
from tests.kit.waiting import wait_until


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
    with writing(3) as writers:
        wait_until(lambda: scrape(directory).get("tenure_acks_stale_total", 0) > 0)
        seen = []
        for _ in range(scrapes):
            samples = scrape(directory)
            seen.append(samples["tenure_acks_stale_total"])
            assert all(value >= 0 for value in samples.values())

    assert [os.waitstatus_to_exitcode(status) for status in writers] == [0, 0, 0]
    assert seen == sorted(seen)
    assert seen[-1] > 0


@contextmanager
def writing(count: int) -> Iterator[list[int]]:
    """Fork processes that write until the block ends; their wait statuses are in the list then."""
    read, write = os.pipe()
    statuses: list[int] = []
    pids = [pid for number in range(count) if (pid := _fork_writer(number, read, write))]
    os.close(read)
    try:
        yield statuses
    finally:
        os.close(write)
        statuses += [os.waitpid(pid, 0)[1] for pid in pids]


def _fork_writer(number: int, read: int, write: int) -> int:
    if pid := os.fork():
        return pid
    os.close(write)
    metrics.claim_slot(f"worker-io-{number}")
    series = 0
    while not is_closed(read):
        metrics.ACKS_STALE.inc()
        metrics.RUN_DURATION_SECONDS.labels("q", f"job{series % 100}").observe(0.5)
        series += 1
    os._exit(0)


def is_closed(descriptor: int) -> bool:
    os.set_blocking(descriptor, False)
    try:
        return os.read(descriptor, 1) == b""
    except BlockingIOError:
        return False
