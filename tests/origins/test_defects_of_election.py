"""X17: the original's watchdog of its election was never wired, so its check always passed."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from supervisor.clock import SystemClock
from supervisor.core.errors import EXIT_FAILED
from supervisor.core.supervision.states import Phase
from supervisor.core.units import MILLISECOND_NS
from supervisor.process.config_check import run_in_child
from supervisor.roles.agent.election import elector_thread
from supervisor.roles.agent.main import Agent, main
from supervisor.roles.child import ChildContext
from supervisor.settings.sections.models import ElectionSettings, Settings
from supervisor.store.client.sync_client import Store
from tests.e2e.servers import Server
from tests.integration.roles.role_processes import SLOTS, open_board

pytestmark = pytest.mark.e2e
FAST = ElectionSettings(lease_duration_s=2.0, renew_period_s=0.4, renew_timeout_s=0.5)


class Wedged(Store):
    """A client whose third call never returns, whatever its bound."""

    calls = 0

    def run(self, *arguments: Any, **options: Any) -> Any:
        """Make the first two calls."""
        self.calls += 1
        if self.calls > 2:
            Event().wait()
        return super().run(*arguments, **options)


def test_an_agent_whose_elector_hangs_ends_and_is_replaced(
    server: Server, short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is wired: a leader whose election loop stands still gives its place to a fresh process by itself."""
    monkeypatch.setattr(elector_thread, "MARGIN_NS", 100 * MILLISECOND_NS)
    monkeypatch.setattr(elector_thread, "LATE_NS_MAX", 500 * MILLISECOND_NS)
    connect = Agent._connect

    def wedge(self: Any, name: str, timeout_s: float, **route: Any) -> Store:
        found = connect(self, name, timeout_s, **route)
        if name == "elector":
            found.__class__ = Wedged
        return found

    monkeypatch.setattr(Agent, "_connect", wedge)
    board = open_board(short_directory / "board")
    board.header.phase = Phase.READY

    def become_agent() -> int:
        os.dup2(os.open(short_directory / "log", os.O_WRONLY | os.O_CREAT), 1)
        sys.stdout = sys.stderr
        signal.signal(signal.SIGURG, signal.SIG_IGN)
        child = ChildContext(
            settings=Settings(cluster=f"x{uuid.uuid4().hex[:6]}", election=FAST),
            replica="r1",
            name="agent",
            slot=0,
            generation=1,
            board=board,
            slot_names=SLOTS,
            parent_pid=os.getpid(),
            clock=SystemClock(),
            redis_url=server.url,
        )
        return main(child)

    assert run_in_child(become_agent, timeout_s=60) == EXIT_FAILED
    assert board.header.elector_due_ns > 0, "the deadline that passed is still on the board"
