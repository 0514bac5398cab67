"""grpc.health.v1 as a real client sees it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.board import Phase
from supervisor.settings.models import Settings
from tests.integration.roles.web.conftest import readable
from tests.kit.waiting import wait_until

SERVICES = ("", "readiness", "liveness")
WATCHERS_MAX = 32
CONNECTIONS_MAX = 64
OCCUPY = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as taken:
    print(taken.getsockname()[1], flush=True)
    sys.stdin.read()
"""
CLIENT = Path(__file__).with_name("grpc_client.py")


class Client:
    """Asks, from a process of its own."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(CLIENT), str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, do: str, **more: Any) -> Any:
        """Return the answer to one request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do} | more) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def check(self, *services: str) -> list[Any]:
        """Return the status of services."""
        return [self.ask("check", service=service) for service in services]

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def start(tree: Any, port: int = 0) -> None:
    """Start the web child with gRPC on ``port``."""
    tree.settings = Settings.model_validate({"cluster": "c1", "web": {"grpc_port": port}})
    tree.start()


def port_of(tree: Any) -> int:
    """Return the port that gRPC got."""

    def look() -> str | None:
        lines = [json.loads(line) for line in tree.log.read_text().splitlines() if line.startswith("{")]
        return next((line["address"] for line in lines if line["event"] == "grpc_listening"), None)

    return int(wait_until(look, "gRPC to listen").rpartition(":")[2])


@pytest.fixture
def client(tree: Any) -> Iterator[Client]:
    """A client of a web child that serves."""
    start(tree)
    made = Client(port_of(tree))
    yield made
    made.close()


def test_a_healthy_replica_serves(client: Client) -> None:
    """What `grpc_health_probe` and Kubernetes' grpc probes ask, for each service and all at once."""
    assert client.check(*SERVICES) == ["SERVING"] * 3
    assert client.ask("list") == dict.fromkeys(SERVICES, "SERVING")


def test_a_draining_replica_is_alive_and_not_ready(tree: Any, client: Client) -> None:
    """The two questions stay two, as over HTTP."""
    tree.board.header.phase = Phase.DRAINING

    assert client.check(*SERVICES) == ["NOT_SERVING", "NOT_SERVING", "SERVING"]


def test_an_outage_of_redis_fails_readiness_alone(tree: Any, client: Client) -> None:
    """A probe that restarts every replica because Redis is away heals nothing."""
    tree.board.rows[0].redis_ok_ns = 0

    assert client.check("readiness", "liveness") == ["NOT_SERVING", "SERVING"]


def test_an_unknown_service_is_not_found(client: Client) -> None:
    """A misspelt probe must fail, and say what there is; who watches may wait for it, by the protocol."""
    answer = client.ask("check", service="redis")

    assert answer["code"] == "NOT_FOUND"
    assert "'liveness'" in answer["details"]
    assert client.ask("watch", service="redis") == "SERVICE_UNKNOWN"


def test_whoever_watches_is_told_of_each_change(tree: Any, client: Client) -> None:
    """Balancers keep one stream instead of asking."""
    assert client.ask("watch", service="readiness") == "SERVING"
    tree.board.header.phase = Phase.DRAINING
    assert client.ask("next", watch=0) == "NOT_SERVING"
    tree.board.header.phase = Phase.READY
    assert client.ask("next", watch=0) == "SERVING"


def test_watchers_are_limited_and_keep_no_probe_out(client: Client) -> None:
    """Every queue has a limit."""
    assert [client.ask("watch", service="") for _ in range(WATCHERS_MAX)] == ["SERVING"] * WATCHERS_MAX
    assert client.ask("watch", service="")["code"] == "RESOURCE_EXHAUSTED"
    assert client.check("") == ["SERVING"]


def test_silent_connections_take_no_more_descriptors_than_there_are_places(tree: Any, client: Client) -> None:
    """Strangers at this port must not use up what the answers over HTTP need."""
    port = port_of(tree)
    before = len(list(Path(f"/proc/{tree.pid}/fd").iterdir()))
    with ExitStack() as held:
        silent = [held.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(3 * CONNECTIONS_MAX)]
        wait_until(lambda: len(readable(silent)) >= 2 * CONNECTIONS_MAX, "those beyond the limit to be cut off")
        assert len(list(Path(f"/proc/{tree.pid}/fd").iterdir())) <= before + CONNECTIONS_MAX + 16  # its own
        assert tree.ask("/livez")[0] == 200


def test_the_child_ends_at_once_although_somebody_watches(tree: Any, client: Client) -> None:
    """The threads of gRPC are no reason to hang at a stop."""
    assert client.ask("watch", service="") == "SERVING"

    assert tree.stop() == 0


def test_a_port_that_is_taken_costs_no_health_over_http(tree: Any) -> None:
    """It is tried again, and got as soon as it is free."""
    command = [sys.executable, "-c", OCCUPY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as occupant:
        assert occupant.stdout is not None
        port = int(occupant.stdout.readline())
        start(tree, port)
        wait_until(lambda: "grpc_cannot_bind" in tree.log.read_text(), "the log to say so")
        assert tree.ask("/livez")[0] == 200
        occupant.kill()  # the web child, which was forked from here, holds its input open
    assert port_of(tree) == port


def test_without_the_setting_nothing_of_grpc_is_loaded(web: Any) -> None:
    """Whoever does not use it pays nothing for it."""
    assert "cygrpc" not in Path(f"/proc/{web.pid}/maps").read_text(encoding="utf-8")
