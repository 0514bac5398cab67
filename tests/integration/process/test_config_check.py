"""The child that judges a changed configuration: aside, capped, and gone with whoever asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.core.errors import EXIT_CONFIG, EXIT_CRASH_LOOP, EXIT_OK
from supervisor.process import config_check
from supervisor.process.system import linux, reaper
from tests.kit.waiting import wait_until


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner of tests in parallel has an idle thread of its own, which holds no lock that a check could need."""
    monkeypatch.setattr(linux, "thread_count", lambda: 1)


def status_of(pid: int) -> int:
    """Return how a child ended."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize(("is_good", "code"), [(True, EXIT_OK), (False, EXIT_CONFIG)])
def test_it_exits_as_the_check_says(*, is_good: bool, code: int) -> None:
    """0 and 78, as `tenure config validate` would."""
    assert status_of(config_check.start(lambda: is_good)) == code


def test_a_check_that_raises_shows_its_stack(capfd: pytest.CaptureFixture[str]) -> None:
    """A bug of ours must not look like a bad configuration."""

    def check() -> bool:
        raise ZeroDivisionError

    assert status_of(config_check.start(check)) == EXIT_CRASH_LOOP
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_module_that_eats_memory_ends_alone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The parent must not be the one that the kernel kills."""
    monkeypatch.setattr(config_check, "MEMORY_BYTES_MAX", 64 << 20)

    assert status_of(config_check.start(lambda: bool(bytearray(1 << 30)))) == EXIT_CRASH_LOOP
    assert "MemoryError" in capfd.readouterr().err


def test_what_its_modules_started_goes_with_it(tmp_path: Path) -> None:
    """A job module that starts a process at its import must not leave one behind with each reload."""
    said = tmp_path / "pid"

    def check() -> bool:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        said.write_text(f"{child.pid} ")
        signal.pause()
        return True

    pid = config_check.start(check)
    wait_until(lambda: said.exists() and said.read_text().endswith(" "), what="the grandchild")
    grandchild = int(said.read_text())

    reaper.kill(pid)

    assert status_of(pid) == -signal.SIGKILL
    wait_until(lambda: not is_running(grandchild), what="the grandchild to go")


def is_running(pid: int) -> bool:
    """Return whether a process lives; a zombie, adopted by whoever is the first process here, does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 :].split()[0] != b"Z"


def test_it_takes_signals_though_its_parent_blocks_them(tmp_path: Path) -> None:
    """Imported code counts on signals; the parent's mask is nobody else's business."""
    said = tmp_path / "name"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:

        def check() -> bool:
            said.write_text(Path("/proc/self/comm").read_text())
            return not signal.pthread_sigmask(signal.SIG_BLOCK, set())

        assert status_of(config_check.start(check)) == EXIT_OK
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    assert said.read_text() == "config-check\n"
    assert linux.thread_count() == 1
