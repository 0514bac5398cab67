"""Replicas for a benchmark: whole trees on a durable server, and when they fired, by the server's clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.counting import CountingProxy
from supervisor.clock import SystemClock
from supervisor.core.errors import TenureError
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import Leases, LeaseView
from supervisor.store.keys import Keys
from supervisor.store.schedules.fire import LogEntry, Schedules
from supervisor.store.wire.fire import FireCode
from tests.e2e.clusters import family
from tests.e2e.servers import Server
from tests.e2e.trees import Tree, end_all
from tests.kit.waiting import wait_until

CLUSTER = "bench"
LOG_COUNT = 300
PERIODS_MS = (100, 110, 130, 170, 190, 230, 290, 310)  # together something is due about every 20 ms
DEFAULT = "{lease_duration: 5s, renew_period: 1s, renew_timeout: 750ms"
FAST = "{lease_duration: 2s, renew_period: 400ms, renew_timeout: 400ms"
PRESENCE = ", presence: true"

JOBS = """
from tenure import job


@job("bench.tick")
async def tick() -> None:
    pass
"""
CONFIG = """
version: 1
cluster: {cluster}
web: {{port: 0}}
log: {{format: json}}
election: {election}}}
workers: {workers}
jobs: [bench_jobs]
redis: {{url: "{url}"}}
schedules:
{schedules}
"""
WORKERS = "{io: {kind: async, queues: [default]}}"
CLOCK = SystemClock()


class Bench:
    """Replicas, of which one leads."""

    def __init__(
        self,
        directory: Path,
        *,
        election: str,
        names: Sequence[str],
        workers: str = WORKERS,
        is_counted: bool = False,
    ) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.server = Server(directory)
        self.store = Store.connect(self.server.url, settings=RedisSettings(), name="bench", timeout_s=20)
        self.leases, self.schedules = Leases(Keys(CLUSTER)), Schedules(Keys(CLUSTER))
        ticks = "\n".join(f"  tick-{ms}: {{job: bench.tick, every: {ms}ms, overlap: allow}}" for ms in PERIODS_MS)
        (directory / "bench_jobs.py").write_text(JOBS)
        (directory / "tenure.yaml").write_text(
            CONFIG.format(cluster=CLUSTER, election=election, workers=workers, url=self.server.url, schedules=ticks)
        )
        self._starts = 0
        self.proxies: dict[str, CountingProxy] = {}
        if is_counted:
            socket = self.server.socket
            self.proxies = {name: CountingProxy(socket, directory / f"{name}.sock") for name in names}
        self.trees = [self._start(name) for name in names]
        for tree in self.trees:
            tree.wait_for("tree_ready")
        self.wait_for_standbys()

    def _start(self, name: str) -> Tree:
        self._starts += 1
        settings = ["--config", "tenure.yaml", "--set", f"replica={name}", "--data-dir", f"data-{self._starts}"]
        if name in self.proxies:
            settings += ["--set", f"redis.url={self.proxies[name].url}"]
        return Tree(self.directory, f"{name}-{self._starts}", *settings)

    def replace(self, tree: Tree) -> None:
        """Start a replica in the place of one that ended, and wait until it stands by."""
        tree.close()
        fresh = self._start(replica_of(tree))
        self.trees[self.trees.index(tree)] = fresh
        fresh.wait_for("tree_ready")
        self.wait_for_standbys()

    def stop(self, tree: Tree) -> None:
        """Stop a replica as a deploy does, and start one in its place."""
        tree.terminate()
        tree.wait()
        self.replace(tree)

    def wait_for_standbys(self) -> None:
        """Return once one leads and fires, and every other knows whom it stands by."""
        leader = wait_until(self.leader, what="a leader")
        for tree in self.trees:
            if tree is not leader:
                tree.wait_for("standby")
        begun_ms = CLOCK.wall_ms()
        wait_until(lambda: self.first_fire_ms(after_ms=begun_ms), what="fires")

    def view(self) -> LeaseView:
        """Return the lease."""
        return self.store.run(self.leases.view())

    def leader(self) -> Tree | None:
        """Return the tree that holds the lease."""
        try:
            holder = self.view().holder
        except TenureError:
            return None
        return next((tree for tree in self.trees if holder.startswith(f"{replica_of(tree)}.")), None)

    def roles(self) -> tuple[Tree, Tree]:
        """Return the leader and one that stands by."""
        leader: Tree = wait_until(self.leader, what="a leader")
        return leader, next(tree for tree in self.trees if tree is not leader)

    def fires(self) -> list[LogEntry]:
        """Return the newest fires, oldest first."""
        log = self.store.run(self.schedules.log(LOG_COUNT))
        return [each for each in reversed(log) if each.code is FireCode.FIRED]

    def first_fire_ms(self, *, after_ms: int, above_epoch: int = 0) -> int | None:
        """Return when, by the server's clock, the first fire was accepted after a moment or in a newer term."""
        try:
            fires = self.fires()
        except TenureError:
            return None
        return next((each.at_ms for each in fires if each.at_ms > after_ms and each.epoch > above_epoch), None)

    def close(self) -> None:
        """Leave nothing behind."""
        end_all(self.trees)
        self.store.close()
        for proxy in self.proxies.values():
            proxy.close()
        self.server.kill()


@contextmanager
def bench(
    directory: Path,
    *,
    election: str = FAST,
    names: Sequence[str] = ("one", "two"),
    workers: str = WORKERS,
    is_counted: bool = False,
) -> Iterator[Bench]:
    """Start replicas on a server of their own, and end them."""
    found = Bench(directory, election=election, names=names, workers=workers, is_counted=is_counted)
    try:
        yield found
    finally:
        found.close()


def replica_of(tree: Tree) -> str:
    """Return the name of the replica that a tree is one incarnation of."""
    return tree.name.partition("-")[0]


def suspend(tree: Tree, *, is_pause: bool) -> None:
    """Stop every process of a tree, as if its machine were gone: connections stay open and nobody answers."""
    processes = family(tree)
    for process in processes if is_pause else reversed(processes):
        (process.suspend if is_pause else process.resume)()
