"""Imports over HTTP, against a server that answers, delays, lies and redirects."""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from supervisor.app.configuration import load
from supervisor.core.errors import EXIT_CONFIG, EXIT_RESTART, ConfigError
from supervisor.importers.cloudforet.fetch import BYTES_MAX
from supervisor.settings.loader import Loaded

SHARED = (
    "QUEUES: {q: {backend: x.RedisQueue, host: redis, port: 6379, channel: c}}\n"
    "SCHEDULERS: {s: {backend: a.B, queue: q, interval: 60}}\n"
    "STOLEN: ${file:/etc/hostname}\n"
)
TLS = Path(__file__).resolve().parents[1] / "data" / "tls"
PIN = f"sha256: {'f' * 64}"
PIN_OF_SHARED = f"sha256: {hashlib.sha256(SHARED.encode()).hexdigest()}"
PIN_OF_NOTHING = f"sha256: {hashlib.sha256(b'').hexdigest()}"


class _Handler(BaseHTTPRequestHandler):
    """One path for each way of answering."""

    released = threading.Event()

    def do_GET(self) -> None:
        match self.path:
            case "/shared.yaml":
                self._answer(200, SHARED.encode())
            case "/large":
                self._answer(200, b"#" * (BYTES_MAX + 1))
            case "/cut":
                self._answer(200, SHARED.encode(), **{"Content-Length": "1000"})
            case "/nothing" | "/no/content":
                self._answer(200 if self.path == "/nothing" else 204, b"")
            case "/busy":
                self._answer(503, b"")
            case "/redirected":
                self._answer(302, b"half", Location="/shared.yaml", **{"Content-Length": "1000000000"})
            case "/elsewhere":
                self._answer(302, b"", Location="file:///etc/hostname")
            case "/never":
                self.released.wait(60)
            case "/slowly" | "/slowly/in/body":
                if self.path != "/slowly":
                    self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
                for _ in range(1000):
                    if self.released.wait(0.02):
                        break
                    self.wfile.write(b"x")
            case _:
                self._answer(404, b"")

    def _answer(self, code: int, body: bytes, **headers: str) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """An HTTP server; its address."""
    _Handler.released.clear()
    found = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    found.daemon_threads = True
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{found.server_port}"
    _Handler.released.set()
    found.shutdown()
    found.server_close()
    thread.join()


def loaded(directory: Path, entry: str) -> Loaded:
    file = directory / "config.yaml"
    file.write_text(f"GLOBAL: {{}}\nIMPORT:\n  - {entry}\n")
    return load(files=[file], environ={}, flags={}, compat="cloudforet")


def problem(directory: Path, entry: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(directory, entry)
    return str(caught.value.problems[0])


def test_x12_an_import_over_http_works(tmp_path: Path, server: str) -> None:
    """The original called a function that Python 3 does not have; references in it stay texts here."""
    digest = hashlib.sha256(SHARED.encode()).hexdigest()
    found = loaded(tmp_path, f"{{url: '{server}/shared.yaml', sha256: {digest}, timeout: 20s}}")
    assert list(found.settings.schedules) == ["s"]
    assert found.settings.cloudforet.config["STOLEN"] == "${file:/etc/hostname}"


def test_an_address_of_a_family_that_this_machine_lacks_is_passed_over(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name may have addresses of IPv6 where the kernel was started without it."""
    ask = socket.getaddrinfo

    def with_unknown(*args: Any, **options: Any) -> list[Any]:
        return [(socket.AF_UNSPEC, socket.SOCK_STREAM, 0, "", ("", 0)), *ask(*args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", with_unknown)
    digest = hashlib.sha256(SHARED.encode()).hexdigest()
    found = loaded(tmp_path, f"{{url: '{server}/shared.yaml', sha256: {digest}, timeout: 20s}}")
    assert list(found.settings.schedules) == ["s"]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (
            "{url: '{server}/absent.yaml', timeout: 20s, {pin}}",
            "answered 404; correct it, or write {url: …, optional: true}",
        ),
        ("{url: '{server}/large', timeout: 20s, {pin}}", "is larger than 8 MiB"),
        ("{url: '{server}/elsewhere', timeout: 20s, {pin}}", "answered 302"),
        ("{url: '{server}/never', timeout: 1500ms, {pin}}", "did not answer within 1.5s"),
        ("{url: '{server}/slowly', timeout: 1500ms, {pin}}", "did not answer within 1.5s"),
        ("{url: '{server}/slowly/in/body', timeout: 1500ms, {pin}}", "did not answer within 1.5s"),
        ("{url: 'http://127.0.0.1:1/x', {pin}}", "cannot be reached"),
        ("{url: '{server}/shared.yaml', timeout: 20s, {pin}}", "has another sha256"),
        ("{url: '{server}/redirected', timeout: 20s, {pin}}", "has another sha256"),
        (f"{{url: '{{server}}/nothing', timeout: 20s, {PIN_OF_NOTHING}}}", "answered 200 without a text"),
        (f"{{url: '{{server}}/no/content', timeout: 20s, {PIN_OF_NOTHING}}}", "answered 204 without a text"),
        (f"{{url: '{{server}}/cut', timeout: 20s, {PIN_OF_SHARED}}}", "was cut off before its end"),
    ],
)
def test_an_answer_that_cannot_be_used_is_a_problem_with_its_reason(
    tmp_path: Path, server: str, entry: str, why: str
) -> None:
    """Missing, too large, redirected off the network, silent, slow, closed, changed, cut, empty; a redirect unread."""
    found = problem(tmp_path, entry.replace("{server}", server).replace("{pin}", PIN))
    assert found.startswith(f"{tmp_path}/config.yaml:3: IMPORT[0]: http://127.0.0.1:")
    assert why in found


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ("{url: 'http://127.0.0.1:1/x', {pin}}", EXIT_RESTART),
        ("{url: '{server}/busy', timeout: 20s, {pin}}", EXIT_RESTART),
        ("{url: '{server}/never', timeout: 300ms, {pin}}", EXIT_RESTART),
        (f"{{url: '{{server}}/cut', timeout: 20s, {PIN_OF_SHARED}}}", EXIT_RESTART),
        (f"{{url: '{{server}}/nothing', timeout: 20s, {PIN_OF_NOTHING}}}", EXIT_RESTART),
        ("{url: '{server}/absent.yaml', timeout: 20s, {pin}}", EXIT_CONFIG),
        ("{url: '{server}/shared.yaml', timeout: 20s, {pin}}", EXIT_CONFIG),
        ("{url: '{server}/large', timeout: 20s, {pin}}", EXIT_CONFIG),
        ("{url: '{server}/elsewhere', timeout: 20s, {pin}}", EXIT_CONFIG),
        ("{url: 'http://127.0.0.1:port/x', {pin}}", EXIT_CONFIG),
        ("there_is_no_such.yaml", EXIT_CONFIG),
    ],
)
def test_what_passes_by_itself_is_told_from_what_lasts(tmp_path: Path, server: str, entry: str, code: int) -> None:
    """A service manager starts the one again, and leaves the other to a person."""
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, entry.replace("{server}", server).replace("{pin}", PIN))
    assert caught.value.exit_code == code


def test_an_optional_import_that_does_not_answer_is_said_and_left_out(tmp_path: Path, server: str) -> None:
    """`optional: true` beside the URL."""
    file = tmp_path / "application.yaml"
    entry = f"{{url: '{server}/absent', timeout: 20s, optional: true, {PIN}}}"
    file.write_text(SHARED.rpartition("STOLEN")[0] + f"IMPORT: [{entry}]\n")
    found = load(files=[file], environ={}, flags={}, compat="cloudforet")
    assert list(found.settings.schedules) == ["s"]
    assert found.conversion is not None
    assert any("answered 404; it is optional" in notice for notice in found.conversion.notices)


@pytest.mark.parametrize("is_whole", [True, False])
def test_an_answer_over_tls_ends_where_its_server_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_whole: bool
) -> None:
    """One without a length that anybody on the way cut off was taken for the document."""
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as answering:

        def answer() -> None:
            with context.wrap_socket(listening.accept()[0], server_side=True) as tls:
                tls.recv(65536)
                tls.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + SHARED.encode())
                if is_whole:
                    tls.unwrap().close()

        listening.settimeout(20)
        answering.submit(answer)
        entry = f"{{url: 'https://127.0.0.1:{listening.getsockname()[1]}/x', timeout: 20s, {PIN_OF_SHARED}}}"
        if is_whole:
            assert list(loaded(tmp_path, entry).settings.schedules) == ["s"]
        else:
            assert "was cut off before its end" in problem(tmp_path, entry)


def test_credentials_in_a_url_are_not_told(tmp_path: Path) -> None:
    """A problem names the place without the password."""
    found = problem(tmp_path, f"{{url: 'http://me:hunter2@127.0.0.1:1/x', {PIN}}}")
    assert "hunter2" not in found
