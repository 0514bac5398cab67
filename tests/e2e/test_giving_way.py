"""A newer run that takes the place of the one that is running: asked first, or killed at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from supervisor.store.wire.poll import HistoryEntry
from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

JOBS = """
import asyncio
import os
import signal
import time
from pathlib import Path

from tenure import Context, job


@job("give.polite", queue="io", timeout=600)
async def polite() -> None:
    await asyncio.Event().wait()


@job("give.plain", queue="plain", timeout=600)
def plain() -> None:
    time.sleep(600)


@job("give.deaf", queue="deaf", timeout=600)
def deaf(directory: str, ctx: Context) -> None:
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    Path(directory, ctx.run_id.partition("@")[2]).write_text(str(os.getpid()))
    time.sleep(600)
"""

CONFIG = """
version: 1
cluster: e2e
web: {{port: 0}}
log: {{format: json}}
supervision: {{grace: 1s}}
workers:
  io: {{kind: async, queues: [io]}}
  plain: {{kind: sync, processes: 1, queues: [plain]}}
  deaf: {{kind: sync, processes: 1, queues: [deaf]}}
jobs: [give_jobs]
redis: {{url: "{url}"}}
schedules:
  polite: {{job: give.polite, every: 1s, overlap: cancel_other}}
  plain: {{job: give.plain, every: 1s, overlap: cancel_other}}
  deaf: {{job: give.deaf, every: 2s, overlap: terminate_other, args: {{directory: "{directory}"}}}}
"""


def test_the_run_in_the_way_stops_or_is_killed_and_ends_replaced(
    start: Callable[..., Tree], short_directory: Path, redis_url: str, store: Store
) -> None:
    """A coroutine is cancelled, a function interrupted, one that hears nothing killed; none of them failed."""
    (short_directory / "give_jobs.py").write_text(JOBS)
    marks = short_directory / "marks"
    marks.mkdir()
    (short_directory / "tenure.yaml").write_text(CONFIG.format(url=redis_url, directory=marks))
    tree = start("give", "--config", "tenure.yaml")
    tree.wait_for("tree_ready")
    queues = Queues(Keys("e2e"))

    def ended(queue: str) -> list[HistoryEntry]:
        return list(reversed(store.run(queues.recent(queue, 100))))

    for queue in ("io", "plain", "deaf"):
        wait_until(lambda queue=queue: len(ended(queue)) >= 2, what=f"two runs of {queue} to be replaced")
        first = ended(queue)[:2]
        assert [line.outcome for line in first] == ["replaced", "replaced"], first
        assert len({line.run_id for line in first}) == 2
        assert store.run(queues.counts(queue)).stats.get("dead", 0) == 0
        assert len(store.run(queues.counts(queue)).stats) >= 2
    wait_until(lambda: len(list(marks.iterdir())) >= 3, what="the third deaf run to begin")
    pids = [path.read_text() for path in sorted(marks.iterdir())]
    assert len(set(pids)) == len(pids), "each was killed with its process"
    assert tree.events("run_unwanted")
    tree.terminate()
    tree.wait()
