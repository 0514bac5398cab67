"""Which series a metric may have: expected values, a cap on each label, and metrics that are left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from supervisor.telemetry import metrics
from supervisor.telemetry.metric_files import slots


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """No rules, and no counts in files that another test prepared in this process."""
    metrics.forget()
    yield
    metrics.limit()
    metrics.forget()


def counter(*labels: str, name: str = "tenure_seen_total") -> slots.Counter:
    """Return a counter of this test alone."""
    return slots.Counter(name, "Counts.", labels, registry=None)


def values(metric: slots.Counter) -> dict[tuple[str, ...], float]:
    """Return what a counter holds, by its labels in their order."""
    (family,) = metric.collect()
    return {
        tuple(sample.labels[name] for name in metric._labelnames): sample.value
        for sample in family.samples
        if sample.name.endswith("_total")
    }


def shown() -> dict[str, Metric]:
    """Return what a scrape finds, by name."""
    return {family.name: family for family in text_string_to_metric_families(metrics.exposition().decode())}


def test_what_a_label_does_not_expect_is_counted_as_unexpected() -> None:
    """As kube's --allow-metric-labels: the count stays right, and nobody can invent series."""
    metrics.limit(label_allow={"tenure_seen_total": {"job": ["backup", "report"]}})
    seen = counter("queue", "job")

    for job in ("backup", "report", "backup", "stranger", "another"):
        seen.labels("q", job).inc()

    assert values(seen) == {("q", "backup"): 2, ("q", "report"): 1, ("q", "unexpected"): 2}


def test_a_rule_is_for_its_own_metric_and_label() -> None:
    """What has no rule is counted as before."""
    metrics.limit(label_allow={"tenure_other_total": {"job": ["backup"]}, "tenure_seen_total": {"queue": ["q"]}})
    seen = counter("queue", "job")

    seen.labels(queue="q", job="stranger").inc()
    seen.labels(queue="p", job="stranger").inc()

    assert values(seen) == {("q", "stranger"): 1, ("unexpected", "stranger"): 1}


def test_ten_thousand_job_names_leave_bounded_series_and_a_bounded_file(tmp_path: Path) -> None:
    """Memory, disk and monitoring pay for label_values_max names, whatever a program invents; nothing goes uncounted."""
    metrics.limit(label_values_max=100)
    metrics.prepare(tmp_path)
    metrics.claim_slot("worker-io-0")
    seen = counter("queue", "job")
    sizes = []

    for number in range(10_000):
        seen.labels("q", f"job{number}").inc()
        if number in {200, 9_999}:
            sizes.append(sum(file.stat().st_size for file in tmp_path.glob("*.db")))

    found = values(seen)
    assert len(found) == 101
    assert found["q", "other"] == 9_900
    assert sum(found.values()) == 10_000
    assert sizes[0] == sizes[1]


def test_labels_that_multiply_are_bounded_together() -> None:
    """Two labels of a hundred values each are ten thousand series, unless their number has a limit too."""
    metrics.limit(label_values_max=100)
    seen = counter("queue", "job")

    for number in range(100):
        for other in range(100):
            seen.labels(f"q{number}", f"job{other}").inc()

    found = values(seen)
    assert len(found) <= 2 * 100 + 1
    assert sum(found.values()) == 10_000


def test_a_disabled_metric_is_not_shown_and_keeps_no_series() -> None:
    """As kube's --disabled-metrics."""
    metrics.limit(disabled=["tenure_enqueued_total", "tenure_turn_seconds"])
    before = len(metrics.ENQUEUED._metrics)

    for number in range(50):
        metrics.ENQUEUED.labels("q", f"job{number}").inc()

    assert len(metrics.ENQUEUED._metrics) <= before + 1
    assert {"tenure_enqueued", "tenure_turn_seconds"}.isdisjoint(shown())
    metrics.limit()
    assert {"tenure_enqueued", "tenure_turn_seconds"} <= shown().keys()


def test_rules_for_what_does_not_exist_are_told() -> None:
    """A rule with a typing mistake would never do anything, and nobody would know."""
    allow = {
        "tenure_enqueued_total": {"job": ["a"], "jobb": ["a"]},
        "tenure_enqeued_total": {"job": ["a"]},
    }
    metrics.limit(label_allow=allow)

    assert metrics.unused_rules(metrics.STORED) == ["tenure_enqueued_total.jobb", "tenure_enqeued_total"]


def test_a_missing_label_is_still_the_clients_own_error() -> None:
    """A mistake in a program is an error at once, not a series called other."""
    with pytest.raises(ValueError, match="Incorrect label count"):
        counter("queue", "job").labels("q")


def test_every_series_of_a_scrape_carries_the_cluster() -> None:
    """Alerts of one Prometheus tell clusters apart by it; a metric of a job module that has the label keeps its own."""
    own = counter("queue")
    own.labels("q").inc()
    theirs = GaugeMetricFamily("tenure_theirs", "Of a job module.", labels=["cluster"])
    theirs.add_metric(["k8s"], 1)
    plain = GaugeMetricFamily("tenure_plain", "Without labels.", 2)

    text = metrics.exposition(
        collectors=[own, SimpleNamespace(collect=lambda: [theirs, plain])], cluster="shop"
    ).decode()

    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = {sample.name: sample.labels for sample in samples}
    assert found["tenure_seen_total"] == {"cluster": "shop", "queue": "q"}
    assert (found["tenure_theirs"], found["tenure_plain"]) == ({"cluster": "k8s"}, {"cluster": "shop"})
    assert all("cluster" in sample.labels for sample in samples)
