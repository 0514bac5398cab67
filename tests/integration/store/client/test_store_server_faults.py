"""What a server can do to a client: restart, fail over, refuse, run out, be reconfigured.

The error says which server, why and what to do, and the same client works again when the server does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.store.client.preflight import acl_rules
from supervisor.store.election.leases import CandidateInfo, LeaseCode, Leases
from supervisor.store.queues.runs import Queues
from tests.kit.builders import envelope
from tests.kit.clients import CALL, KEYS, Clients, refused, rings, unavailable, works
from tests.kit.scripted_server import ScriptedServer, handshake
from tests.kit.servers import RealServer
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.server
ENDLESS = "while true do end"


@pytest.fixture(params=["blocking", "asynchronous"])
def connect(request: pytest.FixtureRequest) -> Iterator[Clients]:
    """Clients of one kind, then of the other."""
    clients = Clients(request.param)
    yield clients
    clients.close()


@pytest.fixture
def admin(real_server: RealServer) -> Iterator[redis.Redis]:
    """A client for sabotage."""
    with redis.Redis(unix_socket_path=str(real_server.socket), protocol=2, driver_info=None) as admin:
        yield admin
        admin.flushall()


@contextmanager
def config(admin: redis.Redis, **values: object) -> Iterator[None]:
    """Set options of the server for a while."""
    names = {name: name.replace("_", "-") for name in values}
    before = {name: admin.config_get(option)[option] for name, option in names.items()}
    try:
        for name, value in values.items():
            admin.config_set(names[name], value)
        yield
    finally:
        for name, value in before.items():
            admin.config_set(names[name], value)


def campaign() -> Any:
    """Return a call that writes."""
    info = CandidateInfo(replica="a", host="h", pid=1, version="1")
    return Leases(KEYS).campaign(
        replica="a",
        nonce="ab" * 16,
        duration_ms=5000,
        floor=0,
        mode="cold",
        observed_epoch=0,
        observed_seq=0,
        info=info,
    )


def url_of(real: RealServer) -> str:
    """Return the server's address with a password that it takes and that nobody may see."""
    return f"unix://default:s3cret@{real.socket}"


@pytest.mark.parametrize("keeps_data", [True, False])
def test_a_restarted_server_is_found_again(connect: Clients, short_dir: Path, *, keeps_data: bool) -> None:
    """With its data or without: it knows no script and no connection, and nobody has to be restarted."""
    options = ("--appendonly", "yes", "--appendfsync", "always") if keeps_data else ()
    with ExitStack() as started:
        first = RealServer(short_dir, *options)
        started.callback(first.stop)
        store = connect(url_of(first))
        assert store.run(campaign()).code is LeaseCode.GRANTED
        first.stop()
        unavailable(store, "lease_view", where=str(first.socket))
        again = RealServer(short_dir, *options)
        started.callback(again.stop)
        wait_until(lambda: _answers(store), what="the server to have its data")
        assert store.run(CALL).holder == ("a" if keeps_data else "")


def _answers(store: Any) -> bool:
    with suppress(StoreUnavailableError):
        store.ping()
        return True
    return False


def test_a_loading_server_is_waited_for(connect: Clients) -> None:
    """It answers each command so until it has read its data."""
    loading = [b"-LOADING Redis is loading the dataset in memory\r\n"] * 2

    def answer(command: list[str]) -> bytes:
        return handshake(command) or (loading.pop() if loading else b"+PONG\r\n")

    server = ScriptedServer(answer)
    store = connect(server.url)
    for _ in range(2):
        unavailable(store, "loading its data", where=server.where)
    store.ping()
    server.close()


def test_protected_mode_is_a_refusal_with_its_remedy(connect: Clients) -> None:
    """The server says a page of text and hangs up; one line of it is enough."""
    server = ScriptedServer(lambda _: b"-DENIED Redis is running in protected mode because " + b"x" * 900 + b"\r\n")
    message = refused(connect(server.url), "give the server a password", where=server.where)
    assert len(message) < 250
    server.close()


def test_a_master_that_became_a_replica_takes_no_call(
    connect: Clients, real_server: RealServer, short_dir: Path
) -> None:
    """The connection to it is given up: the name may lead to another server by now."""
    other = RealServer(short_dir, "--replicaof", "127.0.0.1 1", "--replica-serve-stale-data", "yes")
    store = connect(url_of(other))
    with pytest.raises(StoreUnavailableError, match="read-only replica"):
        store.run(campaign())
    with redis.Redis(unix_socket_path=str(other.socket), protocol=2) as admin:
        admin.config_set("replica-serve-stale-data", "no")
        unavailable(store, "its master is down", where=str(other.socket))
        admin.replicaof("NO", "ONE")
    assert store.run(campaign()).code is LeaseCode.GRANTED
    other.stop()


def test_a_blocked_read_is_woken_when_its_master_is_demoted(connect: Clients, short_dir: Path) -> None:
    """A standby waits for events there, and would wait on the wrong server."""
    server = RealServer(short_dir)
    store = connect(url_of(server))
    with redis.Redis(unix_socket_path=str(server.socket), protocol=2) as admin:
        demoter = threading.Thread(target=lambda: (_await_blocked(admin), admin.replicaof("127.0.0.1", 1)))
        demoter.start()
        with pytest.raises(StoreUnavailableError, match=r"become a replica|read-only replica"):
            store.ring([f"{KEYS.prefix}none"], 30)
        demoter.join()
    server.stop()


def _await_blocked(admin: redis.Redis) -> None:
    wait_until(lambda: admin.info("clients")["blocked_clients"] > 0, what="the read to block")


def test_forgotten_scripts_are_sent_again(connect: Clients, real_server: RealServer, admin: redis.Redis) -> None:
    """SCRIPT FLUSH, or a fail-over to a server that never saw them."""
    store = connect(url_of(real_server))
    works(store)
    admin.script_flush()
    works(store)


def test_a_script_that_blocks_the_server_is_told(connect: Clients, real_server: RealServer, admin: redis.Redis) -> None:
    """Somebody else's: the remedy is theirs to use, and it is named."""
    store = connect(url_of(real_server))
    works(store)
    with (
        config(admin, busy_reply_threshold=1)
        if "busy-reply-threshold" in admin.config_get("busy*")
        else config(admin, lua_time_limit=1)
    ):
        endless = threading.Thread(target=_run_endless, args=(real_server,))
        endless.start()
        wait_until(lambda: _is_busy(admin), what="the server to be busy")
        unavailable(store, "SCRIPT KILL", where=str(real_server.socket))
        admin.script_kill()
        endless.join()
    works(store)


def _run_endless(real: RealServer) -> None:
    with (
        redis.Redis(unix_socket_path=str(real.socket), protocol=2, driver_info=None) as client,
        suppress(redis.ResponseError),
    ):
        client.eval(ENDLESS, 0)


def _is_busy(admin: redis.Redis) -> bool:
    try:
        admin.ping()
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False


def test_a_right_that_is_taken_away_is_named_and_missed_no_longer_when_it_is_back(
    connect: Clients, real_server: RealServer, admin: redis.Redis
) -> None:
    """The client of before goes on: nobody restarts a tree because of an ACL."""
    rules = [f"+{command}" for command in ("eval", "evalsha", "hmget", "get", "time", "xrevrange")]
    admin.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">s3cret", *acl_rules("faults"))
    store = connect(f"unix://worker:s3cret@{real_server.socket}")
    works(store)
    admin.execute_command("ACL", "SETUSER", "worker", "-evalsha")
    message = refused(store, "evalsha", where=str(real_server.socket))
    assert "docs/redis-acl.md" in message
    admin.execute_command("ACL", "SETUSER", "worker", *rules)
    works(store)
    admin.execute_command("ACL", "DELUSER", "worker")  # the server drops its connections, a moment later
    wait_until(lambda: all(each["user"] != "worker" for each in admin.client_list()), what="them to be dropped")
    connect.let_the_loop_read()
    refused(store, "user name or password", where=str(real_server.socket))
    admin.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">s3cret", *acl_rules("faults"))
    works(store)
    admin.execute_command("ACL", "DELUSER", "worker")


def test_a_killed_connection_costs_no_call(connect: Clients, real_server: RealServer, admin: redis.Redis) -> None:
    """CLIENT KILL, or an idle time-out of the server: seen before the next call is sent."""
    store = connect(url_of(real_server))
    works(store)
    assert admin.client_kill_filter(_type="normal", skipme=True) >= 1
    connect.let_the_loop_read()
    works(store)


def test_a_blocked_connection_that_is_killed_is_told(
    connect: Clients, real_server: RealServer, admin: redis.Redis
) -> None:
    """And the next read has a new one."""
    store = connect(url_of(real_server))
    killer = threading.Thread(
        target=lambda: (_await_blocked(admin), admin.client_kill_filter(_type="normal", skipme=True))
    )
    killer.start()
    with pytest.raises(StoreUnavailableError, match=str(real_server.socket)):
        store.ring([f"{KEYS.prefix}none"], 30)
    killer.join()
    rings(store, f"{KEYS.prefix}none")


def test_a_server_without_room_is_told(connect: Clients, real_server: RealServer, admin: redis.Redis) -> None:
    """Before the handshake, and with the name of the limit."""
    store = connect(url_of(real_server))
    admin.ping()
    with config(admin, maxclients=1):
        # The server hangs up after its word: a client that writes meanwhile sees a broken pipe instead.
        wait_until(lambda: "maxclients" in unavailable(store, ".", where=str(real_server.socket)), what="its word")
    works(store)


def test_a_key_of_another_type_is_refused(connect: Clients, real_server: RealServer, admin: redis.Redis) -> None:
    """Another program uses the prefix: nothing that waits will mend it."""
    store = connect(url_of(real_server))
    admin.set(KEYS.lease, "mine")
    refused(store, "holds another type", where=str(real_server.socket))
    admin.delete(KEYS.lease)
    works(store)


@pytest.mark.parametrize(
    ("option", "why"), [("maxmemory", "raise maxmemory"), ("min_replicas_to_write", "too few replicas")]
)
def test_a_server_that_takes_no_writes_is_waited_for(
    connect: Clients, real_server: RealServer, admin: redis.Redis, option: str, why: str
) -> None:
    """Out of memory, or alone: both pass. What adds a run is refused; what keeps the cluster alive needs no memory."""
    store = connect(url_of(real_server))
    adding = Queues(KEYS).enqueue(nonce="ab" * 16, envelopes=[envelope("a")])
    with config(admin, **{option: 1}), pytest.raises(StoreUnavailableError, match=why):
        store.run(adding)
    assert [each.is_new for each in store.run(adding)] == [True]


@pytest.mark.parametrize("reply", [[b"rubbish", b"rubbish"], None, [], [b"1"]])
def test_a_reply_that_cannot_be_read_is_refused(connect: Clients, real_server: RealServer, *, reply: object) -> None:
    """A hand wrote into a key: a worker that ended over it would take its runs with it, and meet the same again."""

    def parse(_: object) -> int:
        return int(reply[1])  # type: ignore[index]

    store = connect(real_server.url)
    with pytest.raises(StoreRefusedError, match="lease_view: its reply cannot be read"):
        store.run(replace(CALL, parse=parse))
    works(store)
