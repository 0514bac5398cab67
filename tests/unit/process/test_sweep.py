"""The end of what a tree leaves behind: also of what its user may not signal."""

from __future__ import annotations

import os
import signal

import pytest

from supervisor.clock import SystemClock
from supervisor.core.errors import EXIT_OK
from supervisor.process.config_check import run_in_child
from supervisor.process.system import reaper, signals
from tests.kit.waiting import WAIT_S_MAX


def test_a_descendant_of_another_user_is_counted_and_ends_no_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a job started by ``sudo`` in a session of its own, for instance; the parent ended without its last line."""

    def sweep() -> int:
        signals.block()
        pid = os.fork()
        if pid == 0:
            signal.sigtimedwait({signal.SIGUSR1}, WAIT_S_MAX)
            os._exit(EXIT_OK)

        def refuse(_pid: int, _number: int) -> None:
            raise PermissionError

        monkeypatch.setattr(os, "kill", refuse)
        left = reaper.sweep(os.getpid(), elapsed_ns=SystemClock().elapsed_ns, until_ns=0)
        monkeypatch.undo()
        os.kill(pid, signal.SIGKILL)
        return EXIT_OK if left == 1 else left

    assert run_in_child(sweep, timeout_s=WAIT_S_MAX) == EXIT_OK
