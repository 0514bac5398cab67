"""A newer run of the same key takes the place of the one that runs, in a tree as users start it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from tests.e2e.trees import Tree, tenure
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

JOBS = """
import asyncio
import time
from pathlib import Path

from tenure import Context, job


@job("collect.async", concurrency=("{collector}", 1, "replace"))
async def collect(collector: str, number: int, ctx: Context) -> str:
    Path(f"began-{collector}-{number}").touch()
    try:
        await asyncio.sleep(0 if number == 9 else 600)
    except asyncio.CancelledError:
        Path(f"replaced-{collector}-{number}-{ctx.is_replaced}").touch()
        raise
    return "all of it"


@job("collect.sync", concurrency=("{collector}", 1, "replace"))
def collect_plainly(collector: str, number: int, ctx: Context) -> str:
    Path(f"began-{collector}-{number}").touch()
    try:
        time.sleep(0 if number == 9 else 600)
    except Context.SoftTimeout:
        Path(f"replaced-{collector}-{number}-{ctx.is_replaced}").touch()
        raise
    return "all of it"
"""

CONFIG = """
version: 1
cluster: e2e
web: {{port: 0}}
log: {{format: json}}
workers:
  io: {{kind: async, processes: 1, concurrency: 5}}
  cpu: {{kind: sync, processes: 2}}
jobs: [collecting_jobs]
redis: {{url: "{url}"}}
"""


@pytest.mark.parametrize("kind", [pytest.param("async", marks=pytest.mark.long), "sync"])
def test_a_newer_run_of_a_key_replaces_the_one_that_runs(
    start: Callable[..., Tree], short_directory: Path, redis_url: str, store: Store, kind: str
) -> None:
    """The collection that somebody starts again is the one that counts; another collector's goes on."""
    (short_directory / "collecting_jobs.py").write_text(JOBS)
    (short_directory / "tenure.yaml").write_text(CONFIG.format(url=redis_url))
    tree = start("collect", "--config", "tenure.yaml")
    tree.wait_for("tree_ready")
    queues = Queues(Keys("e2e"))

    def ask(collector: str, number: int) -> None:
        words = ("--param", f"collector={collector}", "--param", f"number={number}", "--id", f"{collector}-{number}")
        done = tenure(short_directory, "job", "run", f"collect.{kind}", *words, "--config", "tenure.yaml")
        assert (done.returncode, done.stdout.strip()) == (0, f"{collector}-{number}"), done.stderr

    def outcomes() -> dict[str, str]:
        return {entry.run_id: entry.outcome for entry in store.run(queues.recent("default"))}

    for collector in ("aws", "google"):
        ask(collector, 1)
        wait_until((short_directory / f"began-{collector}-1").exists, what=f"{collector} to be collected")
    ask("aws", 9)
    wait_until(lambda: len(outcomes()) == 2, what="both runs of aws to end")
    assert outcomes() == {"aws-1": "replaced", "aws-9": "ok"}
    assert (short_directory / "replaced-aws-1-True").exists()
    assert not (short_directory / "replaced-google-1-True").exists()
    view = store.run(queues.show("google-1"))
    assert view is not None
    assert view.state == "running"
    assert store.run(queues.fsck("default")) == []
