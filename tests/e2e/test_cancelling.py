"""A person cancels runs of a real tree: what waits, a coroutine, a function, and one that hears nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from supervisor.core.model import Envelope, Kind, Template
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from tests.e2e.trees import Tree, tenure
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

JOBS = """
import asyncio
import os
import signal
import time
from pathlib import Path

from tenure import Context, job


@job("cancel.polite", queue="io", timeout=600)
async def polite() -> None:
    await asyncio.Event().wait()


@job("cancel.plain", queue="plain", timeout=600)
def plain() -> None:
    time.sleep(600)


@job("cancel.deaf", queue="deaf", timeout=600)
def deaf(mark: str) -> None:
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    Path(mark).write_text(str(os.getpid()))
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
jobs: [cancel_jobs]
redis: {{url: "{url}"}}
"""


def test_cancelled_runs_end_and_stay_ended(
    start: Callable[..., Tree], short_directory: Path, redis_url: str, store: Store
) -> None:
    """Each is recorded as cancelled, nothing runs again, and the neighbours of a coroutine go on."""
    mark = short_directory / "mark"
    (short_directory / "cancel_jobs.py").write_text(JOBS)
    (short_directory / "tenure.yaml").write_text(CONFIG.format(url=redis_url))
    tree = start("cancel", "--config", "tenure.yaml")
    tree.wait_for("tree_ready")
    queues = Queues(Keys("e2e"))

    def state(run_id: str) -> str:
        view = store.run(queues.show(run_id))
        return view.state if view else "unknown"

    def outcomes(run_id: str) -> list[str]:
        view = store.run(queues.show(run_id))
        return [entry.outcome for entry in view.history] if view else []

    def run(run_id: str, queue: str, kind: Kind, **args: str) -> Envelope:
        job = {"io": "cancel.polite", "plain": "cancel.plain", "deaf": "cancel.deaf"}[queue]
        return Envelope(id=run_id, template=Template(job=job, kind=kind, queue=queue, timeout_s=600.0, args=args))

    runs = [run(f"io{n}", "io", Kind.ASYNC) for n in (1, 2, 3)]
    runs += [run("plain1", "plain", Kind.SYNC)]
    runs += [run(f"deaf{n}", "deaf", Kind.SYNC, mark=str(mark)) for n in (1, 2)]
    store.run(queues.enqueue(nonce="cancel", envelopes=runs))
    running = ("io1", "io2", "io3", "plain1", "deaf1")
    wait_until(lambda: all(state(run_id) == "running" for run_id in running), what="all to run")
    wait_until(lambda: mark.exists() and mark.read_text(), what="the deaf process to say its number")

    options = ("--yes", "--reason", "not needed", "--config", "tenure.yaml")
    asked = tenure(short_directory, "runs", "cancel", "deaf2", "io1", "io2", "plain1", *options)
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.count("it had not begun") == 1
    killed = tenure(short_directory, "runs", "cancel", "deaf1", "--kill", "--grace", "500ms", *options)
    assert killed.returncode == 0, killed.stderr

    for run_id in ("io1", "io2", "plain1", "deaf1"):
        wait_until(lambda run_id=run_id: outcomes(run_id) == ["cancelled", "cancel_asked"], what=f"{run_id} to end")
    assert outcomes("deaf2") == ["cancelled"]
    wait_until(lambda: not psutil.pid_exists(int(mark.read_text())), what="the deaf process to be killed")
    assert state("io3") == "running"
    checked = tenure(short_directory, "queue", "fsck", "--config", "tenure.yaml")
    assert (checked.returncode, checked.stdout.strip()) == (0, "nothing is wrong in 3 queues")
    tree.terminate()
    tree.wait()
    assert sorted(line["run"] for line in tree.events("run_cancelled")) == ["deaf1", "io1", "io2", "plain1"]
