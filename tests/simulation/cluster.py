"""Some replicas in one world of the simulation, and what they decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.roles.agent.election.context import ElectionTiming
from supervisor.settings.sections.models import ElectionSettings
from supervisor.store.election.leases import Leases
from supervisor.store.keys import Keys
from supervisor.store.wire.fire import FireCode
from supervisor.testing.replica import Replica
from supervisor.testing.server import Server, driven_time
from supervisor.testing.world import ReplicaClock, S, World
from tests.kit.pace import limit_pace

TEMPLATE = Template(job="sim.job", kind=Kind.SYNC)
EACH = ScheduleDef(id="each", template=TEMPLATE, every_ms=1000, overlap="allow", missed="all")
LATEST = ScheduleDef(id="latest", template=TEMPLATE, every_ms=10_000, overlap="allow")
RARE = ScheduleDef(id="rare", template=TEMPLATE, every_ms=60_000, overlap="allow")
MOMENTS = ["", "leader_acquired", "call", "due_times_lost"]
"""Of a second loss of all data: none, at a grant, half a millisecond later, once watermarks are back."""


class Replicas:
    """Some replicas of one world, of which one leads."""

    def __init__(self, world: World, count: int, *definitions: ScheduleDef) -> None:
        self.world = world
        self.replicas = [
            Replica(
                world,
                world.server.keys,
                f"r{number}",
                timing=ElectionTiming.of(ElectionSettings()),
                definitions=definitions,
                clock=ReplicaClock(world),
            )
            for number in range(count)
        ]

    def pass_s(self, seconds: float) -> None:
        self.world.run_until(self.world.now_ns + int(seconds * S))

    @property
    def leader(self) -> Replica:
        (leader,) = [replica for replica in self.replicas if replica.is_leading]
        return leader


class Cluster(Replicas):
    """Replicas with the schedules above, and what they decided."""

    def __init__(self, count: int, *more: ScheduleDef) -> None:
        super().__init__(World(Server(Keys("marks")), seed=1), count, EACH, LATEST, RARE, *more)
        self.server = self.world.server
        limit_pace(self.world)

    def resign(self) -> Replica:
        """Let another replica lead, as the same process; return it."""
        former = self.leader
        leases = Leases(self.server.keys)
        self.server.execute(leases.request_resign(epoch=former.board.term().epoch, to="", by="test"))
        self.pass_s(3)
        assert self.leader is not former
        return self.leader

    def repeated(self) -> dict[tuple[str, int], int]:
        fired = Counter((d.schedule, d.nominal_ms) for d in self.server.decisions if d.code is FireCode.FIRED)
        return {key: count for key, count in fired.items() if count > 1}

    def decided(self, schedule: str) -> int:
        """How many due times were fired or counted as missed."""
        entries = [d for d in self.server.decisions if d.schedule == schedule]
        return sum((d.code is FireCode.FIRED) + d.missed for d in entries)

    def times(self, schedule: str) -> list[int]:
        return [d.nominal_ms for d in self.server.decisions if d.schedule == schedule]

    def due(self, schedule: str, step_ms: int = 1000) -> int:
        """How many due times it had, one each ``step_ms``, up to the last decision."""
        return (max(self.times(schedule)) - min(self.times(schedule))) // step_ms + 1

    def lose_again(self, moment: str) -> None:
        """Let the server be emptied once more, at the next of ``MOMENTS``."""
        tell, wait_ns = self.world.tell, S // 2000 if moment == "call" else 1

        def told(who: str, event: str, **fields: object) -> None:
            tell(who, event, **fields)
            if event == ("leader_acquired" if moment == "call" else moment):
                self.world.tell = tell  # type: ignore[method-assign]
                self.world.after(wait_ns, self.server.empty)

        self.world.tell = told  # type: ignore[method-assign]

    def run(self, schedule: str, nominal_ms: int | str) -> bytes:
        """The envelope of a run; empty: there is none."""
        name = f"{schedule}!initial" if nominal_ms == "initial" else f"{schedule}@{nominal_ms}"
        data: dict[bytes, bytes] = self.server.store.fields(f"{self.server.keys.prefix}q:default:data")
        return data.get(name.encode(), b"")

    def told(self, event: str) -> list[dict[str, object]]:
        return [told.fields for told in self.world.history if told.event == event]


@contextmanager
def cluster(count: int, *more: ScheduleDef, until: str = "") -> Iterator[Cluster]:
    """Give a cluster that led for three seconds, or one in which ``until`` was just told."""
    found = Cluster(count, *more)
    with driven_time(found.world.server_time_s):
        for replica in found.replicas:
            replica.start()
        while until and not found.told(until):
            found.pass_s(0.001)
        found.pass_s(0 if until else 3)
        yield found
