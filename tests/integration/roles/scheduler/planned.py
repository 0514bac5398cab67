"""One leader in a driven world, with the real scripts: what becomes of schedules, second by second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from supervisor.core.model import Kind, Outcome, ScheduleDef, Template
from supervisor.roles.agent.election.context import ElectionTiming
from supervisor.settings.sections.models import ElectionSettings
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.schedules.control import Control
from supervisor.store.schedules.definitions import Change, Definitions
from supervisor.store.schedules.fire import Schedules
from supervisor.store.schedules.reads import ScheduleState, Views, change_of
from supervisor.store.wire.fire import FireCode
from supervisor.store.wire.poll import Ack
from supervisor.testing.replica import PATIENT, Replica
from supervisor.testing.server import Server, driven_time
from supervisor.testing.world import EPOCH_MS, Network, ReplicaClock, World
from tests.kit.pace import limit_pace

S = 1_000_000_000
SESSION = "w/worker-0/1"
TEMPLATE = Template(job="demo.job", kind=Kind.SYNC)
FOR_HOURS: Any = {"lease_s": 60.0, **PATIENT}
"""Options of a world that lives for hours: a renewal and a look at the plan in each second cost ten times as much."""


def every(seconds: float, schedule_id: str = "s", **fields: Any) -> ScheduleDef:
    """Return a schedule on the grid of ``seconds``."""
    return ScheduleDef(**{"id": schedule_id, "template": TEMPLATE, "every_ms": round(seconds * 1000)} | fields)


class Planned:
    """The world, its leader, and a worker that does what the test says."""

    def __init__(
        self, *definitions: ScheduleDef, lease_s: float = 5.0, network: Network | None = None, **options: Any
    ) -> None:
        self.world = World(Server(Keys("plan")), seed=1, network=network)
        limit_pace(self.world)
        self.server = self.world.server
        self.keys = self.server.keys
        self.exits = ExitStack()
        self.exits.enter_context(driven_time(self.world.server_time_s))
        self.queues, self.sessions = Queues(self.keys), Sessions(self.keys)
        self.control, self.schedules = Control(self.keys), Schedules(self.keys)
        self.clock = ReplicaClock(self.world)
        timing = ElectionTiming.of(
            ElectionSettings(lease_duration_s=lease_s, renew_period_s=lease_s / 5, renew_timeout_s=0.15 * lease_s)
        )
        self.leader = Replica(
            self.world, self.keys, "r1", timing=timing, definitions=definitions, clock=self.clock, **options
        )
        self.seq = 0
        self.began: dict[str, int] = {}  # when each run was fetched
        self.leader.start()
        self.advance(0.5)

    def run(self, call: Any) -> Any:
        return self.server.store.run(call)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.world.run_until(self.world.now_ns + round(seconds * S))

    def until(self, second: float) -> None:
        """Let time pass until ``second`` of the world."""
        self.world.run_until(round(second * S))

    def replace_scheduler_after(self, calls: int) -> None:
        """Kill the leader's scheduler behind so many further calls to Redis, and start another 0.2 s later."""
        left = calls

        def count() -> None:
            nonlocal left
            left -= 1
            if left == -1:
                self.leader.kill_scheduler()
                self.world.after(S // 5, self.leader.start_scheduler)

        self.world.on_executed.append(count)

    def upsert(self, *definitions: ScheduleDef) -> None:
        """Create or change dynamic schedules."""
        changes = [Change(definition=definition) for definition in definitions]
        self.run(Definitions(self.keys).upsert(changes, wall_ms=self.clock.wall_ms()))
        self.world.executed()
        self.advance(0.1)

    def edit(self, definition: ScheduleDef) -> None:
        """Change a schedule as an application or the API does, after a look at what is there."""
        (seen,) = self.run(Views(self.keys).inspect([definition.id]))
        change, _ = change_of(seen.record, definition, now_ms=seen.now_ms)
        self.run(Definitions(self.keys).upsert([change], wall_ms=self.clock.wall_ms()))
        self.world.executed()
        self.advance(0.1)

    def decided(self, schedule: str = "s") -> list[tuple[str, float]]:
        """Return (code, nominal second) of every decision, in order."""
        return [
            (entry.code.value, (entry.nominal_ms - EPOCH_MS) / 1000)
            for entry in self.server.decisions
            if entry.schedule == schedule
        ]

    def fired(self, schedule: str = "s") -> list[float]:
        """Return the nominal seconds of the runs that were enqueued, in order."""
        return [second for code, second in self.decided(schedule) if code == FireCode.FIRED.value]

    def state(self, schedule: str = "s") -> ScheduleState:
        """Return what is remembered of the decisions."""
        return self.run(self.schedules.state(schedule))

    def fetch(self) -> list[str]:
        """Take what is ready; return the ids of the runs."""
        return [run.envelope.id for run in self._turn(want=50).runs]

    def finish(self, *run_ids: str, outcome: Outcome = Outcome.OK) -> None:
        """Fetch what is ready, and end ``run_ids``, or all that was fetched."""
        self.end(*(run_ids or self.fetch()), outcome=outcome)

    def end(self, *run_ids: str, outcome: Outcome = Outcome.OK) -> list[str]:
        """End runs that were fetched; return those that this worker does not own any more."""
        acks = [
            Ack(run_id=run_id, queue="default", attempt=1, outcome=outcome, schedule=run_id.split("@")[0].split("!")[0])
            for run_id in run_ids
        ]
        stale = self._turn(acks=acks).stale
        self.world.executed()
        self.advance(0.1)
        return stale

    def _turn(self, **arguments: Any) -> Any:
        self.run(self.sessions.open(SESSION, {}))
        acks = [
            msgspec.structs.replace(ack, fetched_ms=self.began.get(ack.run_id, 0)) for ack in arguments.get("acks", [])
        ]
        self.seq += 1
        defaults = {"kind": Kind.SYNC, "queues": ["default"], "want": 0, "want_suspect": False, "acks": []}
        reply = self.run(self.queues.turn(session=SESSION, seq=self.seq, **defaults | arguments | {"acks": acks}))
        self.began |= {run.envelope.id: run.fetched_ms for run in reply.runs}
        return reply


@contextmanager
def planned(*definitions: ScheduleDef, **options: Any) -> Iterator[Planned]:
    """Give a world to a test, and take it back."""
    made = Planned(*definitions, **options)
    try:
        yield made
    finally:
        made.exits.close()
