"""In a real cluster: the node that serves our slot is found, and followed when the slot moves or its node dies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from redis.exceptions import AskError, ClusterDownError, MovedError

from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.jobs import registry as registering
from supervisor.core.jobs.registry import Registry, job
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.preflight import known_clusters
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import LeaseCode
from supervisor.store.keys import CLUSTERS, Keys
from supervisor.store.producer.destination import Destination
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.control import QueueControl
from supervisor.store.queues.runs import Queues
from tests.integration.roles.agent import test_agent_refusals as agent_duties
from tests.integration.roles.agent.test_agent_duties import BEAT_MS, LEASE_MS
from tests.integration.topology.replica_sides import Replica, attempt
from tests.kit.clients import CALL, Clients, works
from tests.kit.topologies import LOOPBACK, Cluster, Node
from tests.kit.waiting import answered, wait_until

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("cluster")]
KEYS = Keys("faults")  # the cluster of ``clients.CALL``


@pytest.fixture
def replica(cluster: Cluster) -> Iterator[Replica]:
    """A replica of Tenure with children of both kinds."""
    clients = [Clients("blocking"), Clients("asynchronous")]
    replica = Replica(cluster.url, *clients, keys=KEYS)
    empty(cluster)
    yield replica
    replica.close()
    for each in clients:
        each.close()


def empty(cluster: Cluster) -> None:
    """Remove all keys."""
    for node in cluster.nodes:
        if node.process.poll() is None and node.ask("ROLE")[0] == b"master":
            node.ask("FLUSHALL")


def slot_of(cluster: Cluster, key: str = KEYS.lease) -> int:
    """Return the slot of a key; all of a cluster of Tenure have the same."""
    return int(cluster.nodes[1].ask("CLUSTER", "KEYSLOT", key))


def another(cluster: Cluster, node: Node) -> Node:
    """Return another master that is up."""
    return next(
        each
        for each in cluster.nodes
        if each is not node and each.process.poll() is None and each.ask("ROLE")[0] == b"master"
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_any_node_leads_to_the_one_that_serves(cluster: Cluster, connect: Clients, seed: int) -> None:
    """Also a replica, and also with hosts beside it that are gone."""
    cluster.revive()
    store = connect(f"redis+cluster://127.0.0.1:1,{cluster.nodes[seed].address}", timeout_s=2.0, name="faults:x")
    works(store)
    assert store.where == cluster.owner(slot_of(cluster)).address


@pytest.mark.share(2)
def test_a_node_reached_as_a_single_server_says_what_to_write(cluster: Cluster, connect: Clients) -> None:
    """A person must act: the keys of this cluster may lie elsewhere."""
    cluster.revive()
    other = another(cluster, cluster.owner(slot_of(cluster)))
    with pytest.raises(StoreRefusedError, match=r"redis\+cluster://"):
        works(connect(f"redis://{other.address}"))


def test_a_moved_slot_is_followed_and_the_term_goes_on(cluster: Cluster, replica: Replica) -> None:
    """Elector by MOVED, children by the board: the same epoch, the same runs."""
    cluster.revive()
    slot = slot_of(cluster)
    source = cluster.owner(slot)
    target = another(cluster, source)
    term = replica.campaign()
    replica.enqueue("before")

    cluster.begin_move(slot, target)
    cluster.end_move(slot, target)

    renewed = replica.renew(term)
    assert (renewed.code, renewed.epoch) == (LeaseCode.RENEWED, term.epoch)
    assert replica.elector.where == target.address
    replica.enqueue("after")
    assert replica.child.run(replica.queues.show("before0")).state == "queued"
    assert replica.campaign(nonce="cd" * 16).epoch > term.epoch


def test_a_slot_between_two_nodes_runs_no_script_by_halves(cluster: Cluster, replica: Replica) -> None:
    """ASK: half of the keys lie here, half there. Nothing is done until all are together again, then all of it."""
    cluster.revive()
    slot = slot_of(cluster)
    source = cluster.owner(slot)
    target = another(cluster, source)
    replica.campaign()
    replica.enqueue("before")
    before = sorted(source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000))

    cluster.begin_move(slot, target)
    moved = before[: len(before) // 2]
    source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *moved)
    for store in (replica.elector, *replica.children):
        with pytest.raises(StoreUnavailableError, match="slot"):
            store.run(replica.enqueue_call("between"))
    left = sorted(source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000))
    there = sorted(target.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000))
    assert (left, there) == (sorted(set(before) - set(moved)), moved)

    cluster.end_move(slot, target)
    replica.renew(replica.leases_view())
    replica.enqueue("between")
    assert replica.child.run(replica.queues.counts("default")).stats == {"in": 4}
    assert replica.child.run(replica.queues.fsck("default")) == []


def test_a_killed_node_is_replaced_by_its_replica(cluster: Cluster, replica: Replica) -> None:
    """Until then the cluster is down, and says so; then the term goes on, and epochs grow."""
    cluster.revive()
    owner = cluster.owner(slot_of(cluster))
    spare = cluster.spare
    cluster.replicate(spare, owner)
    term = replica.campaign()
    replica.enqueue("before")
    wait_until(lambda: owner.is_copied(1), what="the replica to have it")

    owner.kill()
    with pytest.raises(StoreUnavailableError):
        replica.elector.run(replica.leases.view())  # the connection broke
    with pytest.raises(StoreUnavailableError, match="for now"):
        replica.elector.run(replica.leases.view())  # nobody serves the slot

    renewed = replica.renew(term)
    assert (renewed.code, renewed.epoch) == (LeaseCode.RENEWED, term.epoch)
    assert replica.elector.where == spare.address
    replica.enqueue("after")
    assert replica.campaign(nonce="cd" * 16).epoch > term.epoch


@pytest.fixture(params=["MOVED", "ASK", "CLUSTERDOWN"])
def apart(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Keys]:
    """Keys whose node answers so for the one key that carries no hash tag."""
    cluster.revive()
    empty(cluster)
    code, slot = request.param, slot_of(cluster, CLUSTERS)
    holder = cluster.owner(slot)
    other = another(cluster, holder)
    named = (Keys(f"c{number}") for number in range(1000))
    keys = next(keys for keys in named if (cluster.owner(slot_of(cluster, keys.lease)) is holder) == (code != "MOVED"))
    if code == "ASK":
        cluster.begin_move(slot, other)
    elif code == "CLUSTERDOWN":
        holder.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
        holder.ask("CLUSTER", "DELSLOTS", slot)
    with pytest.raises(redis.RedisError, match=r"not served" if code == "CLUSTERDOWN" else rf"^{slot} ") as refused:
        cluster.owner(slot_of(cluster, keys.lease)).ask("HLEN", CLUSTERS)
    assert type(refused.value) is {"MOVED": MovedError, "ASK": AskError, "CLUSTERDOWN": ClusterDownError}[code]
    yield keys
    if code == "ASK":
        for node in (holder, other):
            node.ask("CLUSTER", "SETSLOT", slot, "STABLE")
    elif code == "CLUSTERDOWN":
        holder.ask("CLUSTER", "ADDSLOTS", slot)
        holder.ask("CONFIG", "SET", "cluster-require-full-coverage", "yes")


def test_a_key_of_another_node_stops_no_duty_of_an_agent(cluster: Cluster, apart: Keys) -> None:
    """The names of clusters only inform: each round of duties ended at them, and no lost machine was ever found."""
    store = Store.connect(cluster.url, settings=RedisSettings(), name=f"{apart.cluster}:agent", timeout_s=20)
    raw = redis.Redis(host=LOOPBACK, port=cluster.owner(slot_of(cluster, apart.lease)).port, protocol=2)
    answered(lambda: store.run(Queues(apart).counts("default")))
    agent = agent_duties.Replica(store, apart, raw)
    agent.hold(agent.session, "mine")
    agent.hold(agent_duties.LOST, "theirs")
    store.run(QueueControl(apart).cancel([("default", "mine")]))
    agent.live_for(LEASE_MS + 2 * BEAT_MS)
    raw.close()
    store.close()

    assert agent.done() == agent_duties.EVERYTHING
    assert agent.asked.count("jobs_publish") == 1
    assert not [each for each in agent.told if each["event"] in {"duty_refused", "election_unanswered"}]


def test_a_key_of_another_node_refuses_nothing_to_a_program_that_enqueues(
    cluster: Cluster, apart: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first replica starts, and in ``tenure doctor --producer``: other clusters are not known."""
    monkeypatch.setattr(registering, "registry", Registry())

    @job("mail")
    def mail() -> None: ...

    store = Store.connect(cluster.url, settings=RedisSettings(), name=f"{apart.cluster}:doctor", timeout_s=20)
    producer = Producer(
        RedisSettings(url=cluster.url),
        cluster=apart.cluster,
        destination=Destination(apart.cluster, is_configured=False),
    )
    run_id = answered(lambda: producer.enqueue("mail"))

    assert answered(lambda: known_clusters(store)) == []
    assert store.run(Queues(apart).show(run_id)).state == "queued"
    producer.close()
    store.close()


def test_hosts_of_the_url_may_all_be_gone(cluster: Cluster) -> None:
    """A search that once succeeded knows the node that it found, too."""
    cluster.revive()
    owner = cluster.owner(slot_of(cluster))
    seed = another(cluster, owner)
    store = Store.connect(f"redis+cluster://{seed.address}", settings=RedisSettings(), name="faults:x", timeout_s=2.0)
    works(store)
    seed.kill()
    owner.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert wait_until(lambda: attempt(store, CALL), what="the node that was found")
    store.close()
