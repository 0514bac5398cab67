"""The metrics that are worked out at each scrape: from the board, /proc, and one look at Redis."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from supervisor.core import features
from supervisor.core.model import PRIORITIES
from supervisor.core.supervision.health import HealthCheck, HealthEndpoint, role_of
from supervisor.core.supervision.states import SlotState
from supervisor.core.units import SECOND_NS
from supervisor.roles.child import ChildContext
from supervisor.roles.web.cluster_snapshot import Overview
from supervisor.settings.schedules.calendars import ends_of
from supervisor.telemetry import metrics
from supervisor.telemetry.metrics import Computed
from supervisor.version import __version__

_PRIORITY_NAMES = {number: name for name, number in PRIORITIES.items()}
Rows = Iterable[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True, eq=False)  # a registry keeps collectors by identity
class Scrape(Collector):
    """Everything computed for one scrape."""

    child: ChildContext
    checks: Mapping[HealthEndpoint, Sequence[HealthCheck]]
    overview: Overview | None
    is_redis_up: bool

    def collect(self) -> Iterator[Metric]:
        """Yield the computed metrics."""
        yield from self._tree()
        yield from self._slots()
        yield from self._vitals()
        yield from self._redis()

    def _tree(self) -> Iterator[Metric]:
        board, now_ns = self.child.board, self.child.clock.elapsed_ns()
        term = board.term()
        trusted = term.is_trusted(now_ns)
        yield _family(metrics.IS_LEADER, [((), float(trusted))])
        yield _family(metrics.TERM_EPOCH, [((), float(term.epoch))])
        yield _family(metrics.TERM_TRUST, [((), (term.trusted_until_ns - now_ns) / SECOND_NS if trusted else 0.0)])
        yield _family(metrics.PROGRESS_AGE, list(self._progress_age(now_ns)) if term.epoch else [])
        yield _family(metrics.CLOCK_SKEW, [((), board.header.clock_skew_ms / 1000)])
        yield _family(metrics.UPTIME, [((), max(0, now_ns - board.header.started_ns) / SECOND_NS)])
        yield _family(metrics.BUILD_INFO, [((__version__, platform.python_version()), 1.0)])
        header = board.header
        yield _family(metrics.CONFIG_EPOCH, [((), float(header.config_epoch))])
        yield _family(metrics.CONFIG_LAST_RELOAD_SUCCESSFUL, [((), float(not header.is_reload_refused))])
        yield _family(metrics.CONFIG_LAST_RELOAD, [((), header.reloaded_ms / 1000)])
        ends = [((name,), end_s) for name, end_s in ends_of(self.child.settings.calendars)]
        yield _family(metrics.CALENDAR_END, ends)
        yield _family(metrics.DEPRECATED_SETTINGS, [((), float(self.child.settings.deprecated))])
        states = features.resolve(self.child.settings.features)
        gates = [((gate.name, gate.stage.value), float(states[gate.name])) for gate in features.GATES]
        yield _family(metrics.FEATURE_ENABLED, gates)
        for_each = ((check, endpoint) for endpoint, checks in self.checks.items() for check in checks)
        health = [((check.name, endpoint.title), float(check.ok)) for check, endpoint in for_each]
        yield _family(metrics.HEALTH, health)

    def _progress_age(self, now_ns: int) -> Rows:
        for name, row in zip(self.child.slot_names, self.child.board.rows, strict=False):
            if name == "scheduler" and row.beat_ns:
                yield (), max(0, now_ns - row.beat_ns) / SECOND_NS

    def _slots(self) -> Iterator[Metric]:
        now_ns = self.child.clock.elapsed_ns()
        named = zip(self.child.slot_names, self.child.board.rows, strict=False)
        rows = [(name, row) for name, row in named if row.is_used or row.generation]  # not those never used
        alive = [(name, row) for name, row in rows if SlotState(row.state).has_process]
        yield _family(metrics.SLOT_STATE, [((name, role_of(name)[0]), row.state) for name, row in rows])
        yield _family(metrics.SLOT_RESTARTS, [((name,), row.restarts) for name, row in rows])
        ages = [((name,), max(0, now_ns - row.beat_ns) / SECOND_NS) for name, row in alive if row.beat_ns]
        yield _family(metrics.SLOT_BEAT_AGE, ages)
        busy = dict.fromkeys(self.child.settings.workers, 0)
        for name, row in alive:
            pool = role_of(name)[1]
            if pool is not None:
                busy[pool] = busy.get(pool, 0) + row.busy
        yield _family(metrics.WORKERS_BUSY, [((pool,), count) for pool, count in busy.items()])
        workers = [(name, row.asking_ns) for name, row in alive if role_of(name)[0] == "worker"]
        cut_off = [
            ((name,), max(0, now_ns - asking_ns) / SECOND_NS if asking_ns else 0.0) for name, asking_ns in workers
        ]
        yield _family(metrics.WORKER_CUT_OFF, cut_off)

    def _vitals(self) -> Iterator[Metric]:
        board = self.child.board
        pids = {"supervisor": board.header.parent_pid}
        for name, row in zip(self.child.slot_names, board.rows, strict=False):
            if SlotState(row.state).has_process:
                pids[name] = row.pid
        known = {name: vitals for name, pid in pids.items() if pid and (vitals := read_vitals(pid)) is not None}
        yield _family(metrics.SLOT_CPU, [((name,), vitals.cpu_s) for name, vitals in known.items()])
        yield _family(metrics.SLOT_RSS, [((name,), vitals.rss_bytes) for name, vitals in known.items()])
        fds = [((name,), vitals.fds) for name, vitals in known.items() if vitals.fds is not None]
        yield _family(metrics.SLOT_FDS, fds)

    def _redis(self) -> Iterator[Metric]:
        yield _family(metrics.REDIS_UP, [((), float(self.is_redis_up))])
        queues = self.overview.queues if self.overview is not None else ()
        ready = [
            ((depth.queue, kind.value, _PRIORITY_NAMES[priority]), count)
            for depth in queues
            for (kind, priority), count in depth.ready.items()
        ]
        yield _family(metrics.QUEUE_READY, ready)
        unserved = self.overview.unserved if self.overview is not None else ()
        waiting = [((queue, kind.value), float(count)) for queue, kind, count in unserved]
        yield _family(metrics.QUEUE_UNSERVED, waiting)
        yield _family(metrics.QUEUE_RUNNING, [((depth.queue,), depth.running) for depth in queues])
        yield _family(metrics.QUEUE_LATER, [((depth.queue,), depth.later) for depth in queues])
        yield _family(metrics.QUEUE_BLOCKED, [((depth.queue,), depth.blocked) for depth in queues])
        yield _family(metrics.QUEUE_DEAD, [((depth.queue,), depth.dead) for depth in queues])
        yield _family(metrics.QUEUE_PAUSED, [((depth.queue,), float(depth.paused is not None)) for depth in queues])


def _family(metric: Computed, rows: Rows) -> Metric:
    family = (
        CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
        if metric.kind == "counter"
        else GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    )
    for labels, value in rows:
        family.add_metric(list(labels), value)
    return family


_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Vitals:
    """One process at one moment."""

    cpu_s: float
    rss_bytes: int
    fds: int | None  # None: not ours to count


def read_vitals(pid: int) -> Vitals | None:
    """Return the vitals of ``pid``, or None when there is no such process."""
    directory = Path("/proc") / str(pid)
    try:
        stat = (directory / "stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may hold anything
    try:
        fds = sum(1 for _ in (directory / "fd").iterdir())
    except OSError:
        fds = None
    # Counted from field 3 of proc(5): utime is 14, stime 15, rss 24.
    return Vitals((int(fields[11]) + int(fields[12])) / _TICKS, int(fields[21]) * _PAGE, fds)
