"""What the web child cannot do is said before anything starts."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.settings.loader import Loaded
from supervisor.settings.sections.models import Settings
from supervisor.settings.web import check
from supervisor.settings.web.check import web_problems
from supervisor.version import install_extra
from tests.kit.tables import table

DATA = Path(__file__).parents[2] / "data/tls"


def problems(**settings: Any) -> list[str]:
    """Return what is wrong with settings."""
    origins = {"web.tokens_file": "tenure.yaml:3", "web.grpc_port": "tenure.yaml:4"}
    return [str(problem) for problem in web_problems(Loaded(Settings.model_validate(settings), origins, ()))]


def test_the_defaults_ask_for_nothing() -> None:
    """No file, no extra."""
    assert problems() == []


def test_a_file_of_tokens_is_read_before_it_is_needed(tmp_path: Path) -> None:
    """Each of its faults with its line, at the place of the setting."""
    path = tmp_path / "tokens"
    path.write_text("one\nfour words are here\n")
    first, second = problems(web={"tokens_file": str(path)})

    assert first.startswith(f"tenure.yaml:3: web.tokens_file: {path}:1: has 1 words")
    assert f"{path}:2: four: the second word is not sha256:" in second


def test_grpc_without_its_extra_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is optional; asking for it is not."""
    real = importlib.util.find_spec
    monkeypatch.setattr(check, "find_spec", lambda name: None if name.startswith("grpc") else real(name))

    assert problems(web={"grpc_port": 9000}) == [
        f"tenure.yaml:4: web.grpc_port: asks for gRPC, which is not installed; {install_extra('grpc')}"
    ]
    assert problems() == []


def test_one_port_cannot_be_two() -> None:
    """HTTP has it first."""
    (problem,) = problems(web={"grpc_port": 8080, "port": 8080})
    assert "web.grpc_port: 8080 is web.port too" in problem
    (problem,) = problems(web={"grpc_port": 9000, "health_port": 9000})
    assert "web.grpc_port: 9000 is web.health_port too" in problem
    assert len(problems(web={"grpc_port": 80, "health_port": 80, "port": 80})) == 3
    assert problems(web={"grpc_port": 0, "health_port": 0, "port": 0}) == []


def test_authorities_for_clients_need_https_and_a_certificate_in_their_file(tmp_path: Path) -> None:
    """A file without one would vouch for nobody, or for everybody."""
    (alone,) = problems(web={"tls_client_ca_file": "ca.pem"})
    assert "web.tls_client_ca_file: is for HTTPS" in alone
    pair = {"tls_cert_file": str(DATA / "server.pem"), "tls_key_file": str(DATA / "server.key")}
    empty = tmp_path / "ca.pem"
    empty.write_text("")
    (wrong,) = problems(web=pair | {"tls_client_ca_file": str(empty)})
    assert "web.tls_client_ca_file: holds no authority" in wrong
    assert problems(web=pair | {"tls_client_ca_file": str(DATA / "ca.pem")}) == []


def test_a_certificate_needs_its_key_and_both_must_be_some(tmp_path: Path) -> None:
    """A pair that does not serve is refused before the port is bound."""
    (alone,) = problems(web={"tls_cert_file": "cert.pem"})
    assert "web.tls_cert_file: stands alone" in alone
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("no PEM")
    (broken,) = problems(web={"tls_cert_file": str(rubbish), "tls_key_file": str(rubbish)})
    assert "web.tls_cert_file: cannot be used with its key" in broken
    (absent,) = problems(web={"tls_cert_file": "/absent/c", "tls_key_file": "/absent/k"})
    assert "No such file" in absent


@pytest.mark.parametrize("name", ["tls_cert_file", "tls_key_file", "tls_client_ca_file"])
def test_a_fifo_in_place_of_a_certificate_holds_nothing_up(tmp_path: Path, name: str) -> None:
    """Neither the start nor, after a rotation, the web child."""
    os.mkfifo(tmp_path / "fifo")
    files = {
        "tls_cert_file": str(DATA / "server.pem"),
        "tls_key_file": str(DATA / "server.key"),
        "tls_client_ca_file": str(DATA / "ca.pem"),
    }

    (problem,) = problems(web=files | {name: str(tmp_path / "fifo")})

    assert "no regular file" in problem


@pytest.mark.parametrize("url", ["hook", "ftp://h/x", "https://", "http://h:99999/", "http://[::1/"])
def test_a_webhook_is_an_address_of_http_and_is_not_repeated(url: str) -> None:
    """It may hold a token."""
    (problem,) = problems(events={"webhook_url": f"{url}?token=hunter2"})
    assert "events.webhook_url: is no address of HTTP" in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("http://hooks.example/", True), ("http://10.0.0.1/", True), ("http://localhost.example/", True), ("https://hooks.example/", False),
        ("http://localhost:9/", False), ("http://127.0.0.1:9/", False), ("http://[::1]:9/", False),
    ],
)  # fmt: skip
def test_a_token_is_not_sent_readable_to_another_machine(*, url: str, is_refused: bool) -> None:
    """A signature is: its secret never travels."""
    found = problems(events={"webhook_url": url, "webhook_token": "hunter2", "webhook_secret": "x" * 16})

    assert ["events.webhook_token: would be readable" in each for each in found] == [True] * is_refused
    assert problems(events={"webhook_url": url, "webhook_secret": "x" * 16}) == []


def test_a_secret_that_could_be_guessed_signs_nothing() -> None:
    """Whoever sees one request may try words at leisure."""
    (problem,) = problems(events={"webhook_secret": "hunter2"})
    assert "events.webhook_secret: has fewer than 16 characters" in problem
    assert "hunter2" not in problem


@table(
    ("web", "said"),
    [
        ({"host": "unix:run/http.sock"}, "web.host: 'unix:run/http.sock' names no absolute path of a socket"),
        ({"host": "unix:"}, "names no absolute path of a socket; write unix:/run/tenure/http.sock"),
        ({"host": "unix:@hidden"}, "names no absolute path of a socket"),
        ({"host": "unix:/run/tenure/"}, "names no absolute path of a socket"),
        ({"host": "unix:/run/a\0b"}, "names no absolute path of a socket"),
        ({"host": f"unix:/{'x' * 107}"}, "web.host: names a path of 108 bytes, and the kernel takes 107; choose"),
        ({"host": f"unix:/{'ä' * 54}"}, "web.host: names a path of 109 bytes"),
        ({"host": "unix:/run/h.sock", "health_port": 0}, "web.health_port: needs an address, and web.host is a unix"),
        ({"host": "unix:/run/h.sock", "socket_users": ["no-such"]}, "web.socket_users: 'no-such' is no user of this"),
        ({"socket_users": ["root"]}, "web.socket_users: are for a unix socket; set web.host to unix:/path"),
    ],
)
def test_a_path_that_cannot_be_a_socket_is_refused_before_anything_starts(web: dict[str, Any], said: str) -> None:
    """The kernel's own words would be ``AF_UNIX path too long``, at the start, after everything else was done."""
    (problem,) = problems(web=web)
    assert said in problem


def test_a_socket_needs_no_port_and_may_have_the_longest_path() -> None:
    """107 bytes, see unix(7)."""
    assert problems(web={"host": f"unix:/{'x' * 106}", "socket_users": ["root", "0"]}) == []
