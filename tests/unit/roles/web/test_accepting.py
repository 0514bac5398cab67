"""Acceptance of connections: a flood costs no more than it must, and whoever has spoken is served."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from supervisor.process.system.unix_listening import BACKLOG
from supervisor.roles.web.connection_limit import ConnectionGate
from supervisor.roles.web.connection_table import SILENT_MAX
from tests.kit.clock import FakeClock

FLOOD = 200


class Client(asyncio.Protocol):
    """Protocol of a connection that was opened; ``answered`` has its first bytes."""

    transport: Any = None

    def __init__(self, answered: asyncio.Future[bytes]) -> None:
        self.answered = answered

    def data_received(self, data: bytes) -> None:
        """Note the request."""
        self.answered.set_result(data)


async def test_who_leaves_in_the_turn_of_its_arrival_is_not_listened_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of silent connections a second would keep the loop busy with listening, and probes waiting."""
    loop = asyncio.get_running_loop()
    listened: list[Any] = []
    real = loop.add_reader
    monkeypatch.setattr(loop, "add_reader", lambda each, *rest: (listened.append(each), real(each, *rest)))
    answered = loop.create_future()
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(tmp_path / "s"))
        listener.listen(BACKLOG)
        for number in range(FLOOD):
            link = stack.enter_context(socket.socket(socket.AF_UNIX))
            link.connect(str(tmp_path / "s"))
            if number == 0:
                link.sendall(b"GET /livez")
        gate = ConnectionGate(lambda: Client(answered), FakeClock(elapsed_ns=1, wall_ms=0), listener)
        gate.open()
        async with asyncio.timeout(60):
            assert await answered == b"GET /livez"
        gate.close()

    assert len(listened) <= 1 + SILENT_MAX + 1  # the listener, who stayed, and who spoke
