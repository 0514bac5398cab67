"""Signals that come before the command can act on them: none is lost, and none stays blocked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.__main__ import AWAITED
from tests.integration.process.toy_harness import BOUND_S, ROOT

SHOW_MASK = (
    "import signal, sys, supervisor.cli.main as command, supervisor.__main__ as entry\n"
    "command.main = lambda: print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))\n"
    "sys.argv[0] = 'tenure'\n"
    "entry.main()\n"
)


STARTER = (
    "import os, signal, sys\n"
    f"signal.pthread_sigmask(signal.SIG_BLOCK, {[int(number) for number in AWAITED]})\n"
    "if int(sys.argv[1]): os.kill(os.getpid(), int(sys.argv[1]))\n"
    "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])\n"
)


def start(*command: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


def blocked(*command: str, sent: int = 0) -> subprocess.Popen[str]:
    """Start Python as ``env --block-signal`` would; the signal waits already when it begins."""
    return start("-c", STARTER, str(int(sent)), *command)


@pytest.mark.share(3)
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGQUIT, 1)])
def test_a_stop_that_came_before_python_began_ends_the_start(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    """A container that is stopped at once: the signal waits, blocked, and nothing is started."""
    run = blocked("-m", "supervisor", "run", "--data-dir", str(tmp_path / "data"), sent=sent)
    told = run.communicate(timeout=BOUND_S)[0]
    assert run.returncode == code, told
    assert f"received {sent.name} before anything was started" in told
    assert not (tmp_path / "data").exists()


def test_run_waits_with_its_signals_until_it_can_act_on_them() -> None:
    """As process 1, one that is neither handled nor blocked does not exist."""
    told = start("-c", SHOW_MASK, "run").communicate(timeout=BOUND_S)[0]
    assert told.strip() == str(sorted(AWAITED))


def test_every_other_command_can_be_interrupted_whatever_it_inherited() -> None:
    """The image blocks signals for ``run``; a person's Ctrl-C must reach ``leader watch`` in it all the same."""
    told = blocked("-c", SHOW_MASK, "leader", "watch").communicate(timeout=BOUND_S)[0]
    assert told.strip() == "[]"
