"""The search for the master, where hosts are silent, confused or gone: it ends, within its bound, and says why."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from supervisor.clock import SystemClock
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.process.spawn import allocate
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.routing.resolver import CHECK_PERIOD_S
from tests.kit.clients import Clients
from tests.kit.clock import ShiftedClock
from tests.kit.proxy import Proxy
from tests.kit.scripted_server import ScriptedServer, handshake
from tests.kit.waiting import wait_until

SLACK_S = 18.0  # what a busy machine may add to a bound
_CLOCK = SystemClock()


class Servers:
    """Scripted servers that end with the test."""

    def __init__(self) -> None:
        self.all: list[ScriptedServer] = []

    def start(self, **answers: bytes) -> ScriptedServer:
        """Start one that answers commands by name; a command without an answer is never answered."""

        def answer(command: list[str]) -> bytes:
            return handshake(command) or answers.get(command[0].lower(), b"")

        self.all.append(ScriptedServer(answer))
        return self.all[-1]

    def master(self) -> ScriptedServer:
        return self.start(role=b"*3\r\n$6\r\nmaster\r\n:1\r\n*0\r\n", ping=b"+PONG\r\n")

    def sentinel(self, master: ScriptedServer) -> ScriptedServer:
        # Serves both questions of a sentinel: the second is read for its epoch, which this one does not tell.
        named = f"*2\r\n$9\r\n127.0.0.1\r\n${len(str(master.port))}\r\n{master.port}\r\n".encode()
        return self.start(sentinel=named)


@pytest.fixture
def servers() -> Iterator[Servers]:
    """Servers that say what the test wants."""
    servers = Servers()
    yield servers
    for each in servers.all:
        each.close()


def connect(topology: str, *hosts: ScriptedServer, clock: SystemClock | None = None, timeout_s: float = 30.0) -> Store:
    listed = ",".join(host.where for host in hosts)
    url = f"redis+{topology}://:s3cret@{listed}{'/m' if topology == 'sentinel' else ''}"
    return Store.connect(url, settings=RedisSettings(), name="search:test", timeout_s=timeout_s, clock=clock)


@pytest.mark.parametrize("topology", ["sentinel", "cluster"])
def test_a_search_among_silent_hosts_ends_within_the_bound(servers: Servers, topology: str) -> None:
    """They are asked all at once, so their number does not matter."""
    store = connect(topology, *(servers.start() for _ in range(8)), timeout_s=3.0)
    started_ns = _CLOCK.elapsed_ns()
    with pytest.raises(StoreUnavailableError, match="no answer in time") as caught:
        store.ping()
    assert (_CLOCK.elapsed_ns() - started_ns) / 1e9 < 3.0 + SLACK_S  # one after the other: 24 s
    assert "s3cret" not in str(caught.value)
    store.close()


def test_one_that_answers_is_not_delayed_by_those_that_do_not(servers: Servers) -> None:
    """The others get a moment to tell of a newer configuration, and no more."""
    master = servers.master()
    store = connect("sentinel", servers.start(), servers.sentinel(master), servers.start(), timeout_s=60.0)
    started_ns = _CLOCK.elapsed_ns()
    store.ping()
    assert (_CLOCK.elapsed_ns() - started_ns) / 1e9 < SLACK_S
    assert store.where == master.where
    store.close()


def test_nodes_that_point_to_each_other_are_not_followed_for_ever(servers: Servers) -> None:
    """Half-way through a reconfiguration they may."""
    first = servers.start()
    second = servers.start(exists=f"-MOVED 1 {first.where}\r\n".encode())
    first.answer = lambda command: handshake(command) or f"-MOVED 1 {second.where}\r\n".encode()
    with pytest.raises(StoreUnavailableError, match="point to each other"):
        connect("cluster", first, second).ping()


def test_a_cluster_that_is_down_is_waited_for(servers: Servers) -> None:
    """Its slots may be covered again soon."""
    node = servers.start(exists=b"-CLUSTERDOWN Hash slot not served\r\n")
    with pytest.raises(StoreUnavailableError, match="not served"):
        connect("cluster", node).ping()


def test_a_wrong_password_is_for_a_person(servers: Servers) -> None:
    """By the name of the setting, and without the password."""
    node = servers.start()
    node.answer = lambda _: b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
    with pytest.raises(StoreRefusedError, match=r"redis\.password") as caught:
        connect("cluster", node).ping()
    assert "s3cret" not in str(caught.value)


def test_a_master_that_refuses_the_password_is_for_a_person(servers: Servers) -> None:
    """The sentinels know it; at the start this is exit 78, not a wait."""
    master = servers.master()
    store = connect("sentinel", servers.sentinel(master))
    master.answer = lambda _: b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
    with pytest.raises(StoreRefusedError, match=r"redis\.password"):
        store.ping()


@pytest.mark.parametrize("topology", ["sentinel", "cluster"])
def test_replies_in_drops_do_not_outlast_the_bound(servers: Servers, topology: str) -> None:
    """Neither those of the hosts that are asked, nor those of the one that is verified."""
    node = servers.start(exists=b":0\r\n", ping=b"+PONG\r\n")
    slow = Proxy(("127.0.0.1", node.port))
    slow.throttle(size=1, every_s=0.15)
    named = servers.sentinel(node)
    named.answer = lambda _: f"*2\r\n$9\r\n127.0.0.1\r\n${len(str(slow.port))}\r\n{slow.port}\r\n".encode()
    asked = named.where if topology == "sentinel" else slow.where
    url = f"redis+{topology}://:s3cret@{asked}{'/m' if topology == 'sentinel' else ''}"
    store = Store.connect(url, settings=RedisSettings(), name="search:test", timeout_s=0.5)
    started_ns = _CLOCK.elapsed_ns()
    with pytest.raises(StoreUnavailableError, match="no answer in time"):
        store.ping()
    assert (_CLOCK.elapsed_ns() - started_ns) / 1e9 < 0.5 + SLACK_S
    store.close()
    slow.close()


def test_a_name_that_no_board_can_carry_is_not_believed(servers: Servers) -> None:
    """A confused sentinel must not stop the tree."""
    lying = servers.start(sentinel=b"*2\r\n$3\r\na b\r\n$1\r\n1\r\n")
    with pytest.raises(StoreUnavailableError, match="not an address"):
        connect("sentinel", lying).ping()


def test_sentinels_that_vanish_disturb_nobody_who_has_a_master(servers: Servers) -> None:
    """The regular check finds nobody to ask, and the connection stays as it was."""
    clock = ShiftedClock()
    master = servers.master()
    sentinel = servers.sentinel(master)
    store = connect("sentinel", sentinel, clock=clock)
    store.ping()
    roles = master.commands.count(["ROLE"])
    sentinel.close()
    for _ in range(3):
        clock.advance(CHECK_PERIOD_S)
        store.ping()
    assert master.commands.count(["ROLE"]) == roles  # nobody connected anew
    store.close()


def test_without_a_thread_a_check_stays_and_a_search_is_told_why(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job may take all that the machine gives; the process that asks must not end by it."""
    clock = ShiftedClock()
    master = servers.master()
    store = connect("sentinel", servers.sentinel(master), clock=clock)
    store.ping()
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name.startswith("resolver"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    clock.advance(CHECK_PERIOD_S)
    store.ping()
    store.close()
    with pytest.raises(StoreUnavailableError, match="no thread"):
        connect("sentinel", servers.sentinel(master)).ping()


def test_a_check_goes_over_to_a_newer_master_and_asks_it_first(servers: Servers) -> None:
    """Without an error: the old one still answers."""
    clock = ShiftedClock()
    old, new = servers.master(), servers.master()
    sentinel = servers.sentinel(old)
    store = connect("sentinel", sentinel, clock=clock)
    store.ping()
    sentinel.answer = servers.sentinel(new).answer
    store.ping()
    assert store.where == old.where

    def goes_over() -> bool:
        clock.advance(CHECK_PERIOD_S)
        store.ping()
        return store.where == new.where

    wait_until(goes_over, what="a check whose question is answered within its 50 ms")
    assert new.commands[1][0] == "CLIENT"
    assert ["ROLE"] in new.commands
    store.close()


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("silences", [0, 3])
def test_nothing_is_sent_to_a_master_that_sentinels_replace(servers: Servers, silences: int, count: int) -> None:
    """It would accept it, and all of it be lost: the tree waits until the chosen replica says that it is master.

    The sentinel that told of it may be slow to answer, and another that knows of nothing answers first.
    """
    old, new = servers.master(), servers.start(role=b"*3\r\n$5\r\nslave\r\n$1\r\nh\r\n:1\r\n")
    is_replaced = threading.Event()
    sentinel, left = servers.start(), iter(range(silences))
    others = [servers.sentinel(old) for _ in range(count - 1)]

    def answer(command: list[str]) -> bytes:
        match command:
            case ["SUBSCRIBE", *_]:
                is_replaced.wait()
                return array("message", "+selected-slave", f"slave x 127.0.0.1 {new.port} @ m 127.0.0.1 {old.port}")
            case [_, "GET-MASTER-ADDR-BY-NAME", _]:
                return array("127.0.0.1", str(old.port))
            case [_, "MASTER", _]:
                if is_replaced.is_set() and next(left, None) is not None:
                    return b""
                return array("flags", "master,failover_in_progress" if is_replaced.is_set() else "master")
            case [_, "REPLICAS", _]:
                return b"*1\r\n" + array("ip", "127.0.0.1", "port", str(new.port), "flags", "slave,promoted")
        return handshake(command) or b""

    sentinel.answer = answer
    board = allocate(slots=1, inflight=1)
    store = Store.connect(
        f"redis+sentinel://{','.join(each.where for each in (sentinel, *others))}/m",
        settings=RedisSettings(),
        name="search:test",
        publish=board.publish_endpoint,
    )
    store.ping()
    assert board.endpoint().address == old.where
    is_replaced.set()
    wait_until(lambda: board.endpoint().address == "", what="the tree to be held back")
    left = iter(range(silences))
    sent = len(old.commands)
    with pytest.raises(StoreUnavailableError):
        store.ping()
    new.answer = servers.master().answer

    def goes_on() -> bool:
        with suppress(StoreUnavailableError):
            store.ping()
        return store.where == new.where

    wait_until(goes_on, what="the replica to be followed once it is master")
    assert old.commands[sent:] == []
    store.close()


def array(*texts: str) -> bytes:
    """Return the texts as an array of the protocol."""
    return b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%s\r\n" % (len(text), text.encode()) for text in texts)


@pytest.mark.parametrize("kind", ["blocking", "asynchronous"])
def test_a_child_sends_nothing_to_a_server_that_the_agent_has_left(servers: Servers, kind: str) -> None:
    """Its connection there still works, and a fire would be accepted: it is dropped before the next call."""
    clients = Clients(kind)
    board = allocate(slots=1, inflight=1)
    old, new = servers.master(), servers.master()
    child = clients("redis+sentinel://127.0.0.1:1/m", follow=board)
    board.publish_endpoint(old.where)
    child.ping()
    child.ping()
    board.publish_endpoint(new.where)
    child.ping()
    assert old.commands.count(["PING"]) == 2
    assert new.commands.count(["PING"]) == 1
    assert child.where == new.where
    board.publish_endpoint(new.where)
    child.ping()
    assert new.commands.count(["ROLE"]) == 1, "the same address again is no reason to connect anew"
    clients.close()


@pytest.mark.parametrize("is_connected", [True, False])
@pytest.mark.parametrize("kind", ["blocking", "asynchronous"])
def test_a_child_does_not_wait_for_a_master_that_was_lost(servers: Servers, kind: str, *, is_connected: bool) -> None:
    """Nobody answers there any more, and the agent knows better before the bound of the call is over."""
    clients = Clients(kind)
    board = allocate(slots=1, inflight=1)
    old, new = servers.master(), servers.master()
    child = clients("redis+sentinel://127.0.0.1:1/m", follow=board, timeout_s=60.0)
    board.publish_endpoint(old.where)
    if is_connected:
        child.ping()
    old.answer = lambda _: b""
    publisher = threading.Timer(0.1, board.publish_endpoint, [new.where])
    publisher.start()
    started_ns = _CLOCK.elapsed_ns()
    with pytest.raises(StoreUnavailableError, match="found another master"):
        child.ping()
    assert (_CLOCK.elapsed_ns() - started_ns) / 1e9 < SLACK_S
    publisher.join()
    child.ping()
    assert child.where == new.where
    clients.close()


@pytest.mark.parametrize("kind", ["blocking", "asynchronous"])
def test_a_child_takes_no_replica_for_a_master(servers: Servers, kind: str) -> None:
    """The agent's word may be old by the time it connects."""
    clients = Clients(kind)
    board = allocate(slots=1, inflight=1)
    replica = servers.start(role=b"*3\r\n$5\r\nslave\r\n$1\r\nh\r\n:1\r\n", ping=b"+PONG\r\n")
    child = clients("redis+sentinel://127.0.0.1:1/m", follow=board)
    board.publish_endpoint(replica.where)
    with pytest.raises(StoreUnavailableError, match="it is a replica now"):
        child.ping()
    assert ["PING"] not in replica.commands
    clients.close()


def test_the_tree_is_told_before_anything_is_sent(servers: Servers) -> None:
    """A child that sees a term confirmed by the new master must see the new master, too."""
    master = servers.master()
    seen: list[list[str]] = []
    store = Store.connect(
        f"redis+sentinel://{servers.sentinel(master).where}/m",
        settings=RedisSettings(),
        name="search:test",
        publish=lambda address: seen.extend([[address], *master.commands]),
    )
    store.ping()
    assert seen[0] == [master.where]
    assert {command[0] for command in seen[1:]} <= {"CLIENT", "ROLE"}
    store.close()
