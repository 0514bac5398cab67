"""Limits on the series of a metric: expected values of labels, and their number.

Guarantees
    A process keeps at most ``label_values_max`` values of a label, and as many series of a metric and as many
    again for the rest: further values are ``other``, and values that a label does not expect are ``unexpected``.
    So neither memory nor the slot's file grows with names that somebody invents.
    A metric that is disabled has at most one series, and is not in the exposition.
    No value of a label, of job modules neither, keeps the rest from being told or steers a terminal: what UTF-8 cannot
    hold (a file name that is no text) and control characters are escaped.

Does not guarantee
    Anything about how many labels metrics have that job modules define with prometheus-client themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from supervisor.telemetry.controls import escape_controls

SERIES_MAX = 1000
"""Values of a label, and series of a metric, that one process keeps unless the settings say otherwise."""

OTHER = "other"
UNEXPECTED = "unexpected"
_NO_LABELS: Mapping[str, str] = {}


@dataclass(slots=True)
class _Limits:
    disabled: frozenset[str] = frozenset()
    label_allow: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    label_values_max: int = SERIES_MAX
    seen: dict[MetricWrapperBase, tuple[set[str], ...]] = field(default_factory=dict)


_limits = _Limits()


def limit(
    *,
    disabled: Iterable[str] = (),
    label_allow: Mapping[str, Mapping[str, Iterable[str]]] | None = None,
    label_values_max: int = SERIES_MAX,
) -> None:
    """Set the metrics and series that exist, here and in processes forked from here; without arguments, as at first."""
    _limits.disabled = frozenset(disabled)
    _limits.label_allow = {
        metric: {label: frozenset(values) for label, values in labels.items()}
        for metric, labels in (label_allow or {}).items()
    }
    _limits.label_values_max = label_values_max
    _limits.seen.clear()


def unused_rules(metrics: Iterable[MetricWrapperBase]) -> list[str]:
    """Return names of ``label_allow`` that no metric has: a metric, or a metric and its label."""
    labels = {_name_of(metric): metric._labelnames for metric in metrics}  # noqa: SLF001 - as below
    found = []
    for name, rules in _limits.label_allow.items():
        if name not in labels:
            found.append(name)
        else:
            found += [f"{name}.{label}" for label in rules if label not in labels[name]]
    return found


def _name_of(metric: MetricWrapperBase) -> str:
    return public_name(metric._name, metric._type or "")  # noqa: SLF001 - as below


def public_name(name: str, kind: str) -> str:
    """Return the name that people see: the client keeps those of counters without their ending."""
    return f"{name}_total" if kind == "counter" and not name.endswith("_total") else name


def admitted(
    metric: MetricWrapperBase, labelvalues: Sequence[object], labelkwargs: Mapping[str, object]
) -> tuple[str, ...]:
    """Return the labels under which a use of ``metric`` counts: those given, while there is room for them.

    Raises:
        KeyError: a label is missing; the client's own error follows for any other mistake.
    """
    names: tuple[str, ...] = metric._labelnames  # noqa: SLF001 - the client offers neither its labels nor its series
    known: Mapping[Any, object] = metric._metrics  # noqa: SLF001 - as above
    key = tuple(str(labelkwargs[name]) for name in names) if labelkwargs else tuple(map(str, labelvalues))
    if key in known or len(key) != len(names):
        return key
    name = _name_of(metric)
    if name in _limits.disabled:
        return (OTHER,) * len(names)
    rules = _limits.label_allow.get(name)
    if rules:
        key = tuple(
            value if label not in rules or value in rules[label] else UNEXPECTED
            for label, value in zip(names, key, strict=True)
        )
    seen = _limits.seen.setdefault(metric, tuple(set() for _ in names))
    key = tuple(map(_kept, seen, key))
    room = _limits.label_values_max * (2 if OTHER in key else 1)  # what stands for many may still be told apart
    return key if key in known or len(known) < room else (OTHER,) * len(names)


def _kept(seen: set[str], value: str) -> str:
    if value in seen:
        return value
    if len(seen) >= _limits.label_values_max:
        return OTHER
    seen.add(value)
    return value


class Enabled(Collector):
    """Metrics of another collector, without the disabled ones, and with labels added to each series."""

    def __init__(self, collector: Collector, labels: Mapping[str, str] = _NO_LABELS) -> None:
        self._collector = collector
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are not disabled; a label that a metric has itself stays."""
        for metric in self._collector.collect():
            if metric.name not in _limits.disabled and public_name(metric.name, metric.type) not in _limits.disabled:
                metric.documentation = escape_controls(metric.documentation)
                metric.samples = [each._replace(labels=self._labels_of(each.labels)) for each in metric.samples]
                yield metric

    def _labels_of(self, given: Mapping[str, str]) -> dict[str, str]:
        return {**self._labels, **{name: escape_controls(value) for name, value in given.items()}}
