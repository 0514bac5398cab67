"""Our merge of the slots' files against the client's own."""

from __future__ import annotations

import os
import random
from pathlib import Path

import prometheus_client
import pytest
from prometheus_client.multiprocess import MultiProcessCollector

from supervisor.telemetry import metrics
from supervisor.telemetry.metric_files.merge import SlotFiles

pytestmark = pytest.mark.usefixtures("metrics_restored")
Samples = dict[tuple[str, str, frozenset[tuple[str, str]]], float]


def samples(merged: object) -> Samples:
    """Return every sample by kind, name and labels."""
    return {
        (metric.type, sample.name, frozenset(sample.labels.items())): sample.value
        for metric in merged  # type: ignore[attr-defined]
        for sample in metric.samples
    }


def work(draw: random.Random, theirs: list[prometheus_client.metrics.MetricWrapperBase]) -> None:
    """Let one slot count for a while."""
    metrics.claim_slot(draw.choice(["agent", "worker-io-0", "worker-io-1", "scheduler"]))
    for _ in range(draw.randrange(40)):
        job = f'job{draw.randrange(12)} "é\\{draw.randrange(2)}'
        metrics.RUNS_FINISHED.labels("q", job, draw.choice(["ok", "dead"])).inc()
        metrics.RUN_DURATION_SECONDS.labels("q", job).observe(draw.expovariate(0.1))
        metrics.TURN_SECONDS.observe(draw.random())
        metrics.SCHEDULES.set(draw.randrange(9))
        summary, gauge = theirs
        summary.labels(job).observe(draw.random())  # type: ignore[attr-defined]
        gauge.labels(job).set(draw.random())  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(3))
def test_the_sum_is_the_clients_sum(tmp_path: Path, seed: int) -> None:
    """After any work of any slots, also when keys are added between scrapes; the seed is in the test's name."""
    metrics.prepare(tmp_path / "m")
    registry = prometheus_client.CollectorRegistry()
    theirs = [
        prometheus_client.Summary("shop_wait_seconds", "Theirs.", ["job"], registry=registry),
        prometheus_client.Gauge("shop_stock", "Theirs.", ["job"], registry=registry, multiprocess_mode="livesum"),
    ]
    draw, ours = random.Random(seed), SlotFiles(tmp_path / "m")

    for _ in range(5):
        work(draw, theirs)
        expected = samples(MultiProcessCollector.merge([str(path) for path in (tmp_path / "m").glob("*.db")]))
        seen = samples(ours.collect())
        assert seen.keys() == expected.keys()
        assert seen == pytest.approx(expected)


def test_what_is_no_file_of_values_is_passed_over(tmp_path: Path) -> None:
    """A job can make a pipe or a link to a device there: the web child would wait, or read, for ever."""
    metrics.prepare(tmp_path)
    ours = SlotFiles(tmp_path)
    metrics.claim_slot("agent")
    metrics.FIRES.labels("fired").inc(5)
    for kind in ("counter", "gauge_mostrecent"):
        os.mkfifo(tmp_path / f"{kind}_pipe.db")
        (tmp_path / f"{kind}_link.db").symlink_to("/dev/zero")
        (tmp_path / f"{kind}_directory.db").mkdir()

    assert samples(ours.collect())["counter", "tenure_fires_total", frozenset({("code", "fired")})] == 5


def test_a_file_that_was_replaced_is_read_afresh(tmp_path: Path) -> None:
    """What was remembered of the old file means nothing in the new one."""
    metrics.prepare(tmp_path)
    ours = SlotFiles(tmp_path)
    metrics.claim_slot("agent")
    metrics.FIRES.labels("fired").inc(5)
    name = ("counter", "tenure_fires_total", frozenset({("code", "fired")}))
    assert samples(ours.collect())[name] == 5

    (tmp_path / "counter_agent.db").write_bytes(b"\xff" * 64)
    assert samples(ours.collect()).get(name, 0) == 0
    (tmp_path / "counter_agent.db").unlink()
    metrics.prepare(tmp_path)
    metrics.claim_slot("agent")
    metrics.FIRES.labels("dup").inc(2)
    metrics.FIRES.labels("fired").inc(3)

    assert samples(ours.collect())[name] == 3
