"""prometheus-client with values in files that are keyed by slot, not by process id as its own mode does.

Guarantees
    Files are bounded by the number of slots, not by how many processes ever lived
    (by process id, 200 lives left 403 files and a scrape of 232 ms).
    Counters and histograms go on where the previous process of the slot stopped; gauges start over.
    A file that a killed writer left empty or torn costs that file, never the scrape.
    A process that never called ``prepare``, or that a claiming process forks, counts in memory.

Does not guarantee
    ``process_…`` and ``python_…`` metrics, exemplars or ``_created`` series: this mode has none.
"""
# mypy: disable-error-code="no-untyped-call"
# Half of the client's functions that are used here have no annotations.

from __future__ import annotations

import json
import os
import shutil
import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import prometheus_client
import structlog
from prometheus_client import REGISTRY, CollectorRegistry, values
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.registry import Collector

from supervisor.telemetry.metric_files.merge import SlotFiles
from supervisor.telemetry.metric_files.series import Enabled, admitted
from supervisor.telemetry.metric_files.values import FILES, SlotValue, file_key

_UNREADABLE = (struct.error, RuntimeError, ValueError, IndexError)  # ValueError: not UTF-8, not JSON


class _Store:
    """Storage of this process's metric values; one for each process."""

    def __init__(self) -> None:
        self.directory: Path | None = None
        self.metrics: list[MetricWrapperBase] = []
        self.files: SlotFiles | None = None  # kept between scrapes: it remembers what it parsed


_store = _Store()


class _Limited(MetricWrapperBase):
    def labels(self, *labelvalues: object, **labelkwargs: object) -> Self:
        """Return the series of these labels, or their substitute (telemetry/metric_files/series.py)."""
        return super().labels(*admitted(self, labelvalues, labelkwargs))


class Counter(_Limited, prometheus_client.Counter):
    """A counter with a limit on its series."""


class Histogram(_Limited, prometheus_client.Histogram):
    """A histogram with a limit on its series."""

    @property
    def bounds(self) -> tuple[float, ...]:
        """The upper bounds of the buckets, the last one infinite."""
        return tuple(self._upper_bounds)

    def add(self, counts: Sequence[int], total: float) -> None:
        """Add observations that were sorted already: how many fell into each bucket, and their sum."""
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)
        self._sum.inc(total)

    def observe_all(self, amounts: Sequence[float]) -> None:
        """Observe ``amounts`` at once: each bucket is written once, not once for each of them."""
        counts = [0] * len(self._buckets)
        for amount in amounts:
            counts[bisect_left(self._upper_bounds, amount)] += 1
        self.add(counts, sum(amounts))


class Gauge(_Limited, prometheus_client.Gauge):
    """A gauge with a limit on its series."""


_STORED_KINDS = (
    prometheus_client.Counter,
    prometheus_client.Gauge,
    prometheus_client.Histogram,
    prometheus_client.Summary,
)


def register(metrics: Iterable[MetricWrapperBase]) -> None:
    """Name the metrics that ``prepare`` has to move into files, since they were made before it."""
    _store.metrics.extend(metrics)


def prepare(directory: Path | str) -> None:
    """Empty ``directory`` for the values of this tree. Once, in the parent, before the first fork.

    The parent itself counts in memory; each child keeps its values here once it claimed its slot.
    Metrics that job modules define with prometheus-client are kept here too: those made after
    this call, and those made before it that are in the client's default registry.

    Raises:
        OSError: the directory cannot be emptied or made.
    """
    directory = Path(directory).absolute()
    if directory.is_symlink() or directory.is_file():
        directory.unlink()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    for left in directory.glob("*.db"):
        left.unlink()
    FILES.drop()
    _store.directory = directory
    # The client's variable PROMETHEUS_MULTIPROC_DIR stays unset: programs that jobs start would
    # inherit it, and leave files by process id here that nobody ever removes.
    _rebind(SlotValue)


def claim_slot(name: str) -> bool:
    """Keep this process's values under the slot ``name``. First thing after the fork; no-op without ``prepare``.

    Return False when the directory cannot be used, or its disk is full: then this process counts
    in memory values without a place, because metrics are no reason for a role not to start.
    """
    if _store.directory is None:
        return True
    try:
        # Not by a pattern: compiling one costs each child more memory than the names of all files.
        for path in _store.directory.iterdir():
            if not path.name.endswith(f"_{file_key(name)}.db"):
                continue
            if path.name.startswith("gauge_") or not _is_sound(path):
                path.unlink()
        problem = "" if os.access(_store.directory, os.W_OK | os.X_OK) else "not writable"
    except OSError as error:
        problem = error.strerror or repr(error)
    if problem:
        FILES.release()
    else:
        problem = FILES.claim(_store.directory, name)
    if problem:
        directory = str(_store.directory)
        structlog.get_logger().warning(
            "metrics_in_memory", directory=directory, reason=problem, consequence="not scraped"
        )
    return not problem


def forget() -> None:
    """Count in memory again, from zero: for tests, and for a process that leaves the tree."""
    FILES.drop()
    _store.directory = _store.files = None
    _rebind(values.MutexValue)


def exposition(
    directory: Path | str | None = None, collectors: Iterable[Collector] = (), *, cluster: str | None = None
) -> bytes:
    """Return the text format (version 0.0.4) of all slots' values and of ``collectors``.

    Args:
        directory: where ``prepare`` put the files; None: where this tree did, else the counts of this process
            in memory.
        collectors: objects with ``collect()``, asked now.
        cluster: the label ``cluster`` of every series; None: without.
    """
    directory = directory or _store.directory
    labels = {} if cluster is None else {"cluster": cluster}
    registry = CollectorRegistry(auto_describe=False)
    if directory is None:
        for metric in _store.metrics:
            registry.register(Enabled(metric, labels))
    else:
        if _store.files is None or _store.files.directory != Path(directory):
            _store.files = SlotFiles(Path(directory))
        registry.register(Enabled(_store.files, labels))
    for collector in collectors:
        registry.register(Enabled(collector, labels))
    return prometheus_client.generate_latest(registry)


def _is_sound(path: Path) -> bool:
    """Return whether every entry of the file can be read."""
    try:
        for key, _, _, _ in MmapedDict.read_all_values_from_file(path):
            metric_name, _, labels, _ = json.loads(key)
            if not (isinstance(metric_name, str) and isinstance(labels, dict)):
                return False
    except (*_UNREADABLE, OSError):
        return False
    return True


def _rebind(value_class: type[SlotValue | values.MutexValue]) -> None:
    """Give every known metric, and every one made later, values of ``value_class``, from zero."""
    values.ValueClass = value_class
    theirs = [
        metric
        for metric in REGISTRY._collector_to_names  # noqa: SLF001 - the registry does not list what it holds
        if isinstance(metric, _STORED_KINDS)
    ]
    for metric in {*_store.metrics, *theirs}:
        for one in list(metric._metrics.values()) if metric._labelnames else [metric]:  # noqa: SLF001 - as in _bounded
            one._metric_init()  # noqa: SLF001 - in place, so that series held by callers follow; tests pin it
