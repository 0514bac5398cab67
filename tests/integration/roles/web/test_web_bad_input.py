"""Input that the API cannot use: told to the client as its mistake."""

from __future__ import annotations

import gzip
import socket
from typing import Any

import pytest

from supervisor.roles.web import handlers
from supervisor.roles.web.api.routes import PATH
from supervisor.store.queues.sessions import Sessions
from tests.integration.roles.web.api_client import KEYS, ask
from tests.kit.tables import table

TOO_LARGE = "99999999999999999999"


@table(
    ("path", "body"),
    [
        ("schedules/team/nightly/trigger", {"key": "k" * 400}), ("schedules/team/nightly/trigger", {"key": "a/b:c@d!e"}),
        ("schedules/team/nightly/trigger", {"args": {"secret_word": "{{ nominal | plus }}"}}),
        ("runs/r-1/cancel", {"queue": "{}"}), ("runs/r-1/cancel", {"queue": "a:b"}), ("runs/%00/cancel", {}),
        ("jobs/mail.send/runs", {"run_id": "a b"}), ("jobs/mail.send/runs", {"queue": "../x"}),
        (f"schedules?cursor={TOO_LARGE}", None), ("schedules?cursor=-1", None), (f"events?after={TOO_LARGE}-9", None),
        ("schedules?limit=00000025099", None), ("jobs?limit=00000025099", None), ("events?limit=000000100099", None),
        (f"events?limit=000000001{'0' * 5000}", None), ("schedules?limit=0", None),
    ],
)  # fmt: skip
def test_names_that_cannot_be_used_are_bad_requests(api: Any, path: str, body: Any) -> None:
    """A client's mistake is told to the client, and is no error of the program."""
    code, _ = ask(api, "GET" if body is None else "POST", f"{PATH}/{path}", "driver", body)

    assert code == 400
    assert "request_failed" not in api.log.read_text()


@pytest.mark.share(2)
@pytest.mark.parametrize("word", ["a" * 70_000, "{{ nominal }}" * 4000])
@pytest.mark.parametrize("path", ["schedules/team/nightly/trigger", "jobs/mail.send/runs"])
def test_arguments_that_no_run_can_hold_are_too_large(api: Any, path: str, word: str) -> None:
    """As they are, or once their placeholders are filled in, which they are in runs of a schedule alone."""
    code, _ = ask(api, "POST", f"{PATH}/{path}", "driver", {"args": {"secret_word": word}})

    assert code == (413 if "trigger" in path or word[0] == "a" else 201)
    assert "request_failed" not in api.log.read_text()


def test_a_body_that_unpacks_to_a_large_one_is_not_unpacked(api: Any) -> None:
    """A bomb of 120 KiB would keep the loop busy with 120 MiB, and a probe waiting."""
    bomb = gzip.compress(bytes(100 << 20))
    code, shown = ask(api, "POST", f"{PATH}/jobs/mail.send/runs", "driver", bomb, **{"Content-Encoding": "gzip"})

    assert (code, shown["error"]) == (400, "Content-Encoding: 'gzip' cannot be used: send the body as it is")
    assert ask(api, "POST", f"{PATH}/jobs/mail.send/runs", None, bomb, **{"Content-Encoding": "gzip"})[0] == 401


@pytest.mark.share(4)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("jobs/mail.send/runs", b'{"args": {"to": "a", "to": "b"}}'),
        ("jobs/mail.send/runs", b'{"run_id": "to", "args": {}, "run_id": "x"}'),
        ("schedules", b'{"schedules": {"a": {"job": "mail.send", "every": "1h", "every": "2h"}}}'),
        ("queues/default/pause", b'{"reason": "to", "reason": "fro"}'),
    ],
)
def test_a_key_that_stands_twice_in_a_body_is_refused(api: Any, path: str, body: bytes) -> None:
    """One of the values would be lost, and the client could not know which."""
    code, shown = ask(api, "POST", f"{PATH}/{path}", "driver", body)
    assert (code, "stands twice" in shown["error"]) == (400, True), shown


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("path", "rest"),
    [
        ("jobs/mail.send/runs", b"2\r\n"),
        ("jobs/mail.send/runs", b"zz\r\n"),
        ("runs/x/cancel?wait=60s", b"2\r\n"),  # a question of those who wait for a run, and this is none
    ],
)
def test_a_body_that_does_not_come_is_the_clients_mistake(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, path: str, rest: bytes
) -> None:
    """It was 503, and a line that a change by the holder of the token may be half done."""
    monkeypatch.setattr(handlers, "PAGE_S", 0.3)  # inherited by the child
    api = request.getfixturevalue("api")
    with (
        socket.create_connection(("127.0.0.1", api.port), timeout=20) as connection,
        connection.makefile("rb") as answer,
    ):
        connection.sendall(
            f"POST {PATH}/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer DRIVER\r\n"
            "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        assert [answer.readline(), answer.readline()] == [b"HTTP/1.1 100 Continue\r\n", b"\r\n"]
        connection.sendall(rest)
        assert answer.readline().split()[1] == b"408"

    assert "api_change_unfinished" not in api.log.read_text()


def test_a_queue_without_room_is_told_with_the_time_to_come_back(api: Any, store: Any) -> None:
    """As for any service that is busy: 503, and nothing was enqueued."""
    store.run(Sessions(KEYS).bound_queues(1))
    sent = [
        ask(api, "POST", f"{PATH}/jobs/mail.send/runs", "driver", {"queue": "default", "force": True}) for _ in range(2)
    ]

    assert [code for code, _ in sent] == [201, 503]
    assert "queues.length_max" in sent[1][1]["error"]
