"""Events through a real web child: from the mailbox to the stream, to followers and to a webhook."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import redis

from supervisor.clock import SystemClock
from supervisor.core.signing import WEBHOOK_HEADER
from supervisor.roles.web.events import followers as followers_module
from supervisor.roles.web.events.followers import FOLLOWERS_MAX, PER_ADDRESS_MAX
from supervisor.settings.sections.models import Settings
from supervisor.telemetry import events
from supervisor.telemetry.events import Mailbox
from tests.integration.roles.web.api_client import ask, line
from tests.kit.servers import RealServer
from tests.kit.waiting import wait_until
from tests.unit.core.test_webhook_signature import is_genuine

SECRET = "s3cret-of-sixteen"
JSON_TYPE = {"Accept": "application/json"}


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    """The pipe of the tree, into which this process records."""
    made = Mailbox()
    events.attach(made.write_fd, replica="r1", role="agent")
    yield made
    events.attach(None, replica="", role="")
    for descriptor in made.descriptors:
        os.close(descriptor)


@pytest.fixture
def office(patient_tree: Any, real_server: RealServer, mailbox: Mailbox) -> Any:
    """A tree with an empty Redis, whose web child is not started yet."""
    tree = patient_tree
    with redis.Redis(unix_socket_path=str(real_server.socket), protocol=2) as raw:
        raw.flushall()
    tree.redis_url, tree.mailbox = real_server.url, mailbox
    tree.settings = Settings.model_validate({"cluster": "c1"})
    return tree


class Stream:
    """One follower."""

    def __init__(self, tree: Any, path: str = "/api/v1/events", *, address: str = "127.0.0.1", **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", tree.port, timeout=30, source_address=(address, 0))
        self._connection.request("GET", path, headers={"Accept": "text/event-stream"} | headers)
        self.answer = self._connection.getresponse()
        self.status = self.answer.status

    def event(self) -> dict[str, Any]:
        """Return the next event as id, name and data; comments are passed over."""
        found: dict[str, Any] = {}
        while line := self.answer.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if name == "data":
                found["data"] = json.loads(value)
            elif name in {"id", "event"}:
                found[name] = value
            elif not name and "data" in found:
                return found
        return {}

    def close(self) -> None:
        self._connection.close()


def listed(tree: Any, query: str = "") -> list[dict[str, Any]]:
    """Return the events that the API lists."""
    found: list[dict[str, Any]] = json.loads(tree.ask(f"/api/v1/events{query}")[2]).get("events", [])
    return found


def record_listed(tree: Any, *reasons: str) -> None:
    """Record events, and wait until they are in the stream."""
    for reason in reasons:
        events.record(reason)

    def is_listed() -> bool:  # by one answer: another may be that Redis took too long
        return [each["reason"] for each in listed(tree)[-1:]] == [reasons[-1]]

    wait_until(is_listed, "the events to be listed")


def test_an_event_of_any_process_is_listed(office: Any) -> None:
    """From a pipe to a stream to an answer, with everything it said."""
    office.start()
    events.record("fire_rejected", "over quota", subject="nightly", level="warning", hook="quota")

    (event,) = wait_until(lambda: listed(office), "the event")
    assert (event["reason"], event["subject"], event["note"]) == ("fire_rejected", "nightly", "over quota")
    assert (event["level"], event["replica"], event["role"], event["fields"]) == (
        "warning", "r1", "agent", {"hook": "quota"},
    )  # fmt: skip


def test_a_list_can_be_narrowed(office: Any) -> None:
    """By reason, level, number, age and place."""
    office.start()
    events.record("child_exited", level="error")
    record_listed(office, "reload_done", "leader_acquired")
    first = listed(office)[0]["id"]

    assert [each["reason"] for each in listed(office, "?level=error")] == ["child_exited"]
    assert [each["reason"] for each in listed(office, "?reason=reload_done&reason=leader_acquired")] == [
        "reload_done", "leader_acquired",
    ]  # fmt: skip
    assert [each["reason"] for each in listed(office, "?limit=1&since=1h")] == ["leader_acquired"]
    assert len(listed(office, f"?after={first}")) == 2


@pytest.mark.share(4)
@pytest.mark.parametrize(
    "query", ["?limit=0", "?limit=1001", "?limit=x", "?after=x", "?level=bad", "?since=5", "?since=never", "?limit=٣"]
)
def test_a_bad_question_is_told_what_is_wrong(office: Any, query: str) -> None:
    """With the parameter and the remedy, as JSON."""
    office.start()
    code, _, body = office.ask("/api/v1/events" + query.encode("ascii", "backslashreplace").decode())

    assert code == 400
    assert query[1:].partition("=")[0] in json.loads(body)["error"]


def test_a_follower_gets_what_happens_and_resumes_without_gap_or_repetition(office: Any) -> None:
    """A browser that lost its connection comes back with the id of its last event."""
    office.start()
    stream = Stream(office)
    assert stream.answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    events.record("leader_acquired", "epoch 7")
    seen = stream.event()
    assert (seen["event"], seen["data"]["note"], seen["data"]["id"]) == ("leader_acquired", "epoch 7", seen["id"])
    stream.close()

    record_listed(office, "reload_done", "child_exited")
    again = Stream(office, **{"Last-Event-ID": seen["id"]})
    events.record("leader_released")
    assert [again.event()["event"] for _ in range(3)] == ["reload_done", "child_exited", "leader_released"]
    again.close()


@pytest.mark.share(2)
@pytest.mark.parametrize("reads", ["token", "open"])
def test_an_answer_that_takes_long_ends_with_its_token(office: Any, tmp_path: Path, reads: str) -> None:
    """A stream of events lasts an hour, and a token may be taken away at any moment; nothing of a page follows it.

    Where reads are open it went on, and each event of it was a wrong token: other clients of the address were shut out.
    """
    tokens = tmp_path / "tokens"
    tokens.write_text(line("reader", "read") + line("other", "read"))
    web = {"tokens_file": str(tokens), "reads": reads}
    office.settings = Settings.model_validate({"cluster": "c1", "web": web})
    office.start()
    stream = Stream(office, Authorization="Bearer READER")
    events.record("leader_acquired")
    assert stream.event()["event"] == "leader_acquired"
    tokens.write_text(line("other", "read"))
    change = "/api/v1/queues/default/pause"  # that neither may make
    wait_until(lambda: ask(office, "POST", change, "reader", {})[0] == 401, "the file to be read again")
    events.record("leader_released")
    assert stream.answer.read() == b""
    stream.close()


def test_followers_have_places_of_their_own(office: Any) -> None:
    """Sixteen at most, and probes are answered all the same; a place that is left is free."""
    office.start()
    streams = [Stream(office, address=f"127.0.0.{2 + number // PER_ADDRESS_MAX}") for number in range(FOLLOWERS_MAX)]
    assert [stream.status for stream in streams] == [200] * FOLLOWERS_MAX
    assert Stream(office, address="127.0.0.99").status == 503
    assert office.ask("/livez")[0] == 200

    streams.pop().close()
    for stream in streams:
        stream.close()
    wait_until(lambda: Stream(office, address="127.0.0.99").status == 200, "a place to be free")


def test_one_address_cannot_take_the_streams_of_all(office: Any) -> None:
    """Its next stream ends its oldest, and one from elsewhere none."""
    office.start()
    streams = [Stream(office) for _ in range(FOLLOWERS_MAX + 1)]

    assert [stream.status for stream in streams] == [200] * (FOLLOWERS_MAX + 1)
    assert [stream.event() for stream in streams[:-PER_ADDRESS_MAX]] == [{}] * (FOLLOWERS_MAX + 1 - PER_ADDRESS_MAX)
    other = Stream(office, address="127.0.0.2")
    events.record("reload_done")
    assert [stream.event()["event"] for stream in (*streams[-PER_ADDRESS_MAX:], other)] == ["reload_done"] * 3
    for stream in (*streams, other):
        stream.close()


def test_the_child_ends_at_once_although_somebody_follows(office: Any) -> None:
    """A stream is no reason to wait at a stop."""
    office.start()
    stream = Stream(office)

    assert office.stop() == 0
    assert stream.event() == {}


def test_what_was_recorded_while_no_web_child_lived_is_not_lost(office: Any) -> None:
    """The pipe belongs to the tree; the successor empties it."""
    events.record("child_exited", subject="web")
    office.start()

    assert wait_until(lambda: listed(office), "the event")[0]["subject"] == "web"


def test_without_redis_the_list_says_so_and_events_wait(office: Any, real_server: RealServer) -> None:
    """503 with the reason, not an empty list that looks like peace."""
    office.redis_url = f"{real_server.url}.absent"
    office.start()
    events.record("redis_lost_data", level="error")

    code, _, body = office.ask("/api/v1/events")
    stream = Stream(office)
    assert (code, stream.status) == (503, 503)
    assert b".absent" not in body.encode() + stream.answer.read()


def test_rubbish_in_the_mailbox_is_counted_and_passed_over(office: Any, mailbox: Mailbox) -> None:
    """A job has the pipe open too, as everything that its process has."""
    office.start()
    os.write(mailbox.write_fd, b"no json\n{}\n\xff\n")
    record_listed(office, "reload_done")

    assert len(listed(office)) == 1
    assert 'tenure_events_dropped_total{cluster="c1",sink="recorder"} 3.0' in office.ask("/metrics")[2]


class Hook:
    """A server that takes batches, after it refused some."""

    def __init__(self, *statuses: int) -> None:
        hook, self.batches, self._left, self.is_genuine = self, [], list(statuses), []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = self.rfile.read(int(self.headers["Content-Length"]))
                hook.is_genuine.append(
                    is_genuine(SECRET, self.headers[WEBHOOK_HEADER], sent, SystemClock().wall_ms() / 1000)
                )
                hook.batches.append((dict(self.headers), json.loads(sent)))
                self.send_response(hook._left.pop(0) if hook._left else 204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.batches: list[tuple[dict[str, str], dict[str, Any]]]
        self.is_genuine: list[bool]
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook?token=hunter2"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def make_hook() -> Iterator[Any]:
    """Return a maker of hooks."""
    made: list[Hook] = []

    def make(*statuses: int) -> Hook:
        made.append(Hook(*statuses))
        return made[-1]

    yield make
    for hook in made:
        hook.close()


def hooked(tree: Any, url: str, **more: Any) -> None:
    """Start a tree with a webhook."""
    tree.settings = Settings.model_validate(
        {"cluster": "c1", "events": {"webhook_url": url, "webhook_token": "s3cret", "webhook_secret": SECRET} | more}
    )
    tree.start()


def test_a_webhook_gets_what_is_bad_enough_with_its_token(office: Any, make_hook: Any) -> None:
    """In batches, with a number by which a batch that came twice is known."""
    hook = make_hook(503)
    hooked(office, hook.url, webhook_level="warning")
    events.record("reload_done")
    events.record("child_exited", subject="web", level="warning")

    wait_until(lambda: len(hook.batches) == 2, "the batch to be sent again")
    (headers, body), (again, same) = hook.batches
    assert body == same
    assert (body["cluster"], [each["reason"] for each in body["events"]]) == ("c1", ["child_exited"])
    assert headers["Authorization"] == "Bearer s3cret"
    assert headers["X-Tenure-Batch"] == again["X-Tenure-Batch"] == body["batch"]
    assert hook.is_genuine == [True, True]


@pytest.mark.share(4)
@pytest.mark.parametrize("status", [302, 400, 401, 404])
def test_a_webhook_that_says_no_is_not_asked_again(office: Any, make_hook: Any, status: int) -> None:
    """The batch is counted as dropped; the next one is tried; address and token are in no log."""
    hook = make_hook(status)
    hooked(office, hook.url)
    events.record("reload_done")
    sample = 'tenure_events_dropped_total{cluster="c1",sink="webhook"} 1.0'
    wait_until(lambda: sample in office.ask("/metrics")[2], "the batch to be dropped")
    events.record("child_exited")

    wait_until(lambda: len(hook.batches) == 2, "the next batch")
    log = office.log.read_text()
    assert "webhook_failing" in log
    assert "hunter2" not in log
    assert "s3cret" not in log


def test_a_webhook_that_never_answers_holds_up_nothing(office: Any) -> None:
    """Each request has a limit; stream and health go on."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hooked(office, f"http://127.0.0.1:{silent.getsockname()[1]}/", webhook_timeout="100ms")
        record_listed(office, "reload_done")

        assert office.ask("/livez")[0] == 200
        assert office.stop() == 0


def test_a_follower_that_does_not_read_is_cut_and_counted(office: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue is bounded; the others go on."""
    monkeypatch.setattr(followers_module, "QUEUED_MAX", 0)  # inherited by the child: any event is one too many
    office.start()
    stream = Stream(office)
    events.record("reload_done")

    assert stream.event() == {}
    assert 'tenure_events_dropped_total{cluster="c1",sink="follower"} 1.0' in office.ask("/metrics")[2]
