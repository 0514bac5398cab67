"""The clients: one send for each call, a bound on every wait, errors without secrets."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from supervisor.clock import SystemClock
from supervisor.core.election.lease import Term
from supervisor.core.errors import FencedError, StoreRefusedError, StoreUnavailableError
from supervisor.core.model import Kind
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import AsyncStore, Store
from supervisor.store.election.leases import LeaseCode, Leases
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.schedules.definitions import Definitions
from supervisor.store.scripts import script
from tests.kit.builders import NONCE, StoreCalls, envelope
from tests.kit.servers import RealServer, Server
from tests.kit.waiting import answered

KEYS = Keys("client-test")


class Proxy:
    """A unix socket in front of a server, which can swallow replies or say nothing at all."""

    def __init__(self, path: Path, target: str | None) -> None:
        self.path, self.target = path, target
        self.swallow = threading.Event()
        self.requests: list[bytes] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with near, socket.socket(socket.AF_UNIX) as far:
            if self.target:
                far.connect(self.target)
            while request := near.recv(1 << 20):
                self.requests.append(request)
                if not self.target:
                    continue
                far.sendall(request)
                reply = far.recv(1 << 20)
                if self.swallow.is_set():
                    return
                near.sendall(reply)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)  # ends the accept of the thread; close alone does not
        self.listener.close()


@pytest.fixture
def proxy(real_server: RealServer, short_dir: Path) -> Iterator[Proxy]:
    """A proxy in front of the real server."""
    proxy = Proxy(short_dir / "proxy.sock", str(real_server.socket))
    yield proxy
    proxy.close()


def connect(path: Path | str, *, timeout_s: float = 20.0, **settings: object) -> Store:
    return Store.connect(f"unix://{path}", settings=RedisSettings(**settings), name="c:test", timeout_s=timeout_s)


@pytest.mark.server
def test_a_lost_reply_is_told_and_the_call_is_not_sent_again(proxy: Proxy) -> None:
    """The client cannot know whether a repetition is safe; its caller does."""
    store, leases = connect(proxy.path), Leases(KEYS)
    store.run(leases.view())
    sent = len(proxy.requests)
    proxy.swallow.set()
    with pytest.raises(StoreUnavailableError, match="lease_view"):
        store.run(leases.view())
    assert len(proxy.requests) == sent + 1

    proxy.swallow.clear()
    assert store.run(leases.view()).code is LeaseCode.VIEW
    store.close()


@pytest.mark.server
def test_a_silent_server_costs_the_bound_and_no_more(short_dir: Path) -> None:
    """A peer that accepts and never answers, as a stopped process does."""
    silent = Proxy(short_dir / "silent.sock", None)
    store = connect(silent.path, timeout_s=0.2)
    clock = SystemClock()
    started = clock.elapsed_ns()
    with pytest.raises(StoreUnavailableError, match="no answer in time"):
        store.ping()
    with pytest.raises(StoreUnavailableError):
        store.ring(["x"], 0.1)
    with pytest.raises(StoreUnavailableError):
        store.run(Leases(KEYS).view(), timeout_s=0.1)
    assert clock.elapsed_ns() - started < 10e9
    store.close()
    silent.close()


@pytest.mark.server
async def test_a_silent_server_costs_the_asynchronous_client_its_bound(short_dir: Path) -> None:
    """The handshake is inside the bound, too."""
    silent = Proxy(short_dir / "silent.sock", None)
    store = AsyncStore.connect(f"unix://{silent.path}", settings=RedisSettings(), name="x", timeout_s=0.2)
    with pytest.raises(StoreUnavailableError, match="no answer in time"):
        await store.ping()
    with pytest.raises(StoreUnavailableError):
        await store.ring(["x"], 0.1)
    started_ns = SystemClock().elapsed_ns()
    with pytest.raises(StoreUnavailableError):
        await store.run(Leases(KEYS).view(), timeout_s=60)
    assert SystemClock().elapsed_ns() - started_ns < 30e9, "a call that may take long has a greeting that may not"
    await store.close()
    silent.close()


@pytest.mark.server
def test_the_handshake_is_small_and_names_the_client(proxy: Proxy) -> None:
    """Each extra command would be another right that a small ACL must grant."""
    store = connect(proxy.path)
    store.ping()
    handshake = b"".join(proxy.requests).upper()
    assert handshake.count(b"\r\n*") + 1 == 2
    assert b"SETNAME\r\n$13\r\nTENURE:C:TEST" in handshake
    store.close()


def test_a_script_unknown_to_the_server_is_sent_whole(world: StoreCalls) -> None:
    """A restarted server knows no script; nobody should notice."""
    world.lead()
    world.raw.script_flush()
    assert world.run(world.leases.view()).holder == "a"


def test_numbers_are_packed_as_text(world: StoreCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library ends the process where the handler of a signal raises as it writes a number: a job's time was over."""
    kinds: set[type] = set()
    pack = world.store._call_link.pack_commands

    def seen(commands: list[list[object]]) -> list[bytes]:
        kinds.update(type(part) for command in commands for part in command)
        packed: list[bytes] = pack(commands)
        return packed

    monkeypatch.setattr(world.store._call_link, "pack_commands", seen)
    assert world.enqueue(envelope("a")) == [True]
    assert world.store.command("LPUSH", world.keys.queue("other").hist, 7) == 1
    assert kinds == {str, bytes}


def test_a_fence_is_told_from_every_other_error(world: StoreCalls) -> None:
    """With the operation and both epochs."""
    term = world.lead()
    with pytest.raises(FencedError, match=f"declare_remove refused: epoch {term.epoch + 1} .*{term.epoch}"):
        world.run(Definitions(world.keys).remove(Term(term.epoch + 1, NONCE, 0), ids=["s"]))


def test_listening_returns_what_came_after_and_nothing_after_its_bound(world: StoreCalls) -> None:
    """Standbys block on the event stream."""
    assert answered(lambda: world.store.listen(world.keys.events, "0-0", 0.05)) == []
    term = world.lead()
    assert [fields["kind"] for _, fields in world.store.listen(world.keys.events, "0-0", 5)] == ["acquired"]
    assert answered(lambda: world.store.listen(world.keys.events, term.last_event, 0.05)) == []


def test_a_release_wakes_who_listens(world: StoreCalls) -> None:
    """The point of the stream: a hand-over takes a round trip, not a lease."""
    term = world.lead()
    heard: list[str] = []
    other = world.server.store()
    thread = threading.Thread(
        target=lambda: heard.extend(f["kind"] for _, f in other.listen(world.keys.events, term.last_event, 20))
    )
    thread.start()
    world.run(world.leases.release(Term(term.epoch, NONCE, 0), reason="x"))
    thread.join(30)
    assert heard == ["released"]


def test_an_enqueue_wakes_who_rings(world: StoreCalls) -> None:
    """An idle worker starts a run within a round trip."""
    bell = world.keys.queue("default").bell(Kind.ASYNC)
    heard: list[str | None] = []
    other = world.server.store()
    thread = threading.Thread(target=lambda: heard.append(other.ring([bell], 20)))
    thread.start()
    world.enqueue(envelope("a"))
    thread.join(30)
    assert heard == [bell]


async def test_the_asynchronous_client_makes_the_same_calls(server: Server) -> None:
    """Also while another task of it waits for the bell."""
    store, keys = server.async_store(), server.keys
    sessions, queues = Sessions(keys), Queues(keys)
    assert await store.run(sessions.open("s", {}))
    waiting = asyncio.create_task(store.ring([keys.queue("default").bell(Kind.ASYNC)], 20))
    await store.run(queues.enqueue(nonce="n", envelopes=[envelope("a")]))
    assert await waiting == keys.queue("default").bell(Kind.ASYNC)

    call = queues.turn(session="s", seq=1, kind=Kind.ASYNC, queues=["default"], want=1, want_suspect=False)
    both = await asyncio.gather(store.run(call), store.run(call))
    assert [reply.runs[0].envelope.id for reply in both] == ["a", "a"]
    await store.command("XADD", keys.events, "*", "kind", "lapsed")
    assert [fields["kind"] for _, fields in await store.listen(keys.events, "0-0", 20)] == ["lapsed"]
    await store.close()
    await store.ping()
    await store.close()


async def test_a_cancelled_wait_leaves_the_client_usable(server: Server) -> None:
    """A worker that is told to stop cancels its wait for the bell."""
    store = server.async_store()
    await store.command("RPUSH", "nothing", "x")
    assert await store.ring(["nothing"], 20)  # connected: the next one blocks at once
    waiting = asyncio.create_task(store.ring(["nothing"], 30))
    for _ in range(5):
        await store.ping()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await store.command("RPUSH", "nothing", "x", "x")  # fakeredis gives the first to the wait that was cancelled
    assert await store.ring(["nothing"], 20)
    await store.close()


@pytest.mark.server
@pytest.mark.parametrize(
    ("settings", "url", "why"),
    [
        ({"password": "s3cret-wrong"}, "unix://{}", "user name or password"),
        ({}, "unix://{}?password=s3cret-wrong", "user name or password"),
        ({"username": "nobody", "password": "s3cret-wrong"}, "unix://{}", "user name or password"),
        ({}, "unix://{}", "wants a password"),
    ],
)
def test_a_wrong_password_is_refused_and_never_shown(
    real_server: RealServer, settings: dict[str, str], url: str, why: str
) -> None:
    """Neither in the message nor in what a debugger prints."""
    path = real_server.socket
    with redis.Redis(unix_socket_path=str(path), protocol=2) as admin:
        admin.config_set("requirepass", "right")
    try:
        store = Store.connect(url.format(path), settings=RedisSettings(**settings), name="t")
        with pytest.raises(StoreRefusedError, match=why) as caught:
            store.ping()
    finally:
        with redis.Redis(unix_socket_path=str(path), protocol=2, password="right") as admin:
            admin.config_set("requirepass", "")
    chain = f"{caught.value!r} {caught.value.__cause__!r} {store!r}"
    assert "s3cret" not in chain
    store.close()


@pytest.mark.server
def test_a_server_that_comes_back_is_found_again(short_dir: Path) -> None:
    """The connection of before is seen to be dead before the next call, so that call does not fail for it."""
    with ExitStack() as started:
        first = RealServer(short_dir)
        started.callback(first.stop)
        store = connect(first.socket)
        started.callback(store.close)
        store.ping()
        first.stop()
        with pytest.raises(StoreUnavailableError):
            store.ping()
        for _ in range(2):
            again = RealServer(short_dir)
            started.callback(again.stop)
            store.ping()
            again.stop()


def test_every_script_is_known_by_the_digest_that_the_server_computes(world: StoreCalls) -> None:
    """EVALSHA goes by it."""
    for name in ("turn", "fire", "lease_renew"):
        item = script(name)
        assert world.raw.script_load(item.source) in {item.sha, item.sha.encode()}
