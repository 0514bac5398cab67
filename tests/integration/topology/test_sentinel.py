"""Behind real sentinels: the master is found, followed through fail-overs, and never confused with a deposed one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.settings.sections.models import RedisSettings, Settings
from supervisor.store.client.preflight import acl_rules, check
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import LeaseCode
from supervisor.store.keys import Keys
from supervisor.store.routing.resolver import CHECK_PERIOD_S
from supervisor.store.routing.sentinel_watch import CHANNELS
from tests.integration.topology.replica_sides import NONCE, Replica
from tests.kit.clients import Clients, works
from tests.kit.proxy import Proxy
from tests.kit.scripted_server import ScriptedServer
from tests.kit.topologies import LOOPBACK, MASTER, Node, Sentinels
from tests.kit.waiting import wait_until

SENTINEL_RULES = (
    "resetchannels",
    "-@all",
    "+auth",
    "+sentinel|get-master-addr-by-name",
    "+sentinel|master",
    "+sentinel|replicas",
    "+subscribe",
    *(f"&{channel}" for channel in CHANNELS),
)

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("sentinel")]
FAILOVER_S_MAX = 30.0  # generous: the sentinels wait for half a second, then elect one of them


@pytest.fixture
def replica(sentinels: Sentinels, connect: Clients, request: pytest.FixtureRequest) -> Iterator[Replica]:
    """A replica of Tenure with keys of its own."""
    replica = Replica(sentinels.url, connect, keys=Keys(f"t{abs(hash(request.node.name))}"))
    yield replica
    replica.close()


@pytest.fixture
def both(sentinels: Sentinels) -> Iterator[Replica]:
    """A replica of Tenure with children of both kinds, for tests that take seconds."""
    clients = [Clients("blocking"), Clients("asynchronous")]
    replica = Replica(sentinels.url, *clients, keys=Keys("both"))
    yield replica
    replica.close()
    for each in clients:
        each.close()


def test_the_master_is_found_and_children_follow(sentinels: Sentinels, replica: Replica) -> None:
    """One process searches; the others read where it found it."""
    with pytest.raises(StoreUnavailableError, match="has not found Redis yet"):
        replica.child.ping()
    term = replica.campaign()
    replica.enqueue("a")
    assert replica.elector.where == replica.child.where == sentinels.master().address
    assert replica.board.endpoint().address == sentinels.master().address
    assert replica.renew(term).code is LeaseCode.RENEWED


def test_a_killed_master_is_replaced_and_epochs_grow(sentinels: Sentinels, both: Replica) -> None:
    """The elector finds the promoted replica by itself, the children by the board; nobody is restarted."""
    replica = both
    term = replica.campaign()
    replica.enqueue("before")
    generation = replica.board.endpoint_generation
    old = sentinels.master()
    wait_until(lambda: sentinels.master().is_copied(2), what="the replicas to have it")
    old.kill()

    renewed = replica.renew(term)

    assert (renewed.code, renewed.epoch) == (LeaseCode.RENEWED, term.epoch)
    assert replica.elector.where != old.address
    assert replica.board.endpoint_generation > generation
    replica.enqueue("after")
    assert replica.child.where == replica.elector.where
    assert replica.child.run(replica.queues.show("before0")).state == "queued"
    assert replica.campaign(nonce="cd" * 16).epoch > term.epoch


def test_a_planned_failover_is_followed_although_nobody_asks(sentinels: Sentinels, both: Replica) -> None:
    """SENTINEL FAILOVER on healthy servers: the old master would go on serving for seconds, and all of it be lost."""
    replica = both
    replica.campaign()
    replica.enqueue("before")
    old = sentinels.master()
    wait_until(lambda: sentinels.master().is_copied(2), what="the replicas to have it")
    wait_until(lambda: all(map(is_listened_to, sentinels.sentinels)), what="the agent to listen to every sentinel")
    sentinels.sentinels[0].ask("SENTINEL", "FAILOVER", MASTER)

    def is_left() -> bool:
        return replica.board.endpoint().address not in {"", old.address}

    wait_until(is_left, what="the agent to hear of it", bound_s=FAILOVER_S_MAX)
    assert replica.leases_view().nonce == NONCE
    replica.enqueue("after")
    wait_until(lambda: sentinels.master().address == replica.child.where, what="the others to hear of it")
    for run_id in ("before0", "before1", "after0", "after1"):
        assert replica.patiently(replica.queues.show(run_id)).state == "queued"


def is_listened_to(sentinel: Node) -> bool:
    """Return whether a client has subscribed to all steps of a fail-over."""
    return b" sub=%d " % len(CHANNELS) in sentinel.ask("CLIENT", "LIST")


@pytest.mark.long
def test_a_deposed_master_that_goes_on_serving_is_left(sentinels: Sentinels, both: Replica) -> None:
    """It was cut off or stopped, and its clients with it; what it accepts will be lost."""
    replica, clock = both, both.clock
    term = replica.campaign()
    replica.enqueue("a")
    wait_until(lambda: sentinels.master().is_copied(2), what="the replicas to have it")
    old = sentinels.master()
    old.signal(signal.SIGSTOP)
    wait_until(lambda: sentinels.named() is not old, what="another master", bound_s=FAILOVER_S_MAX)
    old.signal(signal.SIGCONT)

    def is_left() -> bool:
        clock.ahead_ns += int(CHECK_PERIOD_S * 1e9) + 1
        assert replica.renew(term).code is LeaseCode.RENEWED
        return replica.elector.where != old.address

    wait_until(is_left, what="a check whose question is answered within its 50 ms")
    assert replica.elector.where == sentinels.master().address
    replica.enqueue("b")
    assert replica.child.where == sentinels.master().address


def test_a_silent_sentinel_costs_little(sentinels: Sentinels, connect: Clients) -> None:
    """The host that is lost often carries a master and a sentinel both."""
    master = sentinels.master()
    silent = Proxy((LOOPBACK, sentinels.sentinels[0].port))
    silent.black_hole()
    store = connect(Sentinels.url_of(silent.where, "127.0.0.1:1", sentinels.sentinels[1].address), timeout_s=0.75)
    works(store)
    assert store.where == master.address
    silent.close()


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", [StoreRefusedError, StoreUnavailableError])
def test_why_there_is_no_master_is_told(sentinels: Sentinels, connect: Clients, kind: type[Exception]) -> None:
    """A wrong name is for a person to correct; sentinels that do not answer may yet."""
    if kind is StoreRefusedError:
        url = Sentinels.url_of(sentinels.sentinels[0].address, "127.0.0.1:1", master="other")
        expected = "watches no master called other.*redis.url"
    else:
        url, expected = Sentinels.url_of("127.0.0.1:1", "127.0.0.1:2"), "127.0.0.1:1: .*refused"
    with pytest.raises(kind, match=expected):
        connect(url).ping()


def test_a_server_that_is_no_sentinel_is_told(sentinels: Sentinels, connect: Clients) -> None:
    """The port of the server instead of the sentinel's is the commonest mistake."""
    server = sentinels.master()
    with pytest.raises(StoreRefusedError, match="it is no sentinel"):
        connect(Sentinels.url_of(server.address)).ping()


def test_the_check_at_start_tells_a_wrong_name_from_an_outage(sentinels: Sentinels) -> None:
    """Exit 78 with the remedy, or a start that is not ready and tries again."""
    url = Sentinels.url_of(sentinels.sentinels[0].address, master="other")
    store = Store.connect(url, settings=RedisSettings(), name="c:preflight")
    found = check(store, Settings(redis=RedisSettings(url=url)))
    assert len(found) == 1
    assert "watches no master called other" in found[0].message
    assert "redis.url" in found[0].remedy
    away = Store.connect(Sentinels.url_of("127.0.0.1:1"), settings=RedisSettings(), name="c:preflight")
    with pytest.raises(StoreUnavailableError):
        check(away, Settings(redis=RedisSettings(url=url)))


@pytest.mark.share(2)
def test_sentinels_have_a_password_of_their_own(sentinels: Sentinels, connect: Clients, tmp_path: Path) -> None:
    """Missing or wrong it is refused, by the name of the setting; right, it leads to the master."""
    monitor = f"sentinel monitor guarded {LOOPBACK} {sentinels.master().port} 1"
    guarded = Node(tmp_path, monitor, "requirepass s3cret", is_sentinel=True, password="s3cret")
    try:
        url = Sentinels.url_of(guarded.address, master="guarded")
        for settings in ({}, {"sentinel_password": "not-it"}):
            with pytest.raises(StoreRefusedError, match=r"redis\.sentinel_password") as caught:
                connect(url, **settings).ping()
            assert "not-it" not in str(caught.value)
        works(connect(url, sentinel_password="s3cret"))
        guarded.ask("ACL", "SETUSER", "tenure", "on", ">s3cret", *SENTINEL_RULES)  # as docs/redis-acl.md says
        works(connect(url, sentinel_username="tenure", sentinel_password="s3cret"))
    finally:
        guarded.kill()


def test_a_sentinel_that_names_a_replica_is_not_believed(sentinels: Sentinels, connect: Clients) -> None:
    """The answer is verified with ROLE before it is used, so nothing is ever sent to it."""
    other = sentinels.replica()
    named = f"*2\r\n$9\r\n{LOOPBACK}\r\n${len(str(other.port))}\r\n{other.port}\r\n".encode()
    lying = ScriptedServer(lambda command: named if command[1].startswith("GET") else b"*0\r\n")
    with pytest.raises(StoreUnavailableError, match="says that it is a replica"):
        connect(Sentinels.url_of(lying.where)).ping()
    lying.close()


@pytest.mark.share(4)
@pytest.mark.parametrize("has_role", [True, False])
def test_a_user_without_the_right_to_ask_for_the_role_is_served(
    sentinels: Sentinels, connect: Clients, *, has_role: bool
) -> None:
    """The first write tells then; READONLY makes the client search again."""
    rules = [rule for rule in acl_rules("acl") if rule != "+role" or has_role]
    sentinels.master().ask("ACL", "SETUSER", "tenure", "reset", "on", ">pw", *rules)
    keys = Keys("acl")
    replica = Replica(sentinels.url, connect, keys=keys, username="tenure", password="pw")
    term = replica.campaign()
    replica.enqueue("a")
    assert replica.renew(term).nonce == NONCE
    replica.close()
    assert MASTER in sentinels.url
