"""Two replicas on one Redis: whatever dies, schedules go on and nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from supervisor.core.model import Envelope, Kind, Template
from supervisor.store.client import Store
from supervisor.store.keys import Keys
from supervisor.store.leases import Leases
from supervisor.store.queues import Queues
from tests.e2e.history import History, read_history
from tests.e2e.servers import Server
from tests.e2e.trees import Tree, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
PERIOD_MS = 500

JOBS = """
import os
import time
from pathlib import Path

from supervisor import Context, job


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

CONFIG = """
version: 1
cluster: e2e
web: {{port: 0}}
log: {{format: json}}
election: {{lease_duration: 2s, renew_period: 400ms, renew_timeout: 400ms}}
queues: {{session_lease: 3s, beat_period: 500ms}}
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
        (directory / "tenure.yaml").write_text(CONFIG.format(url=url, period=PERIOD_MS))
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
        wait_until(path.exists, what="the slow run to begin")
        return path


@pytest.fixture
def pair(start: Callable[..., Tree], short_directory: Path, redis_url: str, store: Store) -> Pair:
    """Two replicas, electing and firing."""
    return Pair(start, short_directory, redis_url, store)


@pytest.mark.parametrize("slot", ["scheduler", "agent", "worker-io-0", "web"])
def test_a_killed_child_of_the_leader_is_replaced_and_nothing_is_lost(pair: Pair, slot: str) -> None:
    """Each role has a way to die; none of them may cost a fire or a run."""
    leader, _ = pair.roles()
    leader.kill(slot)

    wait_until(lambda: sum(each["slot"] == slot for each in leader.events("child_ready")) >= 2, what=f"a new {slot}")
    pair.prove()
    assert leader.process.poll() is None


def test_a_killed_leader_is_succeeded_and_nothing_outlives_it(pair: Pair) -> None:
    """After kill -9 of the parent its children go with it, the standby leads, schedules go on."""
    leader, standby = pair.roles()
    family = leader.descendants()
    assert family
    leader.kill()

    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    wait_until(lambda: pair.leader() is standby, what="the standby to lead")
    pair.prove()


def test_a_run_whose_worker_is_killed_runs_again(pair: Pair) -> None:
    """The run goes back as soon as the worker is reaped, and completes once on record."""
    path = pair.enqueue_slow(3.0)
    pid = int(path.read_text().split()[3])
    os.kill(pid, signal.SIGKILL)

    wait_until(lambda: "end slow" in path.read_text(), what="the second attempt to end")
    assert path.read_text().count("start slow") == 2
    wait_until(
        lambda: (
            [
                each.outcome
                for each in pair.store.run(Queues(Keys("e2e")).recent("default", 1000))
                if each.run_id == "slow"
            ].count("ok")
            == 1
        ),
        what="its completion on record",
    )
    pair.prove()


def test_a_drained_leader_hands_over_and_finishes_its_run(pair: Pair) -> None:
    """SIGTERM during a 5 s run: the other leads at once, the run finishes, exit 0."""
    path = pair.enqueue_slow(5.0)
    worker = int(path.read_text().split()[3])
    tree = next(each for each in pair.trees if each.slot_pid("worker-cpu-0") == worker)
    other = next(each for each in pair.trees if each is not tree)
    tree.terminate()

    wait_until(lambda: pair.leader() is other, what="the other replica to lead")
    assert "end slow" not in path.read_text(), "the hand-over waited for the run"
    assert tree.wait() == 0
    assert path.read_text().count("start slow") == 1
    assert "end slow" in path.read_text()
    pair.prove()


def test_a_second_sigterm_ends_everything_at_once(pair: Pair) -> None:
    """The operator means it: exit 1, nobody left, and the interrupted run goes to another worker."""
    path = pair.enqueue_slow(5.0)
    worker = int(path.read_text().split()[3])
    tree = next(each for each in pair.trees if each.slot_pid("worker-cpu-0") == worker)
    family = tree.descendants()
    tree.terminate()
    tree.wait_for("stop_stage", stage="draining")
    wait_until(
        lambda: tree.process.poll() is not None or tree.terminate() is not None,  # debounced: only a later one counts
        what="the second signal to end it",
        bound_s=15,
    )

    assert tree.wait() == 1
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    wait_until(lambda: "end slow" in path.read_text(), what="the run to end elsewhere")
    pair.prove()


def test_a_rolling_restart_loses_no_fire(pair: Pair) -> None:
    """What every deploy does: one replica after the other is stopped and started."""
    for tree in list(pair.trees):
        tree.terminate()
        assert tree.wait() == 0
        fresh = pair.start_one(f"{tree.name}-b")
        pair.trees[pair.trees.index(tree)] = fresh
        fresh.wait_for("tree_ready")
    wait_until(pair.leader, what="a leader")
    pair.prove()


def test_an_outage_of_redis_loses_no_fire_and_restarts_nobody(pair: Pair, server: Server) -> None:
    """Killed, and back with its data: the same processes go on where they stopped."""
    server.kill()
    for tree in pair.trees:
        wait_until(lambda tree=tree: tree.get("/readyz")[0] == 503, what=f"{tree.name} to be unready")
        assert tree.get("/livez")[0] == 200
    server.start()

    wait_until(pair.leader, what="a leader")
    pair.prove()
    for tree in pair.trees:
        wait_until(lambda tree=tree: tree.get("/readyz")[0] == 200, what=f"{tree.name} to be ready")
        assert {each["generation"] for each in tree.events("child_started")} == {1}


def test_a_paused_leader_cannot_fire_after_another_was_elected(pair: Pair) -> None:
    """Every process of it stands still for longer than its lease, wakes up, and writes what it still believes."""
    leader, standby = pair.roles()
    family = [psutil.Process(leader.pid), *leader.descendants()]
    for process in family:
        process.suspend()
    wait_until(lambda: pair.leader() is standby, what="the standby to lead")
    pair.wait_for_fires(2)
    for process in reversed(family):
        process.resume()

    pair.prove()
    assert leader.process.poll() is None
