"""The child that is thrown away: it reports by its exit code, is bounded, and dies with its parent."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil

from supervisor.process.config_check import KILLED, run_in_child

ROOT = Path(__file__).resolve().parents[3]
PARENT = """
import os, threading
from supervisor.process.config_check import run_in_child

def hang():
    os.write(1, f"{os.getpid()}\\n".encode())
    return threading.Event().wait(60)

run_in_child(hang, timeout_s=60)
"""


def test_its_exit_code_is_that_of_the_function() -> None:
    """Nothing else comes back."""
    assert run_in_child(lambda: 7, timeout_s=20) == 7


def test_its_exit_code_comes_also_where_ends_of_children_are_ignored() -> None:
    """A shell may start a tree so (`trap '' CHLD`), and a module of jobs may ask for it."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run_in_child(lambda: 7, timeout_s=20) == 7
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_it_is_killed_at_its_deadline() -> None:
    """A check that hangs cannot hold up the start for ever."""
    assert run_in_child(lambda: int(threading.Event().wait(60)), timeout_s=0.2) == KILLED


def test_it_dies_with_its_parent() -> None:
    """It holds the bound socket: alive, it would keep the next tree from its port."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, cwd=ROOT) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
        parent.wait(20)
        _, alive = psutil.wait_procs([child], timeout=20)
        for process in alive:
            process.kill()
        assert not alive
