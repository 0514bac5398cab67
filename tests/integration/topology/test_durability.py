"""``redis.durability: replica`` on a real master with a real replica: what is not copied does not count."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from supervisor.core.effects import Call
from supervisor.core.election.lease import Term
from supervisor.core.errors import NotReplicatedError, StoreRefusedError, StoreUnavailableError
from supervisor.core.model import Envelope, Kind, Template
from supervisor.settings.sections.models import RedisSettings, Settings
from supervisor.store.client.preflight import acl_rules, check
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import CandidateInfo, LeaseCode, Leases
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Enqueued, Queues
from tests.kit.clients import Clients
from tests.kit.topologies import LOOPBACK, Node
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("sentinel")]
KEYS = Keys("durable")
LEASES, QUEUES = Leases(KEYS), Queues(KEYS)
SETTINGS = {"durability": "replica", "durability_timeout": 0.1}
PATIENT = {**SETTINGS, "durability_timeout": 10}  # where the copy is to be confirmed


class Pair:
    """A master and its replica, without anybody who would fail them over."""

    def __init__(self, directory: Path) -> None:
        self.master = Node(directory)
        self.replica = Node(directory, f"replicaof {LOOPBACK} {self.master.port}")
        self.url = f"redis://{self.master.address}/0"

    def is_whole(self) -> bool:
        return len(self.master.ask("ROLE")[2]) == 1

    def empty(self) -> None:
        """Drop every key on both: WAIT asks the replica at once, and counts what its own connection wrote."""
        with redis.Redis(host=LOOPBACK, port=self.master.port, protocol=2, single_connection_client=True) as client:
            client.flushall()
            assert client.wait(1, 20_000) == 1

    def close(self) -> None:
        for node in (self.master, self.replica):
            node.signal(signal.SIGCONT)
            node.kill()


@pytest.fixture(scope="module")
def deployment() -> Iterator[Pair]:
    """Two servers for all tests of the module."""
    directory = Path(tempfile.mkdtemp(prefix="tenure-pair-"))
    pair = Pair(directory)
    yield pair
    pair.close()
    shutil.rmtree(directory)


@pytest.fixture
def pair(deployment: Pair) -> Pair:
    """The two, in step and empty."""
    deployment.replica.signal(signal.SIGCONT)
    wait_until(deployment.is_whole, what="the replica to be connected")
    deployment.empty()
    return deployment


def campaign(nonce: str = "ab" * 16) -> Any:
    """Return the question for the lease."""
    info = CandidateInfo(replica="a", host="h", pid=1, version="1")
    return LEASES.campaign(
        replica="a", nonce=nonce, duration_ms=60_000, floor=0, mode="cold", observed_epoch=0, observed_seq=0, info=info
    )


def enqueue() -> Any:
    """Return a call that puts one run into a queue."""
    envelope = Envelope(id="x", template=Template(job="tests.noop", kind=Kind.ASYNC))
    return QUEUES.enqueue(nonce="n", envelopes=[envelope])


def test_what_a_replica_has_counts(pair: Pair, connect: Clients) -> None:
    """One round trip more, in the same write; the answer is the script's."""
    store = connect(pair.url, **PATIENT)
    assert store.run(campaign()).code is LeaseCode.GRANTED
    assert store.run(enqueue()) == [Enqueued("x", is_new=True)]


def test_a_grant_that_no_replica_has_is_no_grant_and_is_found_again(pair: Pair, connect: Clients) -> None:
    """It is an outage to the caller, who asks again with the same nonce and then owns the term."""
    store = connect(pair.url, **SETTINGS)
    store.ping()
    pair.replica.signal(signal.SIGSTOP)
    for _ in range(2):
        with pytest.raises(NotReplicatedError, match=r"lease_campaign.*within 100 ms") as caught:
            store.run(campaign())
        assert isinstance(caught.value, StoreUnavailableError)
        assert pair.master.address in str(caught.value)

    pair.replica.signal(signal.SIGCONT)
    view = wait_until(lambda: patiently(store, campaign()), what="the replica to have the grant")
    assert view.code is LeaseCode.SAME


def test_a_grant_that_was_found_again_is_not_confirmed_by_a_renewal_either(pair: Pair, connect: Clients) -> None:
    """The elector reads what became of an unanswered campaign, and renews it before it trusts it."""
    store = connect(pair.url, **SETTINGS)
    store.ping()
    pair.replica.signal(signal.SIGSTOP)
    with pytest.raises(NotReplicatedError):
        store.run(campaign())
    view = store.run(LEASES.view())
    assert view.holder == "a"
    renew = LEASES.renew(Term(view.epoch, "ab" * 16, 0), duration_ms=60_000)
    with pytest.raises(NotReplicatedError):
        store.run(renew)
    pair.replica.signal(signal.SIGCONT)
    assert wait_until(lambda: patiently(store, renew), what="the replica to have it").code is LeaseCode.RENEWED


def patiently(store: Any, call: Any) -> Any:
    """Return the answer, or None when it is worth another try."""
    try:
        return store.run(call)
    except NotReplicatedError:
        return None


def test_a_repetition_on_a_new_connection_waits_for_the_first_effect(pair: Pair, connect: Clients) -> None:
    """The repeated call writes nothing, and its connection never wrote: the copy must be asked for all the same."""
    first = connect(pair.url, **SETTINGS)
    first.ping()
    pair.replica.signal(signal.SIGSTOP)
    with pytest.raises(NotReplicatedError):
        first.run(enqueue())
    second = connect(pair.url, **SETTINGS)
    with pytest.raises(NotReplicatedError):
        second.run(enqueue())
    pair.replica.signal(signal.SIGCONT)
    assert wait_until(lambda: patiently(second, enqueue()) is not None, what="the replica to have the run")


def test_a_refusal_is_told_as_it_is_and_the_connection_stays_in_step(pair: Pair, connect: Clients) -> None:
    """Two replies come for each durable call, also when the first is an error."""
    store = connect(pair.url, **PATIENT)
    store.run(campaign())
    broken: Call[Any] = Call("enqueue", (KEYS.prefix,), ("n",), lambda reply: reply)
    with pytest.raises(StoreRefusedError, match="enqueue"):
        store.run(broken)
    assert store.command("ECHO", "mine") == b"mine"
    pair.master.ask("SCRIPT", "FLUSH")
    assert store.run(campaign()).code is LeaseCode.SAME
    assert store.command("ECHO", "mine") == b"mine"


def test_without_durability_nobody_waits(pair: Pair, connect: Clients) -> None:
    """The default: a replica that stopped delays nothing."""
    store = connect(pair.url)
    pair.replica.signal(signal.SIGSTOP)
    assert store.run(campaign()).code is LeaseCode.GRANTED


def test_the_right_to_wait_is_asked_for_at_start(pair: Pair) -> None:
    """Exit 78 with the rule, instead of a replica that can never lead."""
    rules = [rule for rule in acl_rules("durable") if rule != "+wait"]
    pair.master.ask("ACL", "SETUSER", "small", "reset", "on", ">pw", *rules)
    settings = RedisSettings.model_validate({"url": pair.url, "username": "small", "password": "pw", **SETTINGS})
    store = Store.connect(pair.url, settings=settings, name="durable:t")
    found = check(store, Settings(cluster="durable", redis=settings))
    assert [(problem.path, "wait" in problem.message) for problem in found] == [("redis.username", True)]
    assert "+wait" in found[0].remedy
    with pytest.raises(StoreRefusedError, match="wait"):
        store.run(campaign())
    store.close()
