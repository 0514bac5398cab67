"""Workers are replaced, added, taken away and made quiet under load: every run ends, and none runs twice."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.core.model import Envelope, Kind, Template
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
RUNS = 150

JOBS = """
import asyncio, os, threading
from tenure import job

def note(directory, name):
    with open(f"{directory}/{name}", "a") as out:
        out.write(f"{os.getpid()}\\n")

@job("moving.soft", timeout=60)
async def soft(directory: str, name: str) -> None:
    await asyncio.sleep(0.05)
    note(directory, name)

@job("moving.hard", timeout=60)
def hard(directory: str, name: str) -> None:
    threading.Event().wait(0.01)
    note(directory, name)
"""

CONFIG = """
version: 1
cluster: e2e
web: {{port: 0}}
log: {{format: json}}
workers:
  io: {{kind: async, processes: 1, concurrency: 10, recycle_runs: 25}}
  cpu: {{kind: sync, processes: 2, recycle_runs: 25}}
jobs: [moving_jobs]
redis: {{url: "{url}"}}
"""


def test_no_run_is_lost_or_repeated_while_workers_come_and_go(
    start: Callable[..., Tree], short_directory: Path, redis_url: str, store: Store
) -> None:
    """By their own limits, by signals, and all at once: who goes finishes what it has, who comes takes over."""
    (short_directory / "moving_jobs.py").write_text(JOBS)
    (short_directory / "tenure.yaml").write_text(CONFIG.format(url=redis_url))
    (short_directory / "out").mkdir()
    tree = start("moving", "--config", "tenure.yaml")
    tree.wait_for("tree_ready")
    _enqueue(store, short_directory / "out")

    tree.wait_for("replacement_done", pool="io")
    tree.wait_for("replacement_done", pool="cpu")
    os.kill(tree.pid, signal.SIGTTIN)
    tree.wait_for("pool_resized", pool="io", processes=2)
    os.kill(tree.pid, signal.SIGWINCH)
    tree.wait_for("workers_quiet")
    wait_until(lambda: _resumed(tree), what="the workers to be started again")
    os.kill(tree.pid, signal.SIGTTOU)

    wait_until(lambda: len(list((short_directory / "out").iterdir())) == 2 * RUNS, what="all runs", bound_s=60)
    tree.terminate()
    assert tree.wait() == 0
    times = Counter(len(path.read_text().split()) for path in (short_directory / "out").iterdir())
    assert times == {1: 2 * RUNS}
    ends = {each.get("code", -each.get("signal", 0)) for each in tree.events("child_exited")}
    assert ends <= {0, -signal.SIGTERM}, "by SIGTERM: told to go before it had anything to drain"


def _enqueue(store: Store, directory: Path) -> None:
    queues = Queues(Keys("e2e"))
    for job, kind in (("moving.soft", Kind.ASYNC), ("moving.hard", Kind.SYNC)):
        envelopes = [
            Envelope(
                id=f"{job}-{number}",
                template=Template(
                    job=job, kind=kind, args={"directory": str(directory), "name": f"{job}-{number}"}, timeout_s=60
                ),
            )
            for number in range(RUNS)
        ]
        for first in range(0, RUNS, 100):
            store.run(queues.enqueue(nonce=f"{job}-{first}", envelopes=envelopes[first : first + 100]))


def _resumed(tree: Tree) -> bool:
    """Send the signal until it counts: within a quarter of a second after the first it would be the same one.

    Each is answered in the log before the next goes, since one more after the one that counted makes the workers quiet.
    """
    answered = _answers(tree)
    os.kill(tree.pid, signal.SIGWINCH)
    wait_until(lambda: _answers(tree) > answered, what="the signal to be answered")
    return bool(tree.events("workers_resumed"))


def _answers(tree: Tree) -> int:
    return sum(
        each.get("signal") == "SIGWINCH"
        for event in ("signal_received", "signal_ignored")
        for each in tree.events(event)
    )
