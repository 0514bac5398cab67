"""Hooks and webhooks around runs of real workers: what ends a run, what puts it off, what is undone after a crash."""

from __future__ import annotations

import importlib
import json
import ssl
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from supervisor.clock import SystemClock
from supervisor.core.model import Kind, Release
from supervisor.core.signing import WEBHOOK_HEADER
from supervisor.settings.sections.models import Settings, WorkerKind
from tenure import job
from tests.integration.roles.worker.forked import fork
from tests.integration.roles.worker.worker_fixture import WorkerKit, until
from tests.unit.core.test_webhook_signature import is_genuine

TLS = Path(__file__).parents[3] / "data/tls"
CODE = """
from pathlib import Path

class Budget:
    def __init__(self, trace):
        self.trace = trace
    def _say(self, word):
        with open(self.trace, "a") as file:
            file.write(word + "\\\\n")
    def filter(self, context):
        number = context.arguments.get("number", 0)
        return "over budget" if number == 13 else ("closed", "10m") if number == 14 else None
    def reserve(self, context):
        self._say(f"reserve {context.fence}")
    def unreserve(self, context):
        self._say(f"unreserve {context.fence}")
    async def after(self, context, outcome, error):
        self._say(outcome)
"""
Reply = tuple[int, bytes]


class Answers:
    """A server that answers questions as the test says, and notes them."""

    def __init__(self, *, is_tls: bool = False) -> None:
        self.questions: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.replies: list[Reply] = []
        self.released = threading.Event()
        self.is_slow = False
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                answers.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                answers.questions.append(json.loads(answers.bodies[-1]))
                answers.headers.append(dict(self.headers))
                if answers.is_slow:
                    answers.released.wait()
                status, body = answers.replies.pop(0) if answers.replies else (200, b'{"admit": true}')
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:  # whoever asked has gone
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if is_tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' if is_tls else ''}://localhost:{self.server.server_port}/hook?key=1"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Stop listening."""
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def answers() -> Iterator[Answers]:
    """A webhook's server."""
    found = Answers()
    yield found
    found.close()


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file in which the hooks of a module note what they are asked."""
    (tmp_path / "thooks_here.py").write_text(CODE.replace("\\\\n", "\\n"))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("thooks_here")
    yield tmp_path / "trace"
    del sys.modules["thooks_here"]


def with_budget(shop: WorkerKit, trace: Path) -> None:
    """Let the runs of profile ``p`` pass the module's hook."""
    config = {"thooks_here:Budget": {"trace": str(trace)}}
    _use(shop, {"profiles": {"p": {"hooks": {"enabled": ["thooks_here:Budget"], "timeout": "60s", "config": config}}}})


def with_webhook(shop: WorkerKit, url: str, **webhook: Any) -> None:
    """Let the runs of profile ``p`` pass a webhook."""
    settings = {"url": url, "timeout": "30s", "retries": 0, **webhook}
    _use(shop, {"profiles": {"p": {"hooks": {"enabled": ["audit"]}}}, "webhooks": {"audit": settings}})


def _use(shop: WorkerKit, changed: dict[str, Any]) -> None:
    read = Settings.model_validate_json(json.dumps(changed))
    shop.settings = shop.settings.model_copy(update={"profiles": read.profiles, "webhooks": read.webhooks})


def words(trace: Path) -> list[str]:
    """Return what the hooks noted."""
    return trace.read_text().split("\n")[:-1] if trace.exists() else []


@pytest.fixture(params=list(Kind))
def both(request: pytest.FixtureRequest, shop: WorkerKit, sync_shop: WorkerKit) -> WorkerKit:
    """A workshop of either kind, with a job whose profile is ``p``."""
    if request.param is Kind.ASYNC:

        @job("work", profile="p")
        async def work(number: int = 0) -> int:
            return number

        return shop

    @job("work", profile="p")
    def plain(number: int = 0) -> int:
        return number

    return sync_shop


async def execute(shop: WorkerKit, count: int) -> list[tuple[str, str, int]]:
    """Let a worker of the shop's kind work until so many attempts have ended; return what ended, in order of the ids."""
    if shop.settings.workers["test"].kind is WorkerKind.SYNC:
        return sorted(fork(shop, ended=count).report().history)
    async with shop.worker():
        await until(lambda: shop.ended(count), what="the runs")
    shop.assert_clean()
    return sorted(shop.history())


async def test_a_veto_ends_a_run_rejected_and_after_hears_of_every_end(both: WorkerKit, trace: Path) -> None:
    """Nothing failed, so it is not retried; what the other run reserved stays reserved."""
    with_budget(both, trace)
    refused, done = both.enqueue("work", number=13), both.enqueue("work", number=1)

    assert await execute(both, 2) == sorted([(refused, "rejected", 1), (done, "ok", 1)])
    assert sorted(words(trace)) == ["ok", "rejected", "reserve 1"]


async def test_the_history_and_the_log_say_which_hook_refused_a_run_and_why(
    shop: WorkerKit, trace: Path, logs: list[Any]
) -> None:
    """As ``tenure runs show`` tells it, and on a line of its own."""
    _coroutine_job()
    with_budget(shop, trace)
    refused = shop.enqueue("work", number=13)
    await execute(shop, 1)

    (entry,) = shop.store.run(shop.queues.recent("default", 10))
    assert (entry.run_id, entry.note) == (refused, "filter thooks_here:Budget: over budget")
    (line,) = [entry for entry in logs if entry["event"] == "fire_rejected"]
    assert (line["hook"], line["point"], line["reason"]) == ("thooks_here:Budget", "filter", "over budget")


async def test_a_run_that_is_put_off_waits_uncharged(shop: WorkerKit, trace: Path, logs: list[Any]) -> None:
    """It lies among the delayed ones, with no attempt on record; others go on."""
    _coroutine_job()
    with_budget(shop, trace)
    later = shop.enqueue("work", number=14)

    async with shop.worker():
        await until(lambda: any(entry["event"] == "run_deferred" for entry in logs), what="the answer")
        await until(lambda: shop.state(later) == "later", what="it to wait")
        shop.enqueue("work", number=1)
        await until(lambda: shop.ended(1), what="the other run")

    assert [outcome for _, outcome, _ in shop.history()] == ["ok"]
    view = shop.store.run(shop.queues.show(later))
    assert view is not None
    assert (view.attempts, view.crashes) == (0, 0)
    assert words(trace) == ["reserve 1", "ok"]


async def test_what_a_killed_worker_reserved_is_undone_by_the_next_attempt(both: WorkerKit, trace: Path) -> None:
    """Before it reserves anew: the process that died could not."""
    with_budget(both, trace)
    run_id = both.enqueue("work", number=1)
    _crash(both, run_id)

    assert await execute(both, 2) == [(run_id, "crashed", 1), (run_id, "ok", 1)]
    assert words(trace) == ["unreserve 2", "reserve 2", "ok"]


def _crash(shop: WorkerKit, run_id: str) -> None:
    """Let a worker have died in the middle of a run."""
    kind = Kind(shop.settings.workers["test"].kind.value)
    shop.store.run(shop.sessions.open("dead", {"pid": 1}))
    shop.store.run(shop.queues.turn(session="dead", seq=1, kind=kind, queues=["default"], want=1, want_suspect=False))
    shop.store.run(shop.queues.release_runs(session="dead", items=[("default", run_id, Release.CRASHED)]))
    shop.store.run(shop.sessions.close("dead"))


async def test_a_run_whose_profile_is_unknown_here_is_given_back(shop: WorkerKit, logs: list[Any]) -> None:
    """In a rolling update another worker may know it; nobody guesses what its hooks would have said."""
    _coroutine_job()
    run_id = shop.enqueue("work")

    async with shop.worker():
        await until(lambda: any(entry["event"] == "profile_unknown" for entry in logs), what="the refusal")
        await until(lambda: shop.state(run_id) == "later", what="it to wait")


def _coroutine_job() -> None:
    @job("work", profile="p")
    async def work(number: int = 0) -> int:
        return number


async def test_a_webhook_admits_refuses_and_hears_how_it_ended(both: WorkerKit, answers: Answers) -> None:
    """It is told which run and job it is about, and no argument; its headers come along."""
    with_webhook(
        both, answers.url, verbs=["filter", "after"], headers={"X-Key": "abc"}, secret="a secret of a receiver"
    )
    answers.replies = [(200, b'{"admit": false, "reason": "change freeze"}')]
    refused = both.enqueue("work", number=5)

    assert await execute(both, 1) == [(refused, "rejected", 1)]
    asked, told = answers.questions
    assert asked == {
        "version": 1, "verb": "filter", "hook": "audit", "run": refused, "job": "work", "attempt": 1,
        "schedule": None, "nominal_ms": None, "maybe_duplicate": False,
    }  # fmt: skip
    assert (told["verb"], told["outcome"], told["error"]) == ("after", "rejected", "filter audit: change freeze")
    sent = answers.headers[0]
    assert (sent["X-Key"], sent["Accept-Encoding"]) == ("abc", "identity")  # what is packed could not be read
    assert is_genuine("a secret of a receiver", sent[WEBHOOK_HEADER], answers.bodies[0], SystemClock().wall_ms() / 1000)


async def test_a_webhook_may_answer_with_nothing_at_all(both: WorkerKit, answers: Answers) -> None:
    """204 means: nothing against it."""
    with_webhook(both, answers.url)
    answers.replies = [(204, b"")]
    done = both.enqueue("work")

    assert await execute(both, 1) == [(done, "ok", 1)]


async def test_a_webhook_that_failed_once_is_asked_again_at_once(both: WorkerKit, answers: Answers) -> None:
    """``retries`` are within the question; the run does not notice."""
    with_webhook(both, answers.url, retries=2)
    done = both.enqueue("work")
    answers.replies = [(503, b""), (200, b'{"admit": true}')]

    assert await execute(both, 1) == [(done, "ok", 1)]
    assert len(answers.questions) == 2


FAILURES: list[tuple[Reply, str]] = [
    ((500, b"{}"), "answered 500"),
    ((302, b""), "answered 302"),
    ((200, b"<html>"), "answered no object with admit"),
    ((200, b'{"admit": "maybe"}'), "answered no object with admit"),
    ((200, b'{"admit": false, "retry_after_s": -1}'), "put the run off by -1"),
    ((200, b"x" * 70_000), "answered more than 65536 bytes"),
]


@pytest.mark.share(3)
@pytest.mark.parametrize(("reply", "message"), FAILURES)
async def test_garbage_from_a_webhook_puts_the_run_off(
    shop: WorkerKit, answers: Answers, logs: list[Any], reply: Reply, message: str
) -> None:
    """Not ignorable: nobody knows what it meant. Neither the URL's query nor an answer's body is in a message."""
    _coroutine_job()
    with_webhook(shop, answers.url)
    answers.replies = [reply] * 20
    run_id = shop.enqueue("work")

    async with shop.worker():
        await until(lambda: any(entry["event"] == "run_deferred" for entry in logs), what="the answer")
        await until(lambda: shop.state(run_id) == "later", what="it to wait")
    line = next(entry for entry in logs if entry["event"] == "run_deferred")
    assert message in line["reason"]
    assert "key=1" not in str(logs)
    assert "html" not in str(logs)


async def test_a_slow_webhook_is_given_up_at_its_timeout(shop: WorkerKit, answers: Answers, logs: list[Any]) -> None:
    """The run waits its turn again, others are not held up."""
    _coroutine_job()
    answers.is_slow = True
    with_webhook(shop, answers.url, timeout="50ms")
    run_id = shop.enqueue("work")

    async with shop.worker():
        await until(lambda: shop.state(run_id) == "later", what="it to wait")
    line = next(entry for entry in logs if entry["event"] == "run_deferred")
    assert "did not answer within 0." in line["reason"]  # its own 0.05 s, or the 0.55 s of all its tries together


async def test_an_ignorable_webhook_that_is_down_keeps_nothing_back(both: WorkerKit, answers: Answers) -> None:
    """The failure is counted; the run goes on."""
    with_webhook(both, answers.url, ignorable=True, verbs=["filter", "after"])
    answers.replies = [(500, b"")] * 2
    done = both.enqueue("work")

    assert await execute(both, 1) == [(done, "ok", 1)]


async def test_a_webhook_behind_tls_is_verified(shop: WorkerKit, logs: list[Any]) -> None:
    """By the authority that is configured, and by no other."""
    _coroutine_job()
    answers = Answers(is_tls=True)
    try:
        with_webhook(shop, answers.url, ca_file=str(TLS / "ca.pem"))
        done = shop.enqueue("work")
        assert await execute(shop, 1) == [(done, "ok", 1)]

        with_webhook(shop, answers.url)
        shop.enqueue("work")
        async with shop.worker():
            await until(lambda: any(entry["event"] == "run_deferred" for entry in logs), what="the refusal")
        line = next(entry for entry in logs if entry["event"] == "run_deferred")
        assert "cannot be reached: ClientConnectorCertificateError" in line["reason"]
    finally:
        answers.close()
