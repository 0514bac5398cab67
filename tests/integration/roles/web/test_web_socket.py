"""The web child behind a unix socket: the kernel's word on who asks, in the place of addresses."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from supervisor.app.replica import listening
from supervisor.settings.sections.models import Settings

BOUND_S = 20.0


@pytest.fixture
def path(tree: Any, tmp_path: Path) -> Any:
    """A web child that serves at this path."""
    path = tmp_path / "http.sock"
    tree.settings = Settings.model_validate({"cluster": "c1", "web": {"host": f"unix:{path}"}})
    tree.listener.close()
    with listening(tree.settings.web, lambda *_args, **_fields: None) as listeners:
        tree.listener = listeners.http
        tree.start()
        yield path


def connect(path: Path) -> socket.socket:
    """Connect to ``path``."""
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(BOUND_S)
    link.connect(str(path))
    return link


def ask(path: Path, target: str, **headers: str) -> tuple[int, str]:
    """Send one request, as ``curl --unix-socket PATH http://localhost/…`` does."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = connect(path)
    try:
        connection.request("GET", target, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_pages_and_health_are_served_to_who_may_open_the_socket(tree: Any, path: Path) -> None:
    """Nobody else reaches it, so reads are open as on loopback; the name of another site is refused all the same."""
    assert ask(path, "/livez") == (200, "ok")
    code, text = ask(path, "/configz")
    assert (code, json.loads(text)["web"]["host"]) == (200, f"unix:{path}")
    assert ask(path, "/configz", Host="evil.example")[0] == 421
    seen = [json.loads(line) for line in tree.log.read_text().splitlines() if '"request"' in line]
    assert {each["peer"] for each in seen} == {f"uid {tree.log.stat().st_uid}"}
    ready = next(json.loads(line) for line in tree.log.read_text().splitlines() if '"web_ready"' in line)
    assert (ready["host"], ready["port"]) == (f"unix:{path}", None)


def test_a_killed_web_child_refuses_nobody_at_its_socket(tree: Any, path: Path) -> None:
    """The parent holds the socket: what connects meanwhile is served by the successor."""
    tree.stop(9)
    waiting = connect(path)
    waiting.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    tree.start()
    with waiting:
        assert waiting.recv(64).startswith(b"HTTP/1.1 200 ")
