"""A tree to measure: its configuration, its jobs, its family."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import psutil

from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until

JOBS = """
import time
from tenure import job

@job("bench.stubborn", timeout=600)
def stubborn() -> None:
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass
"""


def configuration(*, workers: int, grace_s: float = 20, hang_s: float = 15) -> str:
    """Return a configuration with ``workers`` sync workers and the bundled server."""
    return f"""
version: 1
jobs: [bench_jobs, jobs.shell]
workers: {{cpu: {{kind: sync, processes: {workers}, queues: [default, shell]}}}}
supervision: {{grace: {grace_s:g}s, hang_timeout: {hang_s:g}s}}
web: {{port: 0}}
"""


@contextmanager
def tree(directory: Path, **options: float) -> Iterator[Tree]:
    """A ready tree, with nothing left of it afterwards."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "bench_jobs.py").write_text(JOBS)
    (directory / "tenure.yaml").write_text(configuration(**{"workers": 4, **options}))  # type: ignore[arg-type]
    started = Tree(directory, f"tree-{len(list(directory.iterdir()))}", "--config", "tenure.yaml")
    try:
        started.wait_for("tree_ready")
        yield started
    finally:
        started.close()


def logged_ms(event: dict[str, object]) -> float:
    """Return when a line of the log was written, in ms since 1970."""
    return datetime.fromisoformat(str(event["ts"])).timestamp() * 1e3


def enqueue(directory: Path, job: str, *arguments: str) -> None:
    """Enqueue one run as a user would."""
    command = [sys.executable, "-m", "supervisor", "enqueue", job, *arguments, "--config", "tenure.yaml"]
    root = Path(__file__).parents[1]
    subprocess.run(
        command, cwd=directory, env={**os.environ, "PYTHONPATH": f"{root}:{directory}"}, check=True, capture_output=True
    )


def is_alive(process: psutil.Process) -> bool:
    """Whether it still runs: a zombie does not."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def wait_gone(processes: list[psutil.Process]) -> None:
    """Wait until none of them runs."""
    wait_until(lambda: not any(is_alive(each) for each in processes), what="every process to end")


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """That many processes that do nothing but use a core."""
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in spinners:
            each.kill()
            each.wait()


def signal_all(processes: list[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each that is left."""
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            each.send_signal(number)
