"""The one worker of a simulated world: it takes what is ready and ends it a moment later, so that overlaps end too."""

from __future__ import annotations

from supervisor.core.model import Kind
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.wire.poll import FetchedRun
from supervisor.testing.world import S, World
from tests.kit.builders import acknowledged

TURN_NS = 3 * S // 2
WANT = 50


class Worker:
    """Fetches, and acknowledges at its next turn. Its way to the server is always good: workers have tests of their own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._queues = Queues(world.server.keys)
        self._sessions = Sessions(world.server.keys)
        self._seq = 0
        self._running: list[FetchedRun] = []
        self.seen: set[str] = set()  # runs that it was given
        world.after(TURN_NS, self._turn)

    def _turn(self) -> None:
        self._world.after(TURN_NS, self._turn)
        server = self._world.server
        if not self._world.is_server_up:
            return
        queues = server.store.run(self._queues.names())
        if not queues:
            return
        server.store.run(self._sessions.open("sim/worker/1", {}))
        self._seq += 1
        acks = [acknowledged(run) for run in self._running]
        call = self._queues.turn(
            session="sim/worker/1",
            seq=self._seq,
            kind=Kind.SYNC,
            queues=queues,
            want=WANT,
            want_suspect=True,
            acks=acks,
        )
        self._running = server.store.run(call).runs
        self.seen |= {run.envelope.id for run in self._running}
        self._world.executed()
