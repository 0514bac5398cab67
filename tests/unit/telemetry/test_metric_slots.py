"""Values keyed by slot: they survive processes, and no process can break a scrape."""

from __future__ import annotations

import os
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import prometheus_client
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from supervisor.telemetry import metrics
from supervisor.telemetry.metric_files import slots

pytestmark = pytest.mark.usefixtures("metrics_restored")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A prepared directory."""
    metrics.prepare(tmp_path / "metrics")
    return tmp_path / "metrics"


def in_child(work: Callable[[], None]) -> int:
    """Run ``work`` in a forked process and return its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


def scrape(directory: Path | None = None) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the samples by name and label values."""
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in families(metrics.exposition(directory))
        for sample in family.samples
    }


def families(text: bytes) -> Iterator[Metric]:
    """Parse an exposition; the parser refuses what Prometheus would."""
    return iter(text_string_to_metric_families(text.decode()))


def life(slot: str, count: int) -> Callable[[], None]:
    """Return the whole life of a process in ``slot``."""

    def work() -> None:
        assert metrics.claim_slot(slot)
        metrics.ACKS_STALE.inc(count)
        metrics.RUNS_FINISHED.labels(queue="q", job="j", outcome="ok").inc(count)
        metrics.TURN_SECONDS.observe(0.003)
        metrics.SCHEDULES.set(count)

    return work


def test_counters_go_on_over_three_lives_of_two_slots(directory: Path) -> None:
    """A restart must not look like a counter reset, nor add series."""
    seen = []
    for _ in range(3):
        for slot in ("worker-io_x-0", "worker-cpu-1"):
            assert in_child(life(slot, 5)) == 0
            seen.append(scrape(directory)[("tenure_acks_stale_total", ())])
    files = sorted(path.name for path in directory.iterdir())

    assert seen == [5, 10, 15, 20, 25, 30]
    assert scrape(directory)[("tenure_runs_finished_total", ("j", "ok", "q"))] == 30
    assert scrape(directory)[("tenure_turn_seconds_count", ())] == 6
    assert len(files) == 2 * 3  # counters, histograms and gauges of two slots; the parent has none


def test_a_gauge_starts_over_with_its_process(directory: Path) -> None:
    """What a dead process last believed is not true any more."""
    in_child(life("scheduler", 7))
    assert scrape(directory)[("tenure_schedules", ())] == 7

    in_child(lambda: None if metrics.claim_slot("scheduler") else os._exit(1))

    assert ("tenure_schedules", ()) not in scrape(directory)


def test_series_held_since_before_prepare_follow_into_the_slot(tmp_path: Path) -> None:
    """Roles bind their labels once, at import, which may be before the parent prepares."""
    held = metrics.FIRES.labels("fired")
    held.inc()
    metrics.prepare(tmp_path / "metrics")

    def work() -> None:
        metrics.claim_slot("scheduler")
        held.inc(3)

    assert in_child(work) == 0
    assert scrape(tmp_path / "metrics")[("tenure_fires_total", ("fired",))] == 3


def test_a_child_that_closes_what_it_inherited_counts_all_the_same(directory: Path) -> None:
    """The prologue of every child does so; a metric must neither fail nor hit a descriptor opened since."""
    metrics.ACKS_STALE.inc()

    def work() -> None:
        os.closerange(3, 4096)
        reused = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
        life("worker-io-0", 5)()
        for descriptor in reused:
            os.close(descriptor)

    assert in_child(work) == 0
    assert scrape(directory)[("tenure_acks_stale_total", ())] == 5


def test_a_process_that_a_job_forks_does_not_write_into_the_slot(directory: Path) -> None:
    """Two writers of one file would overwrite each other's counts."""

    def work() -> None:
        life("worker-cpu-0", 5)()
        assert in_child(lambda: metrics.ACKS_STALE.inc(100)) == 0
        metrics.ACKS_STALE.inc(2)

    assert in_child(work) == 0
    assert scrape(directory)[("tenure_acks_stale_total", ())] == 7


def test_programs_that_jobs_start_inherit_nothing_of_it(directory: Path) -> None:
    """One with prometheus-client inside would leave a file for each of its processes."""
    in_child(life("worker-cpu-0", 5))

    assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ


def test_metrics_of_job_modules_are_kept_too(directory: Path) -> None:
    """Users define metrics with prometheus-client as they always did."""
    registry = prometheus_client.CollectorRegistry()
    theirs = prometheus_client.Counter("shop_orders_total", "Orders.", registry=registry)

    def work() -> None:
        metrics.claim_slot("worker-io-0")
        theirs.inc(2)

    in_child(work)

    assert scrape(directory)[("shop_orders_total", ())] == 2


def test_metrics_of_job_modules_imported_before_prepare_follow(tmp_path: Path) -> None:
    """Configuration is checked, and jobs imported for it, before anything is written to disk."""
    early = prometheus_client.Counter("shop_early_total", "Orders.")
    try:
        metrics.prepare(tmp_path / "metrics")

        def work() -> None:
            metrics.claim_slot("worker-io-0")
            early.inc(2)

        in_child(work)

        assert scrape(tmp_path / "metrics")[("shop_early_total", ())] == 2
    finally:
        prometheus_client.REGISTRY.unregister(early)


def test_a_process_that_never_prepared_counts_in_memory() -> None:
    """The command line and users' own programs import the same modules."""
    before = scrape()[("tenure_acks_stale_total", ())]

    assert metrics.claim_slot("anything")
    metrics.ACKS_STALE.inc()

    assert scrape()[("tenure_acks_stale_total", ())] == before + 1


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "content",
    [b"", b"\0", b"\0" * 65536, struct.pack("i", 4096) + b"\0" * 100, struct.pack("ii", 40, 0) + b"\xff" * 60,
     struct.pack("ii", 32, 0) + struct.pack("i", 4) + b"nope" + b"\0" * 16],
    ids=["empty", "one byte", "never written", "cut off", "garbage", "not json"],
)  # fmt: skip
def test_a_file_that_a_killed_writer_left_breaks_nothing(directory: Path, content: bytes) -> None:
    """One bad file once broke every scrape of a host (client_python issue 1199)."""
    in_child(life("worker-io-0", 5))
    (directory / "counter_worker-io-1.db").write_bytes(content)

    assert scrape(directory)[("tenure_acks_stale_total", ())] == 5
    assert in_child(life("worker-io-1", 2)) == 0
    assert scrape(directory)[("tenure_acks_stale_total", ())] == 7


def test_prepare_wipes_what_another_tree_left_and_lets_nobody_else_in(tmp_path: Path) -> None:
    """Counters of the previous start are not ours, and values may name customers' jobs."""
    directory = tmp_path / "a" / "metrics"
    metrics.prepare(directory)
    in_child(life("agent", 5))

    metrics.prepare(directory)

    assert scrape(directory) == {}
    assert directory.stat().st_mode & 0o777 == 0o700


def test_prepare_follows_no_link(tmp_path: Path) -> None:
    """A link planted in a shared directory must not get its target emptied."""
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").write_text("keep")
    (tmp_path / "metrics").symlink_to(target)

    metrics.prepare(tmp_path / "metrics")

    assert (target / "file").read_text() == "keep"
    assert not (tmp_path / "metrics").is_symlink()


def test_a_directory_that_vanished_costs_metrics_not_the_role(directory: Path) -> None:
    """A cleaner of temporary files must not stop workers from starting."""
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()

    def work() -> None:
        assert not metrics.claim_slot("worker-io-0")
        metrics.ACKS_STALE.inc()
        metrics.FIRES.labels("fired").inc()

    assert in_child(work) == 0
    assert slots.exposition(directory) == b""


def test_the_number_of_series_has_a_limit(directory: Path) -> None:
    """A job that invents names must not fill the disk and the monitoring."""

    def work() -> None:
        metrics.limit(label_values_max=20)
        # Of this test's own: the series of shared metrics depend on what ran before in this process.
        runs = slots.Counter("tenure_invented_total", "Counts.", ["queue", "job"], registry=None)
        waits = slots.Histogram("tenure_invented_seconds", "Measures.", ["queue"], registry=None)
        metrics.claim_slot("worker-io-0")
        for number in range(20 + 50):
            runs.labels(queue="q", job=f"job{number}").inc()
            waits.labels(f"queue{number}").observe(1)
        runs.labels("q", "job7").inc()

    assert in_child(work) == 0
    samples = scrape(directory)
    assert samples[("tenure_invented_total", ("other", "q"))] == 50
    assert samples[("tenure_invented_total", ("job7", "q"))] == 2
    assert samples[("tenure_invented_seconds_count", ("other",))] == 50
    assert sum(name == "tenure_invented_total" for name, _ in samples) == 20 + 1


def test_two_threads_of_a_process_lose_no_count(directory: Path) -> None:
    """The elector and the main thread of an agent count the same words."""
    both = threading.Barrier(2)

    def count(_thread: int) -> None:
        both.wait()
        for _ in range(20_000):
            metrics.ACKS_STALE.inc()

    def work() -> None:
        assert metrics.claim_slot("agent")
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(count, range(2)))

    assert in_child(work) == 0

    assert scrape(directory)["tenure_acks_stale_total", ()] == 40_000


def test_the_directory_may_hold_any_character(tmp_path: Path) -> None:
    """Braces, as in a path that somebody forgot to expand, ended every child by a KeyError."""
    directory = tmp_path / "a {x} ${HOME} %s"
    metrics.prepare(directory)

    assert in_child(life("worker", 2)) == 0

    assert scrape(directory)["tenure_acks_stale_total", ()] == 2
