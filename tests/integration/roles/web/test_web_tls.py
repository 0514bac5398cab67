"""HTTPS, and a certificate that is rotated while it serves."""

from __future__ import annotations

import shutil
import ssl
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from supervisor.roles.web.connection_table import CONNECTIONS_MAX
from supervisor.settings.sections.models import Settings
from tests.kit.waiting import wait_until

DATA = Path(__file__).parents[3] / "data/tls"


@pytest.fixture
def pair(tree: Any, tmp_path: Path) -> Any:
    """A web child that is to serve HTTPS with a pair of files that a test may change."""
    tree.cert, tree.key = tmp_path / "tls.crt", tmp_path / "tls.key"
    use(tree, "server")
    settings = {"tls_cert_file": str(tree.cert), "tls_key_file": str(tree.key)}
    tree.settings = Settings.model_validate({"cluster": "c1", "web": settings})
    return tree


@pytest.fixture
def secure(pair: Any) -> Any:
    """The same, which serves."""
    pair.start()
    return pair


def use(tree: Any, name: str) -> None:
    """Put a pair of files in place, as a rotation does: each whole, one after the other."""
    for target, suffix in ((tree.cert, "pem"), (tree.key, "key")):
        new = target.with_suffix(".new")
        shutil.copy(DATA / f"{name}.{suffix}", new)
        new.rename(target)


def served(tree: Any) -> bytes:
    """Return the certificate that a new connection is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with tree.connect() as plain, context.wrap_socket(plain) as connection:
        return connection.getpeercert(binary_form=True) or b""


def stored(name: str) -> bytes:
    """Return a certificate of the tests' data."""
    return ssl.PEM_cert_to_DER_cert((DATA / f"{name}.pem").read_text())


def test_a_client_that_knows_the_authority_is_answered(secure: Any) -> None:
    """By name, with the whole chain checked."""
    context = ssl.create_default_context(cafile=str(DATA / "ca.pem"))
    with secure.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 OK")


def test_a_rotated_certificate_is_served_without_a_restart(secure: Any) -> None:
    """Half a rotation, when the key does not fit yet, changes nothing."""
    pid = secure.pid
    assert served(secure) == stored("server")
    shutil.copy(DATA / "rotated.pem", secure.cert)
    wait_until(lambda: "certificate_refused" in secure.log.read_text(), "the log to say so")
    assert served(secure) == stored("server")

    shutil.copy(DATA / "rotated.key", secure.key)
    wait_until(lambda: served(secure) == stored("rotated"), "the new certificate")
    assert secure.pid == pid


def test_a_web_child_that_starts_in_the_middle_of_a_rotation_serves_once_it_is_over(pair: Any) -> None:
    """It ended with each start: six deaths in three seconds, and the tree ended by them, with its workers."""
    shutil.copy(DATA / "rotated.pem", pair.cert)
    pair.start()
    wait_until(lambda: "certificate_refused" in pair.log.read_text(), "the log to say so")
    with pytest.raises(OSError, match=r"(?i)ssl|handshake|reset|closed"):
        served(pair)

    shutil.copy(DATA / "rotated.key", pair.key)
    wait_until(lambda: "certificate_read" in pair.log.read_text(), "the files to fit")
    assert served(pair) == stored("rotated")


def test_clients_that_never_shake_hands_keep_no_probe_out(secure: Any) -> None:
    """They are cut off like those that never ask."""
    with ExitStack() as silent:
        for _ in range(3 * CONNECTIONS_MAX):
            silent.enter_context(secure.connect())
        assert served(secure) == stored("server")
        assert len(list(Path(f"/proc/{secure.pid}/fd").iterdir())) < 2 * CONNECTIONS_MAX
    with secure.connect() as plain:
        plain.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        assert not plain.recv(1024).startswith(b"HTTP/1.1 200")


def test_clients_that_were_answered_and_do_not_close_keep_no_probe_out(secure: Any) -> None:
    """The end of TLS waits for the client; whoever has its answer and is mute then holds no place against a newcomer."""
    context = ssl.create_default_context(cafile=str(DATA / "ca.pem"))
    with ExitStack() as mute:
        for _ in range(CONNECTIONS_MAX + 8):
            plain = mute.enter_context(secure.connect())
            held = mute.enter_context(context.wrap_socket(plain, server_hostname="localhost"))
            held.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert held.recv(4096).startswith(b"HTTP/1.1 200 ")


@pytest.fixture
def mutual(pair: Any, tmp_path: Path) -> Any:
    """The same, where clients need a certificate of their own."""
    pair.authorities = tmp_path / "clients.pem"
    shutil.copy(DATA / "client.pem", pair.authorities)
    more = {"tls_client_ca_file": str(pair.authorities)}
    pair.settings = pair.settings.model_copy(update={"web": pair.settings.web.model_copy(update=more)})
    pair.start()
    return pair


def asked(tree: Any, path: str, client: str | None = None) -> str:
    """Return the status of one request, with a certificate of a client or without; empty where the server hung up."""
    context = ssl.create_default_context(cafile=str(DATA / "ca.pem"))
    if client is not None:
        context.load_cert_chain(DATA / f"{client}.pem", DATA / f"{client}.key")
    try:
        with tree.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            return connection.recv(4096)[9:12].decode()
    except (ssl.SSLError, ConnectionError):
        return ""


def test_without_a_certificate_of_its_own_a_client_gets_health_alone(mutual: Any) -> None:
    """Probes have none; whoever reads more shows one that an authority of the file has signed."""
    assert {asked(mutual, path) for path in ("/livez", "/readyz", "/healthz", "/check", "/version")} == {"200"}
    for path in ("/", "/configz", "/metrics", "/api/v1/events", "/api/v1/leader"):
        assert asked(mutual, path) == "403", path
    assert [asked(mutual, path, "client") for path in ("/livez", "/configz")] == ["200", "200"]


def test_a_certificate_of_an_unknown_authority_is_refused_in_the_handshake(mutual: Any) -> None:
    """Also for health: who shows one means to be known."""
    assert [asked(mutual, path, "rotated") for path in ("/livez", "/configz")] == ["", ""]


def test_an_authority_that_was_taken_away_vouches_for_nobody(mutual: Any) -> None:
    """Without a restart; a file that holds none changes nothing."""
    assert asked(mutual, "/configz", "client") == "200"
    mutual.authorities.write_text("")
    wait_until(lambda: "certificate_refused" in mutual.log.read_text(), "the log to say so")
    assert asked(mutual, "/configz", "client") == "200"

    shutil.copy(DATA / "ca.pem", mutual.authorities)
    wait_until(lambda: asked(mutual, "/configz", "client") == "", "the client to be unknown")
    assert asked(mutual, "/livez") == "200"
