"""shell.command under force: timeouts, a worker killed at any moment, floods of output.

Each test runs the job in a process of its own that stands for a worker, because what is
shown is what happens to that process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.jobs.processes import living

Until = Callable[[Callable[[], bool], str], None]

PRELUDE = """
import os, resource, signal, sys
from tenure.jobs.shell import command
from tenure import Context
from supervisor.roles.worker.attempt.context import SoftTimeout
ctx = Context(run_id="a-run", job="shell.command")
def soft_timeout(number, frame):
    raise SoftTimeout("still running")
signal.signal(signal.SIGUSR2, soft_timeout)
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start workers that run a piece of Python; whatever is left of them ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start_worker(code: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **environment},
        )
        started.append(process)
        return process

    yield start_worker
    for process in started:
        process.kill()
        process.communicate()


def output_of(process: subprocess.Popen[str]) -> str:
    """Return what a worker said, once it ended well."""
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 0, output
    return output


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file that may not exist yet."""
    return path.read_text().splitlines() if path.exists() else []


FAMILY = """
sh -c 'trap "" TERM HUP INT; echo $$ >> {pids}; sleep 600' &
(sleep 600 & echo $! >> {pids}; wait) &
trap "" TERM
echo $$ >> {pids}; echo $PPID >> {pids}
sleep 600; sleep 600; sleep 600
"""


def test_when_the_worker_is_killed_nothing_of_the_command_is_left(start: Any, until: Until, tmp_path: Path) -> None:
    """A `kill -9` runs no handler: the kernel tells the guard, and the guard takes the group along."""
    pids = tmp_path / "pids"
    worker = start("command(ctx, command=sys.argv[1])", FAMILY.format(pids=pids))
    until(lambda: len(lines_of(pids)) == 4, "the family stands")
    family = [int(pid) for pid in lines_of(pids)]
    assert living(family) == family

    worker.kill()

    until(lambda: living(family) == [], "the guard, the command and its children ended")


def test_when_the_guard_is_killed_nothing_of_the_command_is_left(start: Any, until: Until, tmp_path: Path) -> None:
    """The command dies with its guard, and the worker ends what is left of the group."""
    pids = tmp_path / "pids"
    code = """
try:
    command(ctx, command=sys.argv[1])
except Exception as error:
    print(type(error).__name__, error)
"""
    worker = start(code, FAMILY.format(pids=pids))
    until(lambda: len(lines_of(pids)) == 4, "the family stands")
    family = [int(pid) for pid in lines_of(pids)]
    guard = psutil.Process(worker.pid).children()[0]
    assert guard.name() == "tenure-guard"

    guard.kill()

    assert "the guard of /bin/sh was killed from outside" in output_of(worker)
    until(lambda: living(family) == [], "the command and its children ended")


def test_a_soft_timeout_asks_then_kills(start: Any, until: Until, tmp_path: Path) -> None:
    """SIGTERM first, so that a command can tidy up; what ignores it is killed; the timeout is what the run ends with."""
    pids = tmp_path / "pids"
    code = """
sys.modules["tenure.jobs.shell.command"].PATIENCE_S_MAX = 20.0  # 1.5 s is short for a busy machine
try:
    command(ctx, command=sys.argv[1], output_in_error=True)
except SoftTimeout as error:
    print(repr(error), *error.__notes__)
"""
    script = (
        f"sh -c 'trap \"\" TERM; echo $$ > {pids}; exec sleep 600' &\n"
        f"until [ -s {pids} ]; do :; done\n"
        "trap 'echo tidied up; exit 0' TERM; echo working; kill -USR2 $WORKER\nwhile :; do :; done"
    )
    worker = start(code.replace("command=sys.argv[1]", "command=sys.argv[1], env={'WORKER': str(os.getpid())}"), script)

    output = output_of(worker)

    assert "SoftTimeout('still running')" in output
    assert "/bin/sh was stopped; its last output:\nworking\ntidied up" in output
    until(lambda: living([int(pids.read_text())]) == [], "the child that ignored SIGTERM ended")


def test_a_deaf_or_stopped_command_is_killed_within_its_patience(start: Any) -> None:
    """One that ignores SIGTERM and one that stopped its own group, guard included, both end before the hard timeout."""
    code = """
from supervisor.clock import SystemClock
sys.modules["tenure.jobs.shell.command"].PATIENCE_S_MAX = 600.0  # the rest of the run's time is less
clock = SystemClock()
for script in ("trap '' TERM; kill -USR2 $WORKER; while :; do :; done", "kill -USR2 $WORKER; kill -STOP 0; sleep 600"):
    limited = Context(run_id="a-run", job="shell.command", deadline_ns=clock.elapsed_ns() + 1_000_000_000)
    try:
        command(limited, command=script, env={"WORKER": str(os.getpid())})
    except SoftTimeout:
        print("stopped")
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child left")
"""
    assert output_of(start(code)).split("\n")[:3] == ["stopped", "stopped", "no child left"]


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
def test_a_timeout_at_any_instruction_leaves_nothing_behind(start: Any, step: int) -> None:
    """It arrives as an exception between any two instructions, those around the forks included."""
    code = """
import ctypes
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: whatever is orphaned comes to us, where it shows
signal.signal(signal.SIGALRM, soft_timeout)
def reap():
    while True:
        try:
            os.waitpid(-1, 0)  # a process that goes on would be waited for until the test's own timeout
        except ChildProcessError:
            return
command(ctx, command=["true"])
before = sorted(os.listdir("/proc/self/fd"))
interrupted = 0
for round_ in range(0, 50, STEP):
    limited = Context(run_id="a-run", job="shell.command", deadline_ns=0)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0003 * (round_ + 1))
        command(limited, command="sleep 600 & sleep 600", stdin="x")
    except SoftTimeout:
        interrupted += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    reap()
    assert sorted(os.listdir("/proc/self/fd")) == before, round_
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
print(interrupted)
"""
    assert output_of(start(code.replace("STEP", str(step)))).strip() == str(len(range(0, 50, step)))


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
def test_a_worker_killed_at_any_moment_leaves_nothing_behind(
    start: Any, until: Until, tmp_path: Path, step: int
) -> None:
    """Between the forks, before the kernel was asked to tell, and after: the parents are checked once more."""
    marker = f"tenure-test-{os.getpid()}-{tmp_path.name}"
    code = """
for round_ in range(0, 80, STEP):
    worker = os.fork()
    if worker == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.setpgid(0, 0)
        command(ctx, command="sleep 600 & exec sleep 600")
        os._exit(1)
    signal.sigtimedwait([], 0.00015 * round_)
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
print("done")
"""
    assert output_of(start(code.replace("STEP", str(step)), MARKER=marker)).strip() == "done"

    def is_marked(process: psutil.Process) -> bool:
        try:
            return process.environ().get("MARKER") == marker
        except psutil.Error:
            return False

    until(lambda: not any(is_marked(process) for process in psutil.process_iter()), "every command ended")


def test_a_flood_of_output_takes_no_memory(start: Any) -> None:
    """A hundred megabytes pass through a buffer of kilobytes."""
    code = """
command(ctx, command=["true"])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = command(ctx, command="yes tenure | head -c 100000000")
grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(result["exit_code"], result["truncated"], len(result["output_tail"]), grown_kib < 8192)
"""
    assert output_of(start(code)).strip() == "0 True 8192 True"


def test_a_flood_does_not_hide_the_end_of_the_command(start: Any) -> None:
    """Its child goes on writing as fast as it can; the run ends with the command all the same."""
    code = """
result = command(ctx, command="yes & exit 0")
print(result["exit_code"])
"""
    assert output_of(start(code)).strip() == "0"


def test_a_worker_that_is_asked_to_stop_does_not_stop_the_command(start: Any, until: Until, tmp_path: Path) -> None:
    """SIGTERM to a worker means drain: the command is in a group and a session of its own, and finishes."""
    ready, go = tmp_path / "ready", tmp_path / "go"
    code = """
signal.signal(signal.SIGTERM, lambda number, frame: print("draining", flush=True))
print(command(ctx, command=sys.argv[1])["output_tail"].strip())
"""
    worker = start(code, f"touch {ready}; until [ -e {go} ]; do sleep 0.01; done; echo finished")
    until(ready.exists, "the command runs")

    os.kill(worker.pid, signal.SIGTERM)
    go.touch()

    assert output_of(worker).split() == ["draining", "finished"]
