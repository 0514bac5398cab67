"""A real web child, forked over a board and a listener that the test holds, as the parent does."""

from __future__ import annotations

import gc
import http.client
import mmap
import os
import selectors
import signal
import socket
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import redis

from supervisor.clock import SystemClock
from supervisor.core.jobs.job_spec import JobCard
from supervisor.core.model import Kind, Template
from supervisor.core.supervision.scoreboard import MAGIC, Board, board_words
from supervisor.core.supervision.states import ChildState, Phase, SlotState
from supervisor.roles.child import ChildContext, Listeners
from supervisor.roles.web import cluster_snapshot, main
from supervisor.settings.sections.models import Settings
from supervisor.store.client.sync_client import Store
from supervisor.store.queues.sessions import Sessions
from supervisor.store.schedules.definitions import Change, Definitions
from supervisor.telemetry import logs, metrics
from supervisor.telemetry.events import Mailbox
from tests.integration.roles.web.api_client import KEYS, NIGHTLY, SESSION, TOKENS, line
from tests.kit.builders import StoreCalls
from tests.kit.canary import CANARY
from tests.kit.servers import RealServer, Server
from tests.kit.waiting import wait_until

SLOTS = ("agent", "scheduler", "web", "worker-io-0", "worker-cpu-0")
WEB = SLOTS.index("web")
BOUND_S = 20.0
SECRETS = {
    "webhooks": {"audit": {"url": f"https://hooks.example/{CANARY}", "secret": CANARY, "headers": {"X-Key": CANARY}}},
    "plugins": {"cloud": {"command": ["collector", CANARY], "env": {"REGION": CANARY}, "secrets": {"key": CANARY}}},
}
"""Settings whose values no page may show."""

Answer = tuple[int, dict[str, str], str]


def readable(sockets: Iterable[socket.socket], *, within_s: float = 0.0) -> list[socket.socket]:
    """Return those of ``sockets`` that have something to read, or have ended; any number of any descriptor."""
    with selectors.DefaultSelector() as selector:
        for each in sockets:
            selector.register(each, selectors.EVENT_READ)
        return [cast("socket.socket", key.fileobj) for key, _ in selector.select(within_s)]


class Tree:
    """What the parent would hold: board, listener, the web child's process."""

    def __init__(self, directory: Path) -> None:
        size = board_words(slots=len(SLOTS), inflight=1)
        self.clock = SystemClock()
        self.board = Board(memoryview(mmap.mmap(-1, size * 8)).cast("Q"), slots=len(SLOTS), inflight=1)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self.listener.getsockname()[1]
        self.health: socket.socket | None = None
        self.grpc: socket.socket | None = None
        self.log = directory / "log"
        self.data_dir = directory
        self.settings = Settings.model_validate({"cluster": "c1", "redis": {"password": "hunter2"}})
        self.redis_url = f"unix://{directory}/absent.sock"
        self.mailbox: Mailbox | None = None
        self.pid = 0
        self.make_healthy()

    def make_healthy(self) -> None:
        """Write a replica in which all is well."""
        header, now_ns = self.board.header, self.clock.elapsed_ns()
        header.magic, header.slots, header.phase = MAGIC, len(SLOTS), Phase.READY
        header.parent_pid, header.started_ns = os.getpid(), now_ns
        header.parent_beat_ns = now_ns + 3600 * 10**9  # beats that a slow machine cannot age
        for row in self.board.rows:
            row.state = SlotState.RUNNING
        self.board.rows[0].redis_ok_ns = now_ns + 3600 * 10**9

    @property
    def row(self) -> Any:
        """The web child's row."""
        return self.board.rows[WEB]

    def start(self) -> None:
        """Fork the child as the parent does, and wait for it to be ready."""
        row = self.row
        row.clear_child_words()
        row.generation += 1
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(self._child())
        row.pid = self.pid
        wait_until(
            lambda: row.child_generation == row.generation and row.child_state == ChildState.READY, "web to be ready"
        )

    def _child(self) -> int:
        gc.disable()  # what the test process left behind is not for the child to collect, nor to warn about
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 2)
        try:
            logs.configure(level="debug", format="json", cluster="c1", replica="r1", role="web", stream=descriptor)
            metrics.claim_slot("web")
            return main(self.child())
        except BaseException:  # noqa: BLE001 - the process ends here, and the test reads why
            traceback.print_exc()
            return 70

    def child(self) -> ChildContext:
        """Return the context of the web child."""
        return ChildContext(
            settings=self.settings, replica="host.a1b2c3", name="web", slot=WEB, generation=self.row.generation,
            board=self.board, slot_names=SLOTS, parent_pid=os.getppid(), clock=self.clock, redis_url=self.redis_url,
            listeners=Listeners(self.listener, self.health, self.grpc), mailbox=self.mailbox,
        )  # fmt: skip

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send the child a signal, wait for its end, return its exit code as the shell would."""
        pid, self.pid = self.pid, 0
        os.kill(pid, number)
        statuses: list[int] = []

        def reaped() -> bool:
            got, status = os.waitpid(pid, os.WNOHANG)
            statuses.append(status)
            return got == pid

        try:
            wait_until(reaped, "web to end")
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        return os.waitstatus_to_exitcode(statuses[-1])

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Send one request and return status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=BOUND_S)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """Connect and say nothing."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=BOUND_S)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    """A tree whose web child is not started yet."""
    metrics.prepare(tmp_path / "metrics")
    made = Tree(tmp_path)
    yield made
    if made.pid:
        made.stop(signal.SIGKILL)
    for listener in (made.listener, made.health, made.grpc):
        if listener is not None:
            listener.close()
    metrics.forget()


@pytest.fixture
def web(tree: Tree) -> Tree:
    """A tree whose web child serves."""
    tree.start()
    return tree


@pytest.fixture
def store(real_server: RealServer) -> Any:
    """An empty server, with a job and a schedule in it."""
    with redis.Redis(unix_socket_path=str(real_server.socket), protocol=2) as raw:
        raw.flushall()
    store = Store.connect(real_server.url, settings=Settings().redis, name="test", timeout_s=20)
    card = JobCard(template=Template(job="mail.send", kind=Kind.ASYNC), required=[], optional=["secret_word"])
    store.run(Sessions(KEYS).publish_jobs({"mail.send": msgspec.json.encode(card)}))
    store.run(Definitions(KEYS).upsert([Change(definition=NIGHTLY)], wall_ms=1))
    yield store
    store.close()


@pytest.fixture
def more_tokens() -> str:
    """Lines of the tokens file beside the three of every test, for a module to replace."""
    return ""


@pytest.fixture
def patient_tree(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A tree whose web child waits for Redis as long as a page may take: one second is short for a busy machine."""
    monkeypatch.setattr(cluster_snapshot, "WAIT_S", 20.0)
    return tree


@pytest.fixture
def api(patient_tree: Any, real_server: RealServer, store: Store, tmp_path: Path, more_tokens: str) -> Any:
    """A web child whose reads are closed, and that knows three tokens, and more."""
    tree = patient_tree
    tokens = tmp_path / "tokens"
    tokens.write_text("# who may\n" + "".join(line(name, scope) for name, scope in TOKENS.items()) + more_tokens)
    tree.redis_url = real_server.url
    tree.settings = Settings.model_validate({"cluster": "c1", "web": {"tokens_file": str(tokens)}} | SECRETS)
    tree.tokens = tokens
    tree.start()
    return tree


@pytest.fixture
def world(api: Any, real_server: RealServer) -> Iterator[StoreCalls]:
    """The cluster of the API, with a worker of another replica that the test plays."""
    del api
    server = Server(real_server)
    server.keys = KEYS
    calls = StoreCalls(server)
    calls.open(SESSION)
    yield calls
    server.close()
