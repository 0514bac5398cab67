"""Defects of the originals that no other test shows in the form in which they were measured (docs/origins.md, rows X).

Each starts whole trees, as somebody would who asks whether Tenure has the defect too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from supervisor.core.model import Envelope, Kind, Template
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from tests.e2e.servers import Server
from tests.e2e.trees import Tree
from tests.integration.jobs.processes import living
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

JOBS = """
from pathlib import Path

from tenure import Context, job


@job("x.tick")
async def tick() -> None:
    pass


@job("x.limited", concurrency=("collector:{collector}", 1))
async def limited(ctx: Context, *, collector: str, directory: str) -> None:
    import asyncio

    Path(directory, f"began-{ctx.run_id}").touch()
    while not Path(directory, "go").exists():
        await asyncio.sleep(0.02)
"""

CONFIG = """
version: 1
cluster: e2e
web: {{port: 0}}
log: {{format: json}}
election: {{lease_duration: 2s, renew_period: 400ms, renew_timeout: 400ms}}
workers: {{io: {{kind: async, processes: 1, concurrency: 2, queues: [default]}}}}
jobs: [x_jobs]
schedules: {{tick: {{job: x.tick, every: 500ms, overlap: allow}}}}
redis: {{url: "{url}"}}
"""


@pytest.fixture
def replica(start: Callable[..., Tree], short_directory: Path, redis_url: str) -> Callable[..., Tree]:
    """Start a replica by name."""
    (short_directory / "x_jobs.py").write_text(JOBS)
    (short_directory / "tenure.yaml").write_text(CONFIG.format(url=redis_url))

    def make(name: str, *arguments: str) -> Tree:
        return start(name, "--config", "tenure.yaml", "--set", f"replica={name}", "--data-dir", f"d-{name}", *arguments)

    return make


def ended(store: Store) -> Counter[str]:
    """Return how often each run ended well."""
    queues = Queues(Keys("e2e"))
    return Counter(each.run_id for each in store.run(queues.recent("default", 1000)) if each.outcome == "ok")


@pytest.mark.long
def test_two_replicas_fire_each_second_once(replica: Callable[..., Tree], store: Store) -> None:
    """X2: two schedulers of Cloudforet made 14 tasks of 7 seconds; here each due time is one run, on record once."""
    for tree in [replica("one"), replica("two")]:
        tree.wait_for("tree_ready")
    wait_until(lambda: len(ended(store)) >= 8, what="eight runs of the schedule")

    ticks = ended(store)
    nominal_ms = sorted(int(run_id.partition("@")[2]) for run_id in ticks)
    assert set(ticks.values()) == {1}
    assert nominal_ms == list(range(nominal_ms[0], nominal_ms[-1] + 1, 500))


@pytest.mark.long
def test_a_redis_that_is_down_at_the_start_is_found_when_it_comes(
    replica: Callable[..., Tree], server: Server, store: Store
) -> None:
    """X6: there a Redis that was down at the start stayed lost; here the tree waits, unready, and then works."""
    server.kill()
    tree = replica("one")
    tree.wait_for("tree_ready")
    assert tree.get("/readyz")[0] == 503
    assert tree.get("/livez")[0] == 200
    server.start()
    wait_until(lambda: len(ended(store)) >= 2, what="the schedule to run")
    wait_until(lambda: tree.get("/readyz")[0] == 200, what="the replica to be ready")


def test_health_says_that_redis_is_gone_and_that_it_is_back(replica: Callable[..., Tree], server: Server) -> None:
    """X14: there every check always said SERVING; here readiness follows, and liveness does not restart anybody."""
    tree = replica("one")
    wait_until(lambda: tree.get("/readyz")[0] == 200, what="the replica to be ready")
    server.kill()
    wait_until(lambda: tree.get("/readyz")[0] == 503, what="the replica to be unready")
    assert tree.get("/livez")[0] == 200
    server.start()
    wait_until(lambda: tree.get("/readyz")[0] == 200, what="the replica to be ready again")


def test_what_waits_for_a_limit_holds_no_slot(
    replica: Callable[..., Tree], short_directory: Path, store: Store
) -> None:
    """X16: there a task over its limit slept 60 s in its worker's slot; here the second slot serves everybody else."""
    queues = Queues(Keys("e2e"))
    args = {"collector": "c-1", "directory": str(short_directory)}
    limited = Template(
        job="x.limited", kind=Kind.ASYNC, args=args, concurrency="collector:{collector}", concurrency_max=1
    )
    store.run(queues.enqueue(nonce="l", envelopes=[Envelope(id=f"l{n}", template=limited) for n in range(10)]))
    tree = replica("one")
    wait_until(lambda: list(short_directory.glob("began-*")), what="one of them to begin")
    wait_until(lambda: len(ended(store)) >= 4, what="other runs to be served meanwhile")

    assert [path.name for path in short_directory.glob("began-*")] == ["began-l0"]
    (short_directory / "go").touch()
    wait_until(lambda: {f"l{n}" for n in range(10)} <= set(ended(store)), what="all of them to end")
    assert tree.process.poll() is None


def test_a_replica_that_does_not_take_part_in_the_election_ends_clean(replica: Callable[..., Tree]) -> None:
    """X19: there a clean stop without leader election ended with 1; here with 0, like any other, and nobody is left."""
    tree = replica("one", "--set", "election.participate=false")
    tree.wait_for("tree_ready")
    family = tree.descendants()
    tree.terminate()
    assert tree.wait() == 0
    assert psutil.wait_procs(family, timeout=10)[1] == []


@pytest.mark.long
def test_a_sigterm_takes_every_child_along(replica: Callable[..., Tree]) -> None:
    """X4: there the children went on firing beside the restarted copy; here none is alive when the parent has left."""
    tree = replica("one")
    tree.wait_for("tree_ready")
    family = tree.descendants()
    assert len(family) >= 4
    tree.terminate()
    assert tree.wait() == 0
    assert living([process.pid for process in family]) == []
