"""Two replicas on one server: what most end-to-end tests and benchmarks start from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from supervisor.core.model import Envelope, Kind, Template
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import Leases
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from tests.e2e.history import History, read_history
from tests.e2e.servers import Server
from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until

PERIOD_MS = 500

JOBS = """
import os
import time
from pathlib import Path

from tenure import Context, job


@job("e2e.tick")
async def tick() -> None:
    pass


@job("e2e.slow", timeout=60)
def slow(path: str, seconds: float, ctx: Context) -> None:
    with Path(path).open("a") as file:
        file.write(f"start {ctx.run_id} {ctx.fence} {os.getpid()}\\n")
    time.sleep(seconds)
    with Path(path).open("a") as file:
        file.write(f"end {ctx.run_id}\\n")
"""

ELECTION = "{lease_duration: 6s, renew_period: 400ms, renew_timeout: 400ms}"
"""A lease that a busy machine does not end: tests count terms."""
RENEWALS = 18  # take longer than that lease

CONFIG = """
version: 1
cluster: e2e
web: {{port: 0}}
log: {{format: json}}
election: {election}
queues: {{session_lease: 6s, beat_period: 500ms}}
supervision: {{grace: 20s}}
workers:
  io: {{kind: async, queues: [default]}}
  cpu: {{kind: sync, processes: 1, queues: [default]}}
jobs: [e2e_jobs]
redis: {{url: "{url}"}}
schedules:
  tick: {{job: e2e.tick, every: {period}ms, overlap: allow}}
"""


class Pair:
    """Two replicas, of which one leads."""

    def __init__(self, start: Callable[..., Tree], directory: Path, url: str, store: Store) -> None:
        (directory / "e2e_jobs.py").write_text(JOBS)
        (directory / "tenure.yaml").write_text(CONFIG.format(url=url, period=PERIOD_MS, election=ELECTION))
        self.directory = directory
        self.store = store
        self.start = start
        self.trees = [self.start_one(name) for name in ("one", "two")]
        for tree in self.trees:
            tree.wait_for("tree_ready")
        self.wait_for_fires(2)

    def start_one(self, name: str) -> Tree:
        """Start a replica by name, with a data directory of its own."""
        return self.start(name, "--config", "tenure.yaml", "--set", f"replica={name}", "--data-dir", f"data-{name}")

    def leader(self) -> Tree | None:
        """Return the tree that holds the lease."""
        holder = self.store.run(Leases(Keys("e2e")).view()).holder
        return next((tree for tree in self.trees if holder.startswith(f"{tree.name}.")), None)

    def roles(self) -> tuple[Tree, Tree]:
        """Return leader and standby."""
        leader = wait_until(self.leader, what="a leader")
        return leader, next(tree for tree in self.trees if tree is not leader)

    def history(self) -> History:
        """Return what is remembered of the tick."""
        return read_history(self.store, cluster="e2e", schedule="tick", period_ms=PERIOD_MS, queue="default")

    def wait_for_fires(self, more: int) -> None:
        """Return once so many more fires were accepted."""
        before = len(self.history().fired)
        wait_until(lambda: len(self.history().fired) >= before + more, what=f"{more} more fires")

    def prove(self) -> None:
        """Fail unless everything was enqueued exactly once and is being finished."""
        self.wait_for_fires(4)
        before = self.history()
        wait_until(lambda: not (before.unfinished() & self.history().unfinished()), what="every run to complete")
        self.history().prove()
        assert self.store.run(Queues(Keys("e2e")).fsck("default")) == []

    def enqueue_slow(self, seconds: float) -> Path:
        """Enqueue one slow run and return the file that it writes once it has begun."""
        path = self.directory / "slow.txt"
        template = Template(job="e2e.slow", kind=Kind.SYNC, args={"path": str(path), "seconds": seconds}, timeout_s=60)
        self.store.run(Queues(Keys("e2e")).enqueue(nonce="slow", envelopes=[Envelope(id="slow", template=template)]))
        wait_until(lambda: path.exists() and "\n" in path.read_text(), what="the slow run to begin")
        return path


def make_pair(trees: list[Tree], directory: Path, server: Server) -> Pair:
    """Start a pair outside of a test; the caller closes ``trees``, the pair's store and the server."""

    def start(name: str, *arguments: str) -> Tree:
        trees.append(Tree(directory, name, *arguments))
        return trees[-1]

    store = Store.connect(server.url, settings=RedisSettings(), name="pair", timeout_s=20)
    return Pair(start, directory, server.url, store)
