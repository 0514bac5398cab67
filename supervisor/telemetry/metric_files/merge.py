"""Adds up the metric files of all slots, and remembers between scrapes where each value lies.

prometheus-client's own merge reads and parses every key of every file at each scrape:
400 ms for 64 slots of 100 jobs. Files only grow, so here each key is parsed once and a
scrape reads only the numbers, straight from the mapped pages: 55 ms. The result is
the same, which a test checks against the client's merge. Gauges, whose merge has many
modes and whose files are small, are left to the client.

Guarantees
    A file that is empty, torn or foreign is passed over, and read again once it changed, also where one key of it is
    none of the client's. So is what is no regular file: a job may make a pipe there, and whoever opened it would wait
    for ever.
"""
# mypy: disable-error-code="no-untyped-call"
# The client's merge has no annotations.

from __future__ import annotations

import json
import mmap
import struct
from collections import defaultdict
from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_int32 = struct.Struct("i").unpack_from
_NO_GAUGE = (OSError, ValueError, TypeError, AttributeError, RuntimeError, IndexError, RecursionError, struct.error)
_KINDS = frozenset({"counter", "histogram", "summary"})  # what the name of a file that is read here begins with
Labels = tuple[tuple[str, str], ...]


class _Series(NamedTuple):
    """One line of the exposition before it is added up."""

    kind: str  # counter, histogram, summary: how its file's name begins
    metric: str
    name: str
    labels: Labels  # without ``le``
    bound: float | None  # ``le`` of a bucket
    help: str


class SlotFiles(Collector):
    """All files of one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._files: dict[str, _File] = {}
        self._series: list[_Series] = []
        self._ids: dict[tuple[str, bytes], int] = {}

    def collect(self) -> Iterable[Metric]:
        """Return the merged metrics by name."""
        found = {}
        gauges = []
        for path in self.directory.glob("*.db"):
            if path.is_symlink() or not path.is_file():
                continue
            if path.name.startswith("gauge_"):
                gauges.append(path)
            elif path.name.partition("_")[0] in _KINDS:
                found[path.name] = self._files.get(path.name) or _File(path)
        self._files = found
        merged = [*self._metrics(self._totals()), *_merge_gauges(gauges)]
        return sorted((metric for metric in merged if metric.samples), key=lambda metric: metric.name)

    def series_id(self, kind: str, key: bytes) -> int:
        """Return the number of a series; raise ValueError or the like when the key is none."""
        known = self._ids.get((kind, key))
        if known is None:
            metric, name, labels, text = json.loads(key)
            if not all(isinstance(each, str) for each in (metric, name, text, *labels, *labels.values())):
                raise ValueError("a key that the client does not write")
            bound = labels.pop("le", None) if kind == "histogram" else None
            pairs = tuple(sorted(labels.items()))
            self._series.append(_Series(kind, metric, name, pairs, None if bound is None else float(bound), text))
            known = self._ids[kind, key] = len(self._series) - 1
        return known

    def _totals(self) -> dict[int, float]:
        totals: defaultdict[int, float] = defaultdict(float)
        for file in self._files.values():
            for number, value in file.values(self):
                totals[number] += value
        return totals

    def _metrics(self, totals: dict[int, float]) -> list[Metric]:
        metrics: dict[str, Metric] = {}
        buckets: defaultdict[tuple[str, Labels], list[tuple[float, float]]] = defaultdict(list)
        for number, total in totals.items():
            series = self._series[number]
            metric = metrics.get(series.metric)
            if metric is None:
                metric = metrics[series.metric] = Metric(series.metric, series.help, series.kind)
            if series.bound is None:
                metric.add_sample(series.name, dict(series.labels), total)
            else:
                buckets[series.metric, series.labels].append((series.bound, total))
        for (name, labels), counts in buckets.items():
            metric, so_far = metrics[name], 0.0
            for bound, count in sorted(counts):
                so_far += count
                metric.add_sample(f"{name}_bucket", dict([*labels, ("le", floatToGoString(bound))]), so_far)
            metric.add_sample(f"{name}_count", dict(labels), so_far)
        return list(metrics.values())


class _File:
    """One mapped file: 4 bytes of length used, 4 of padding, then entries (see mmap_dict in the client)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kind = path.name.partition("_")[0]
        self._forget()

    def _forget(self) -> None:
        self._identity: tuple[int, int] = (0, 0)
        self._memory: Any = b""
        self._doubles: Any = ()
        self._parsed = 8
        self._ids: list[int] = []
        self._places: list[int] = []

    def values(self, owner: SlotFiles) -> Iterable[tuple[int, float]]:
        """Return (series, value) of every entry; nothing when the file cannot be read."""
        try:
            self._map()
            used = _int32(self._memory, 0)[0]
            if used > len(self._memory):
                self._map()  # its writer made it longer after we looked, and before it said so
            if used > self._parsed:
                self._parse(used, owner)
            if not self._places:
                return ()
            read = itemgetter(*self._places)(self._doubles)
        except (OSError, ValueError, TypeError, AttributeError, IndexError, RecursionError, struct.error):
            self._forget()  # gone, or not what the client writes; next time it is looked at afresh
            return ()
        return zip(self._ids, read if len(self._places) > 1 else (read,), strict=True)

    def _map(self) -> None:
        """Map the file if it is new, was replaced or has grown."""
        status = self._path.stat()
        identity = (status.st_ino, status.st_size)
        if identity == self._identity:
            return
        if status.st_ino != self._identity[0] or status.st_size < self._identity[1]:
            self._forget()
        with self._path.open("rb") as file:
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._doubles = memoryview(self._memory)[: len(self._memory) // 8 * 8].cast("d")
        self._identity = identity

    def _parse(self, used: int, owner: SlotFiles) -> None:
        """Take in the entries that were added since. Written whole before ``used`` grows, so none is half there."""
        position, memory = self._parsed, self._memory
        while position < used:
            length = _int32(memory, position)[0]
            value_at = position + 4 + length + (8 - (length + 4) % 8)
            if length <= 0 or value_at + 16 > used:
                raise ValueError("an entry that reaches beyond the part in use")
            self._ids.append(owner.series_id(self._kind, memory[position + 4 : position + 4 + length]))
            self._places.append(value_at // 8)
            position = self._parsed = value_at + 16


def _merge_gauges(paths: list[Path]) -> Iterable[Metric]:
    files = [str(path) for path in paths]
    try:
        return _gauges(files)
    except _NO_GAUGE:
        return _gauges([file for file in files if _is_sound_gauge(file)])


def _is_sound_gauge(file: str) -> bool:
    try:
        _gauges([file])
    except _NO_GAUGE:
        return False
    return True


def _gauges(files: list[str]) -> list[Metric]:
    found = list(MultiProcessCollector.merge(files))
    for metric in found:
        texts = (each for sample in metric.samples for each in (sample.name, *sample.labels, *sample.labels.values()))
        if not all(isinstance(each, str) for each in (metric.name, metric.documentation, *texts)):
            raise ValueError("a key that the client does not write")
    return found
