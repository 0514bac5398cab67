"""What systemd hears, over a real datagram socket that says who sent it."""

from __future__ import annotations

import array
import os
import signal
import socket
import struct
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.process.system.systemd import Notifier, forget
from tests.integration.process.toy_harness import BOUND_S, ToyTree

Make = Callable[..., ToyTree]
Heard = tuple[str, int]


class Ear:
    """The receiving end."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(BOUND_S)
        self.heard: list[Heard] = []

    def hear(self) -> Heard:
        data, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(struct.calcsize("3i")))
        credentials = next(raw for level, kind, raw in ancillary if kind == socket.SCM_CREDENTIALS)
        self.heard.append((data.decode(), array.array("i", credentials[:12])[0]))
        return self.heard[-1]

    def until(self, text: str) -> Heard:
        while True:
            message = self.hear()
            if text in message[0]:
                return message


@pytest.fixture(params=["path", "abstract"])
def ear(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ear]:
    """A socket as systemd would make it: a path, or a name without one."""
    address = str(tmp_path / "notify") if request.param == "path" else f"@tenure-{uuid.uuid4().hex}"
    ear = Ear(address)
    yield ear
    ear.socket.close()


def test_systemd_hears_the_whole_life_of_a_tree_from_its_parent_alone(make_tree: Make, ear: Ear) -> None:
    """READY once everybody is, pings, STOPPING with more time while a worker drains; never a child's word."""
    tree = make_tree(
        [["agent", "agent", "idle"], ["io", "worker", "slow"]],
        environment={"NOTIFY_SOCKET": ear.address, "WATCHDOG_USEC": "600000"},
    )
    first = ear.hear()
    assert first[0] == "READY=1\nSTATUS=2 of 2 children ready"
    assert tree.events("tree_ready")
    for _ in range(3):
        ear.until("WATCHDOG=1")
    tree.send(signal.SIGTERM)
    ear.until("STOPPING=1")
    ear.until("EXTEND_TIMEOUT_USEC=")
    ear.until("STATUS=")
    assert tree.ended() == 0
    assert {pid for _, pid in ear.heard} == {tree.pid}


def test_a_watchdog_meant_for_another_process_is_left_alone() -> None:
    """WATCHDOG_PID names the one that systemd watches."""
    environment = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}
    assert Notifier.from_environment(environment, pid=2).watchdog_period_ns == 0
    assert Notifier.from_environment(environment, pid=1).watchdog_period_ns == 1_000_000_000


def test_nobody_listening_is_nobody_s_problem(tmp_path: Path) -> None:
    """No socket, a vanished one, one of another family: supervision goes on."""
    for address in (None, "", "vsock:2:1234", str(tmp_path / "gone"), "/" + "x" * 200):
        notify = Notifier(address, watchdog_ns=3)
        notify.ready("up")
        notify.tick(1, is_ready=True, is_stopping=True)
        notify.stopping("down")


def test_a_listener_that_does_not_read_blocks_nobody(tmp_path: Path) -> None:
    """A full socket drops the message instead of the supervisor's deadlines."""
    ear = Ear(str(tmp_path / "deaf"))
    notify = Notifier(ear.address)
    for n in range(5000):
        notify.status(f"{n} children ready")
    ear.socket.close()


def test_a_status_is_one_line_and_is_not_repeated(tmp_path: Path) -> None:
    """A line break would start a new assignment, and systemd logs every change."""
    ear = Ear(str(tmp_path / "notify"))
    notify = Notifier(ear.address)
    notify.status("a\nREADY=1 b" + "x" * 500)
    notify.status("a\nREADY=1 b" + "x" * 500)
    notify.status("c")
    assert ear.hear()[0].startswith("STATUS=a READY=1 bxxx")
    assert len(ear.heard[0][0]) < 250
    assert ear.hear()[0] == "STATUS=c"
    ear.socket.close()


def test_forgetting_drops_every_variable() -> None:
    """Whatever a job starts must not be able to speak for the service."""
    environment = dict.fromkeys(("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "HOME"), "x")
    forget(environment)
    assert environment == {"HOME": "x"}
    assert os.environ.get("WATCHDOG_PID") is None
