"""One cluster under a clock that the test drives, and an operator who acts on it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from supervisor.core.schedules.manual_runs import MANUAL, extra_run, manual_run_id
from supervisor.store.schedules.backfills import BackfillCalls
from supervisor.store.schedules.control import Control, TriggerCode
from supervisor.store.schedules.definitions import Change, DefineCode, Definitions
from supervisor.store.schedules.reads import Inspection, Views
from supervisor.testing.cluster import Cluster
from supervisor.testing.definitions import schedule_of

START = "2026-01-01T00:00:00+00:00"
EVERY_10S = {"job": "demo", "every": "10s", "overlap": "allow"}
definition_of = schedule_of


class ClusterOperator:
    """One cluster, and an operator who acts on it."""

    def __init__(
        self, *, replicas: int = 1, start: str = START, lease: str = "30s", **schedules: dict[str, Any]
    ) -> None:
        self.cluster = Cluster(replicas=replicas, schedules=schedules, lease=lease, start=start)
        self.cluster.advance(1)
        keys = self.cluster._world.server.keys
        self.control, self.definitions = Control(keys), Definitions(keys)
        self.views, self.backfills = Views(keys), BackfillCalls(keys)

    def run(self, call: Any) -> Any:
        """Run a call as another process would, and let whoever listens hear of it."""
        reply = self.cluster._world.server.execute(call)
        self.cluster._world.executed()
        return reply

    def show(self, name: str) -> Inspection:
        return self.run(self.views.inspect([name]))[0]

    def upsert(self, name: str, **fields: Any) -> DefineCode:
        change = Change(definition=schedule_of(name, {**EVERY_10S, **fields}))
        return self.run(self.definitions.upsert([change], wall_ms=self.now_ms)).results[0][0]

    def trigger(self, name: str, key: str) -> TriggerCode:
        record = self.show(name).record
        assert record is not None
        run_id, definition = manual_run_id(name, key), record.definition()
        run = extra_run(definition, run_id=run_id, nominal_ms=self.now_ms, cause=MANUAL, wall_ms=1)
        return self.run(self.control.trigger(run, revision=record.revision))

    def reload(self, replica: str = "r1", **schedules: dict[str, Any]) -> None:
        """Start a replica again with another configuration."""
        found = self.cluster._replicas[replica]
        found.definitions = tuple(schedule_of(name, entry) for name, entry in schedules.items())
        self.cluster.restart(replica)
        self.cluster.advance(35)

    def seconds(self, schedule: str | None = None, *, since: float = 0) -> list[float]:
        """The nominal times that fired, in seconds since the start, later than ``since``."""
        begin = datetime.fromisoformat(START)
        found = [(fired.nominal - begin).total_seconds() for fired in self.cluster.fired(schedule)]
        return [second for second in found if second > since]

    def queued(self) -> list[str]:
        """Every run that was enqueued and has not ended, in order."""
        prefix = self.cluster._world.server.keys.prefix
        return [
            each.decode() for each in self.cluster._world.server.store.raw.lrange(f"{prefix}q:default:ready:s:1", 0, -1)
        ]

    @property
    def now_ms(self) -> int:
        return round(self.cluster.now.timestamp() * 1000)

    @property
    def now_s(self) -> float:
        return (self.cluster.now - datetime.fromisoformat(START)).total_seconds()
