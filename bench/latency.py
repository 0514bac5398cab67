"""How long a run waits for an idle worker."""

from __future__ import annotations

from pathlib import Path

from supervisor.clock import SystemClock
from supervisor.core.model import Envelope, Kind, Template
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from tests.e2e.pairs import make_pair
from tests.e2e.servers import Server
from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until


def measure(directory: Path) -> float:
    """Return the seconds from before the enqueue to the start of the attempt, both on this machine's wall clock."""
    directory.mkdir(parents=True)
    server = Server(directory)
    trees: list[Tree] = []
    pair = make_pair(trees, directory, server)
    try:
        queues = Queues(Keys("e2e"))
        clock_ms = SystemClock().wall_ms
        asked_ms = clock_ms()
        template = Template(job="e2e.tick", kind=Kind.ASYNC)
        pair.store.run(queues.enqueue(nonce="bench", envelopes=[Envelope(id="bench", template=template)]))

        def started_ms() -> int | None:
            return next(
                (each.started_ms for each in pair.store.run(queues.recent("default", 20)) if each.run_id == "bench"),
                None,
            )

        return (wait_until(started_ms, what="the run") - asked_ms) / 1000
    finally:
        pair.store.close()
        for tree in trees:
            tree.close()
        server.kill()
