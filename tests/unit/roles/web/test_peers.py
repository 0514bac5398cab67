"""Who connects: an address, or the user that the kernel names at a unix socket."""

from __future__ import annotations

import os
import socket

import pytest
from structlog.testing import capture_logs

from supervisor.roles.web.access import peers
from supervisor.roles.web.access.peers import Peers
from supervisor.telemetry.logs import FOLD_S
from tests.kit.clock import FakeClock

OTHER = 54321


@pytest.mark.parametrize(
    ("users", "uid", "identity"),
    [
        ([], 0, "uid 0"),
        ([], os.geteuid(), f"uid {os.geteuid()}"),
        ([], OTHER, None),
        (["54321"], OTHER, "uid 54321"),
        (["no-user-of-this-name"], OTHER, None),
    ],
)
def test_root_its_own_user_and_those_that_are_named_may_connect(
    monkeypatch: pytest.MonkeyPatch, users: list[str], uid: int, identity: str | None
) -> None:
    """A socket that a proxy of another user may open has a mode for everybody: the kernel's word decides."""
    monkeypatch.setattr(peers, "peer_uid", lambda _link: uid)
    near, far = socket.socketpair()
    with near, far:
        assert Peers(FakeClock(elapsed_ns=0, wall_ms=0), users).identify(near, "") == identity


def test_the_kernel_names_the_user_of_a_connection() -> None:
    """Not the path, and not what the client says."""
    near, far = socket.socketpair()
    with near, far:
        assert Peers(FakeClock(elapsed_ns=0, wall_ms=0)).identify(near, "") == f"uid {os.geteuid()}"
        assert Peers(FakeClock(elapsed_ns=0, wall_ms=0)).identify(near, ("10.0.0.1", 1)) == "10.0.0.1"


def test_refused_users_leave_a_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who tries in a loop must not fill the disk."""
    clock = FakeClock(elapsed_ns=0, wall_ms=0)
    judge = Peers(clock)
    monkeypatch.setattr(peers, "peer_uid", lambda _link: OTHER)
    near, far = socket.socketpair()
    with near, far, capture_logs() as logs:
        for _ in range(100):
            judge.identify(near, "")
        clock.advance(FOLD_S)
        judge.identify(near, "")

    assert [(each["event"], each["uid"], each["count"]) for each in logs] == [
        ("peer_refused", OTHER, 1),
        ("peer_refused", OTHER, 100),
    ]
