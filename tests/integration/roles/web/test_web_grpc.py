"""grpc.health.v1 as a real client sees it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.supervision.states import Phase
from supervisor.roles.web.connection_table import PER_ADDRESS_MAX, SILENT_MAX
from supervisor.roles.web.grpc.health import PREFACE
from supervisor.settings.sections.models import Settings
from tests.integration.roles.web.conftest import BOUND_S, readable
from tests.kit.waiting import wait_until

SERVICES = ("", "readiness", "liveness")
WATCHERS_MAX = 32
SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""An empty frame of HTTP/2 settings: the other half of its handshake."""
HALF_CALL = b"".join(
    bytes((0, len(name), *name, len(value), *value))  # fields of HPACK, none of them indexed
    for name, value in {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/grpc.health.v1.Health/Check",
        b":authority": b"localhost",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }.items()
)
"""The headers of a call."""
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


def start(tree: Any) -> None:
    """Start the web child with gRPC."""
    tree.grpc = socket.create_server(("127.0.0.1", 0), backlog=256)
    tree.settings = Settings.model_validate({"cluster": "c1", "data_dir": str(tree.data_dir)})
    tree.start()


def port_of(tree: Any) -> int:
    """Return the port of gRPC."""
    port: int = tree.grpc.getsockname()[1]
    return port


def connected(tree: Any, source: str = "127.0.0.1", *, sent: bytes = b"") -> socket.socket:
    """Return a connection to the port of gRPC, from an address of loopback."""
    made = socket.create_connection(("127.0.0.1", port_of(tree)), timeout=BOUND_S, source_address=(source, 0))
    made.sendall(sent)
    return made


def ended(connections: list[socket.socket]) -> list[socket.socket]:
    """Return those that the other side has closed; reads what came from the others."""
    found = []
    for each in readable(connections):
        try:
            is_open = bool(each.recv(4096, socket.MSG_DONTWAIT))
        except ConnectionResetError:
            is_open = False
        if not is_open:
            found.append(each)
    return found


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    """Clients that end with the test."""
    made: list[Client] = []
    yield made
    for each in made:
        each.close()


@pytest.fixture
def client(tree: Any, clients: list[Client]) -> Client:
    """A client of a web child that serves."""
    start(tree)
    return join(tree, clients)


def join(tree: Any, clients: list[Client]) -> Client:
    """Return one more client."""
    clients.append(Client(port_of(tree)))
    return clients[-1]


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


@pytest.mark.long
def test_one_address_cannot_keep_others_from_watching(tree: Any, client: Client) -> None:
    """It holds every place by one connection, and gives its oldest up; the connections behind the relay are told apart."""
    head = HALF_CALL.replace(b"Health/Check", b"Health/Watch")
    calls = b"".join(
        bytes((0, 0, len(head), 1, 4, 0, 0, 0, stream)) + head + bytes((0, 0, 5, 0, 1, 0, 0, 0, stream)) + bytes(5)
        for stream in range(1, 2 * WATCHERS_MAX, 2)
    )
    serving = bytes((0, 0, 0, 0, 2, 8, 1))
    with connected(tree, "127.0.0.9", sent=PREFACE + SETTINGS + calls) as stranger:
        found = b""
        while found.count(serving) < WATCHERS_MAX:
            part = stranger.recv(4096)
            assert part
            found += part
        assert client.ask("watch", service="") == "SERVING"
        tree.board.header.phase = Phase.DRAINING
        assert client.ask("next", watch=0) == "NOT_SERVING"
        assert client.check("liveness") == ["SERVING"]


def test_calls_without_a_message_keep_no_probe_out(tree: Any, client: Client, clients: list[Client]) -> None:
    """A stranger sends the headers of as many calls as two connections may have, and nothing after them."""
    calls = b"".join(bytes((0, 0, len(HALF_CALL), 1, 4, 0, 0, 0, stream)) + HALF_CALL for stream in range(1, 2 * 40, 2))
    ping = bytes((0, 0, 8, 6, 0, 0, 0, 0, 0)) + b"received"
    with ExitStack() as held:
        for _ in range(2):
            link = held.enter_context(connected(tree, "127.0.0.9", sent=PREFACE + SETTINGS + calls + ping))
            found = b""
            while b"received" not in found:  # all before it was dealt with
                part = link.recv(4096)
                assert part
                found += part
        assert client.check(*SERVICES) == ["SERVING"] * 3
        assert join(tree, clients).check("liveness") == ["SERVING"]


def test_silent_connections_take_no_more_descriptors_than_there_are_places(
    tree: Any, client: Client, clients: list[Client]
) -> None:
    """Strangers at this port use up neither what the answers over HTTP need, nor the places of who speaks gRPC."""
    before = len(list(Path(f"/proc/{tree.pid}/fd").iterdir()))
    with ExitStack() as held:
        silent = [held.enter_context(connected(tree)) for _ in range(3 * SILENT_MAX)]
        wait_until(lambda: len(readable(silent)) >= 2 * SILENT_MAX, "those beyond the limit to be cut off")
        assert len(list(Path(f"/proc/{tree.pid}/fd").iterdir())) <= before + SILENT_MAX + 16  # its own
        assert tree.ask("/livez")[0] == 200
        assert join(tree, clients).check("liveness") == ["SERVING"]


def test_one_address_cannot_take_the_connections_of_all(tree: Any, client: Client, clients: list[Client]) -> None:
    """It has as many as of HTTP; the next one is cut off, and another address is served."""
    with ExitStack() as held:
        own = [held.enter_context(connected(tree, "127.0.0.9", sent=PREFACE + SETTINGS)) for _ in range(20)]
        refused = wait_until(lambda: len(gone := ended(own)) == 20 - PER_ADDRESS_MAX and gone, "some to be cut off")
        assert not set(refused) & set(own[:PER_ADDRESS_MAX])
        assert join(tree, clients).check("liveness") == ["SERVING"]


@pytest.mark.long
def test_five_addresses_cannot_take_the_connections_of_all(tree: Any, client: Client, clients: list[Client]) -> None:
    """A single client of IPv6 has many; whoever holds most then gives up the oldest for who holds less."""
    with ExitStack() as held:
        for last in range(2, 7):
            for _ in range(PER_ADDRESS_MAX):
                held.enter_context(connected(tree, f"127.0.0.{last}", sent=PREFACE + SETTINGS))
        assert [join(tree, clients).check("liveness") for _ in range(2)] == [["SERVING"]] * 2


@pytest.mark.share(3)
@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", PREFACE[:-1] + b"x", b"\x16\x03\x01" + bytes(30)])
def test_what_is_not_http2_is_cut_off_at_once(tree: Any, sent: bytes) -> None:
    """Nothing of it reaches the server."""
    start(tree)
    with connected(tree, sent=sent) as stranger:
        assert wait_until(lambda: ended([stranger]), "the stranger to be cut off")


def test_a_preface_that_comes_byte_by_byte_is_one(tree: Any) -> None:
    """Networks cut where they like."""
    start(tree)
    with connected(tree) as slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in PREFACE + SETTINGS:
            slow.sendall(bytes([byte]))
        assert slow.recv(9)[3] == 4  # SETTINGS, from the server


def test_a_socket_that_a_killed_child_left_is_removed(tree: Any, client: Client, clients: list[Client]) -> None:
    """The next child serves at once, and nothing piles up."""
    tree.stop(signal.SIGKILL)
    tree.start()

    assert join(tree, clients).check("liveness") == ["SERVING"]
    assert len(list(tree.data_dir.glob("grpc.*.sock"))) == 1
    assert tree.stop() == 0
    assert not list(tree.data_dir.glob("grpc.*.sock"))


@pytest.mark.long
def test_what_a_job_made_in_the_place_of_a_socket_stops_no_child(
    tree: Any, client: Client, clients: list[Client]
) -> None:
    """One directory ended the tree, and every later one: the web child could not remove it, nor serve in its place."""
    tree.stop(signal.SIGKILL)
    (tree.data_dir / "grpc.1.sock").mkdir()
    tree.start()

    assert join(tree, clients).check("liveness") == ["SERVING"]


@pytest.mark.long
def test_the_socket_of_another_tree_on_the_directory_stays(tree: Any, client: Client, clients: list[Client]) -> None:
    """Each start took those of all others away, whose gRPC then answered nobody; one that was left goes."""
    tree.stop(signal.SIGKILL)
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as left:
        other.bind(str(tree.data_dir / "grpc.other.sock"))
        other.listen()
        left.bind(str(tree.data_dir / "grpc.left.sock"))
        tree.start()

        assert join(tree, clients).check("liveness") == ["SERVING"]
        assert (tree.data_dir / "grpc.other.sock").exists()
        assert not (tree.data_dir / "grpc.left.sock").exists()


@pytest.mark.share(2)
@pytest.mark.parametrize("is_gone", [True, False])
def test_a_data_directory_that_takes_no_socket_any_more_ends_no_child(
    tree: Any, client: Client, clients: list[Client], *, is_gone: bool
) -> None:
    """Somebody cleared it, or put a file in its place: the next reload, which replaces the child, ended the tree."""
    tree.stop(signal.SIGKILL)
    place = tree.data_dir / "former"
    if not is_gone:
        place.touch()
    tree.settings = Settings.model_validate({"cluster": "c1", "data_dir": str(place)})
    tree.start()

    assert join(tree, clients).check("liveness", "") == ["SERVING", "SERVING"]
    assert tree.stop() == 0


@pytest.mark.long
def test_calls_that_come_while_the_child_is_replaced_are_answered(tree: Any, client: Client) -> None:
    """The parent holds the port."""
    tree.stop(signal.SIGKILL)
    with connected(tree, sent=PREFACE + SETTINGS) as early:
        tree.start()
        assert early.recv(9)[3] == 4


def test_the_child_ends_at_once_although_somebody_watches(tree: Any, client: Client) -> None:
    """The threads of gRPC are no reason to hang at a stop."""
    assert client.ask("watch", service="") == "SERVING"

    assert tree.stop() == 0


def test_without_the_setting_nothing_of_grpc_is_loaded(web: Any) -> None:
    """Whoever does not use it pays nothing for it."""
    assert "cygrpc" not in Path(f"/proc/{web.pid}/maps").read_text(encoding="utf-8")
