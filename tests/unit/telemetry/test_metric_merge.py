"""Our merge of the slots' files against the client's own."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector

from supervisor.telemetry import metrics
from supervisor.telemetry.metric_files.merge import SlotFiles
from tests.kit.tables import table

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


@pytest.mark.share(3)
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


FOREIGN_KEYS = (
    '[1,"x_total",{},"h"]',
    '["x",2,{},"h"]',
    '["x","x_total",{"a":1},"h"]',
    '["x","x_total",[["a","b"]],"h"]',
    '["x","x_total",{},null]',
)


@table(
    "name, key",
    [*itertools.product(("counter_job.db", "gauge_max_job.db"), FOREIGN_KEYS), ("cache_job.db", '["x","x",{},"h"]')],
)
def test_a_key_that_the_client_does_not_write_costs_its_file(tmp_path: Path, name: str, key: str) -> None:
    """One made the whole scrape fail, for as long as the file was there; so did a file of a kind that there is not."""
    metrics.prepare(tmp_path)
    metrics.claim_slot("agent")
    metrics.FIRES.labels("fired").inc(5)
    metrics.SCHEDULES.set(7)
    file = MmapedDict(str(tmp_path / name))  # type: ignore[no-untyped-call]
    file.write_value(key, 1.0, 0.0)  # type: ignore[no-untyped-call]
    file.close()  # type: ignore[no-untyped-call]

    told = metrics.exposition(tmp_path)
    assert b'tenure_fires_total{code="fired"} 5.0' in told
    assert b"tenure_schedules 7.0" in told


@pytest.mark.parametrize(("kind", "ending"), [(prometheus_client.Counter, "_total"), (prometheus_client.Gauge, "")])
def test_a_label_that_is_no_text_is_told_escaped(tmp_path: Path, kind: Any, ending: str) -> None:
    """A file name in another encoding as a label of a job's own metric left the tree without any metric."""
    metrics.prepare(tmp_path)
    theirs = kind("shop_files", "Theirs.", ["name"], registry=prometheus_client.CollectorRegistry())
    metrics.claim_slot("worker-io-0")
    metrics.FIRES.labels("fired").inc(5)
    for name in (os.fsdecode(b"caf\xe9.txt"), "\x1b[31mred\u202e", "größe\n"):
        theirs.labels(name).inc()

    told = metrics.exposition(tmp_path).decode()
    assert 'tenure_fires_total{code="fired"} 5.0' in told
    for shown in (r"caf\\udce9.txt", r"\\x1b[31mred\\u202e", r"größe\n"):
        assert f'shop_files{ending}{{name="{shown}"' in told


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
