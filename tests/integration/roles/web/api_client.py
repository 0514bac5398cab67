"""A client of the API with tokens: three that every test of it knows, and requests as their holders."""

from __future__ import annotations

import hashlib
import http.client
import json
from typing import Any

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.store.keys import Keys

TOKENS = {"reader": "read", "driver": "operate", "owner": "admin"}
KEYS = Keys("c1")
SESSION = "r2.1/w-0/1"
"""A worker of another replica, which the test plays."""
NIGHTLY = ScheduleDef(
    id="team/nightly",
    template=Template(job="mail.send", kind=Kind.ASYNC, args={"secret_word": "hunter2"}),
    every_ms=60_000,
    labels={"team": "mail"},
)
"""The schedule that is there."""


def line(name: str, scope: str) -> str:
    """Return the line of a token, which is its name in capitals."""
    return f"{name}  sha256:{hashlib.sha256(name.upper().encode()).hexdigest()}  {scope}\n"


def ask(tree: Any, method: str, path: str, token: str | None = None, body: Any = None, **given: str) -> tuple[int, Any]:
    """Send one request as the holder of a token, with further headers; return status and JSON."""
    headers = given if token is None else {"Authorization": f"Bearer {token.upper()}", **given}
    connection = http.client.HTTPConnection("127.0.0.1", tree.port, timeout=20)
    try:
        text = body if isinstance(body, bytes | None) else json.dumps(body)
        connection.request(method, path, body=text, headers={"Accept": "application/json"} | headers)
        answer = connection.getresponse()
        shown = answer.read()
        return answer.status, json.loads(shown) if shown.startswith(b"{") else shown.decode()
    finally:
        connection.close()
