"""Takes task messages out of the lists of SpaceONE into our queues: docs/cloudforet-services.md.

Guarantees
    Every agent of the cluster may do it at once: a message is moved in one step, by whoever comes first.
    One run moves at most ``CALLS_MAX * INGEST_MAX`` messages of a queue, so that beats are not kept waiting.

Does not guarantee
    Anything of a message before it is moved: until then it lies where SpaceONE left it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass
from typing import Any

from supervisor.clock import Clock
from supervisor.core.effects import Call, Reporter
from supervisor.core.errors import StoreRefusedError
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Template
from supervisor.core.units import MILLISECOND_NS
from supervisor.store.queues.bridges import INGEST_MAX, Bridges
from supervisor.telemetry import metrics

RUN_JOB, REFUSED_JOB = "cloudforet.stp", "cloudforet.refused"
PERIOD_NS = 500 * MILLISECOND_NS
REFUSED_PERIOD_NS = 30_000 * MILLISECOND_NS  # a key of another type, or no right to it: somebody has to act
CALLS_MAX = 5


@dataclass(eq=False, kw_only=True)
class Ingest:
    """The lists that this agent empties."""

    call: Callable[[Call[Any]], Any]
    bridges: Bridges
    channels: InitVar[Mapping[str, str]]
    registry: Registry
    clock: Clock
    report: Reporter

    name = "ingest"
    period_ns = PERIOD_NS

    def __post_init__(self, channels: Mapping[str, str]) -> None:
        self._channels = dict(channels)
        self._refused_until_ns: dict[str, int] = {}

    def run(self, now_ns: int) -> None:
        """Move the messages of each list."""
        for queue, channel in self._channels.items():
            if now_ns < self._refused_until_ns.get(queue, 0):
                continue
            try:
                self._drain(queue, channel)
            except StoreRefusedError as error:
                self._refused_until_ns[queue] = now_ns + REFUSED_PERIOD_NS
                self.report("ingest_refused", queue=queue, channel=channel, error=str(error))

    def _drain(self, queue: str, channel: str) -> None:
        run, refused = self._template(RUN_JOB), self._template(REFUSED_JOB)
        for _ in range(CALLS_MAX):
            now_ms = self.clock.wall_ms()
            found = self.call(
                self.bridges.ingest(
                    channel=channel, queue=queue, run=run, refused=refused, now_ms=now_ms, most=INGEST_MAX
                )
            )
            if found.moved:
                metrics.ENQUEUED.labels(queue, RUN_JOB).inc(found.moved)
                metrics.CLOUDFORET_INGESTED.labels(queue, "moved").inc(found.moved - found.set_aside)
            if found.set_aside:
                metrics.CLOUDFORET_INGESTED.labels(queue, "set_aside").inc(found.set_aside)
                self.report("messages_set_aside", queue=queue, channel=channel, count=found.set_aside)
            if not found.left:
                return

    def _template(self, job: str) -> Template:
        return self.registry.get(job).base
