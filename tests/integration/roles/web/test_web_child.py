"""The process: its signals, its beats, and clients that behave badly."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest

from supervisor.core.supervision.states import ChildState
from supervisor.roles.web import cluster_snapshot, connection_limit, connection_table, handlers
from supervisor.roles.web.connection_table import BUSY_MAX, CONNECTIONS_MAX, PER_ADDRESS_MAX, SILENT_MAX
from supervisor.roles.web.responses import HEADERS
from tests.integration.roles.web.conftest import BOUND_S, readable
from tests.kit.tables import table
from tests.kit.waiting import wait_until


@pytest.fixture
def silent_redis(tree: Any) -> Iterator[list[socket.socket]]:
    """Something that accepts connections in Redis' place and never answers; yields who connected."""
    seen: list[socket.socket] = []
    server = socket.create_server(("127.0.0.1", 0))
    tree.redis_url = f"redis://127.0.0.1:{server.getsockname()[1]}/0"

    def accept() -> None:
        while True:
            try:
                seen.append(server.accept()[0])
            except OSError:
                return

    thread = threading.Thread(target=accept)
    thread.start()
    yield seen
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()
    for connection in seen:
        connection.close()


def test_it_reports_itself_and_beats(web: Any) -> None:
    """The parent tells a hung loop by its beat, and a booted child by its state."""
    row = web.row
    first = row.beat_ns
    assert first > 0
    assert row.child_generation == row.generation

    wait_until(lambda: row.beat_ns > first, "the next beat")
    assert row.progress >= 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_it_ends_at_a_signal_with_0(web: Any, number: int) -> None:
    """Nothing of it needs saving."""
    web.ask("/livez")

    assert web.stop(number) == 0
    assert web.row.child_state == ChildState.DRAINING


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_request_that_hangs_does_not_delay_its_end(
    web_over_silence: Any, silent_redis: list[socket.socket], number: int
) -> None:
    """The parent stops web last and waits for it half a second."""
    client = web_over_silence.connect()
    client.sendall(b"GET /statusz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wait_until(lambda: silent_redis, "the page to ask Redis")

    assert web_over_silence.stop(number) == 0
    client.close()


@pytest.fixture
def web_over_silence(tree: Any, silent_redis: list[socket.socket], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A web child whose Redis never answers, and that would wait long for it."""
    for module, name in (
        (cluster_snapshot, "WAIT_S"),
        (cluster_snapshot, "READ_S"),
        (handlers, "PAGE_S"),
        (connection_table, "LIFE_S"),
    ):
        monkeypatch.setattr(module, name, 600.0)
    tree.start()
    return tree


def test_an_unused_signal_changes_nothing(web: Any) -> None:
    """URG means: the board changed; pages look at it anyway."""
    os.kill(web.pid, signal.SIGURG)

    assert web.ask("/livez")[0] == 200


def test_health_never_asks_redis(tree: Any, silent_redis: list[socket.socket]) -> None:
    """Also /readyz takes the agent's word: probes must be free, and Redis slow or dead must not slow them."""
    tree.start()
    for path in ("/livez", "/readyz", "/healthz", "/livez?verbose", "/version", "/configz", "/"):
        assert tree.ask(path)[0] == 200
    assert silent_redis == []

    code, _, body = tree.ask("/metrics")

    assert code == 200
    assert 'tenure_redis_up{cluster="c1"} 0.0' in body
    wait_until(lambda: len(silent_redis) == 1, what="the only question to be accepted")


def test_killing_it_refuses_nobody(web: Any) -> None:
    """The parent holds the socket: who connects meanwhile waits for the next one instead of being refused."""
    web.stop(signal.SIGKILL)
    client = web.connect()
    client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")

    web.start()

    with client.makefile("rb") as answer:
        assert answer.readline() == b"HTTP/1.1 200 OK\r\n"
    client.close()


def test_clients_that_say_nothing_cannot_keep_a_probe_out(web: Any) -> None:
    """More idle connections than there are places, and /livez still answers."""
    silent = [web.connect() for _ in range(CONNECTIONS_MAX + 20)]

    for _ in range(5):
        assert web.ask("/livez")[0] == 200

    for client in silent:
        client.close()


def test_clients_whose_requests_hang_cannot_keep_a_probe_out(web_over_silence: Any) -> None:
    """One address holds sixteen places with requests, all addresses together all but those that are for probes."""
    with ExitStack() as hung:
        for number in range(-(-BUSY_MAX // PER_ADDRESS_MAX)):
            for _ in range(PER_ADDRESS_MAX):
                hung.enter_context(hanging(web_over_silence, f"127.0.0.{2 + number}"))

        for address in ("127.0.0.2", "127.0.0.99"):
            wait_until(partial(is_refused, web_over_silence, address, hung), "a request to be refused")
        for _ in range(5):
            assert web_over_silence.ask("/livez")[0] == 200


def hanging(tree: Any, address: str) -> socket.socket:
    """Send a request that waits for Redis, from an address of loopback."""
    client = socket.create_connection(("127.0.0.1", tree.port), timeout=BOUND_S, source_address=(address, 0))
    client.sendall(b"GET /statusz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return client


def is_refused(tree: Any, address: str, hung: ExitStack) -> bool:
    """Return whether one more request gets 503 at once; one that does not hangs with the others."""
    client = hung.enter_context(hanging(tree, address))
    try:
        return bool(readable([client], within_s=0.5)) and client.recv(12) == b"HTTP/1.1 503"
    except ConnectionResetError:  # pushed out before it was read
        return False


def test_a_client_that_dawdles_is_cut_off(tree: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a header, then nothing: the place is wanted by others."""
    monkeypatch.setattr(connection_table, "REQUEST_S", 0.2)
    tree.start()
    client = tree.connect()
    client.sendall(b"GET /livez HTTP/1.1\r\nHost:")

    with suppress(ConnectionResetError):  # cut off in the harder way
        assert client.recv(1) == b""
    client.close()


def test_one_connection_carries_one_request(web: Any) -> None:
    """Keep-alive would let idle clients hold the places."""
    client = web.connect()
    client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
    received = b""
    while chunk := client.recv(65536):
        received += chunk
    client.close()

    assert received.count(b"HTTP/1.1 200 OK") == 1
    assert b"Connection: close" in received


def test_the_port_of_health_serves_health_and_nothing_else(tree: Any) -> None:
    """Who may reach it learns what a probe learns, without TLS and under any name."""
    tree.health = socket.create_server(("127.0.0.1", 0))
    tree.start()
    main, tree.port = tree.port, tree.health.getsockname()[1]

    for path in ("/livez", "/readyz", "/healthz", "/check", "/readyz/redis"):
        assert tree.ask(path, Host="elsewhere")[0] == 200, path
    for path in ("/", "/version", "/metrics", "/configz", "/statusz", "/api/v1/leader", "/api/v1/events"):
        assert tree.ask(path)[0] == 404, path
    assert tree.ask("/livez", "POST")[0] == 405
    tree.port = main
    assert tree.ask("/version")[0] == 200


def test_the_port_of_health_has_connections_of_its_own(tree: Any) -> None:
    """What strangers hold of the main port leaves it alone, also every place."""
    tree.health = socket.create_server(("127.0.0.1", 0))
    tree.start()
    with ExitStack() as held:
        for _ in range(2 * CONNECTIONS_MAX):
            held.enter_context(tree.connect()).sendall(b"GET /livez HTTP/1.1\r\nHost:")
        tree.port = tree.health.getsockname()[1]
        kept = [held.enter_context(tree.connect()) for _ in range(SILENT_MAX // 2)]
        for _ in range(5):
            assert tree.ask("/livez")[0] == 200
        assert not readable(kept)


MALFORMED = {
    "line": b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "field": b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Big: " + b"a" * 9000 + b"\r\n\r\n",
    "number of fields": b"GET /livez HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(500)) + b"\r\n",
    "malformed": b"GET /livez HTTP/1.1\r\nBad Header\r\n\r\n",
    "method": b"G<script>alert(1)</script> / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n",
    "lengths": b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "length and chunks": b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n"
    b"\r\n0\r\n\r\nGET /version HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no text": b"GET /livez HTTP/1.1\r\nHost: localhost\r\nExpect: \xff\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),
}


def answer_to(tree: Any, request: bytes) -> bytes:
    """Return all that comes back for some bytes."""
    with tree.connect() as client:
        client.sendall(request)
        received = b""
        with suppress(ConnectionResetError):
            while chunk := client.recv(65536):
                received += chunk
    return received


def test_a_request_beyond_the_limits_is_refused(web: Any) -> None:
    """Eight KiB of header is enough for anybody; and the next client is served."""
    for what, request in MALFORMED.items():
        head, _, body = answer_to(web, request).partition(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 ")), what
        assert body in {b"the request cannot be parsed\n", b"a line of the request is too long\n"}, what
        assert web.ask("/livez")[0] == 200
    for request in (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"):
        assert answer_to(web, request).startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 405 ")), "no path, and no error of ours"
    assert "Traceback" not in web.log.read_text()
    assert {json.loads(line)["level"] for line in web.log.read_text().splitlines()} <= {"debug", "info"}


@table(
    "request_bytes",
    [
        *MALFORMED.values(),
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"DELETE /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /configz HTTP/1.1\r\nHost: elsewhere\r\n\r\n",
        b"GET /debug/stacks HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nExpect: nothing\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET https://localhost/livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_every_answer_has_the_headers_and_no_banner(web: Any, request_bytes: bytes) -> None:
    """Also those that no handler made, such as an error of the parser."""
    head = answer_to(web, request_bytes).partition(b"\r\n\r\n")[0].decode()
    fields = dict(line.split(": ", 1) for line in head.splitlines()[1:])

    assert {name: fields.get(name) for name in HEADERS} == HEADERS
    assert fields["Connection"] == "close"  # or the next request would come past the places for connections
    assert not {"Server", "X-Powered-By", "Strict-Transport-Security"} & set(fields)
    assert fields.get("Content-Type") in {None, "text/plain; charset=utf-8"}


def test_the_refusal_without_room_has_the_headers_too() -> None:
    """It is sent before there is anything that could make an answer."""
    status, *lines = connection_limit.REFUSAL.partition(b"\r\n\r\n")[0].decode().splitlines()

    assert status == "HTTP/1.1 503 Service Unavailable"
    assert set(HEADERS.items()) <= {tuple(line.split(": ", 1)) for line in lines}


def test_clients_with_half_a_request_cannot_keep_a_probe_out(web: Any) -> None:
    """They give way as those do that say nothing, the oldest first."""
    with ExitStack() as halves:
        for _ in range(CONNECTIONS_MAX + 20):
            halves.enter_context(web.connect()).sendall(b"GET /livez HTTP/1.1\r\nHost:")
        for _ in range(5):
            assert web.ask("/livez")[0] == 200
