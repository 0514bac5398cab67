"""Whole trees on Sentinel and on Cluster: the server that takes writes is killed, and schedules go on."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from supervisor.core.errors import StoreUnavailableError
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import Leases, LeaseView
from supervisor.store.keys import Keys
from tests.e2e.history import History
from tests.e2e.pairs import Pair
from tests.e2e.trees import Tree, tenure
from tests.kit.shares import share
from tests.kit.topologies import Cluster, Sentinels
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def deployment_directory() -> Iterator[Path]:
    """A directory for the servers."""
    directory = Path(tempfile.mkdtemp(prefix="tenure-e2e-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def sentinels(deployment_directory: Path) -> Iterator[Sentinels]:
    """A master with two replicas under three sentinels."""
    deployment = Sentinels(deployment_directory, replicas=2)
    yield deployment
    deployment.close()


@pytest.fixture
def cluster(deployment_directory: Path) -> Iterator[Cluster]:
    """Three masters, one of them with a replica."""
    deployment = Cluster(deployment_directory, spare=1)
    slot = int(deployment.nodes[0].ask("CLUSTER", "KEYSLOT", Keys("e2e").lease))
    deployment.replicate(deployment.spare, deployment.owner(slot))
    yield deployment
    deployment.close()


class PatientPair(Pair):
    """A pair whose observer waits, too, while nobody takes its calls."""

    def history(self) -> History:
        """Return what is remembered, once somebody answers."""
        found: History = wait_until(self._history, what="Redis to answer")
        return found

    def _history(self) -> History | None:
        with suppress(StoreUnavailableError):
            return super().history()
        return None

    def view(self) -> LeaseView:
        """Return the lease."""
        return self.store.run(Leases(Keys("e2e")).view())


def make_pair(start: Callable[..., Tree], directory: Path, url: str, **settings: str) -> PatientPair:
    """Start two replicas on ``url``."""
    options = [part for name, value in settings.items() for part in ("--set", f"redis.{name}={value}")]
    store = Store.connect(url, settings=RedisSettings(), name="e2e:observer", timeout_s=5)
    return PatientPair(lambda name, *arguments: start(name, *arguments, *options), directory, url, store)


def told(pair: Pair) -> list[str]:
    """Return the runs that any scheduler said it had fired."""
    return [str(event["run"]) for tree in pair.trees for event in tree.events("schedule_fired")]


@pytest.mark.long
def test_a_killed_master_costs_no_run_that_a_replica_had(
    start: Callable[..., Tree], short_directory: Path, sentinels: Sentinels
) -> None:
    """With durability: replica, what a scheduler said it had fired is there after the fail-over, once."""
    pair = make_pair(start, short_directory, sentinels.url, durability="replica")
    before = pair.view()

    sentinels.master().kill()

    pair.wait_for_fires(4)
    pair.prove()
    after = pair.view()
    assert after.epoch >= before.epoch
    enqueued = [f"tick@{nominal}" for nominal in pair.history().fired]
    lost = set(told(pair)) - set(enqueued)
    assert not lost, f"said to be fired, and gone with the old master: {sorted(lost)}"
    assert all(tree.process.poll() is None for tree in pair.trees)
    assert {tree.events("redis_found")[-1]["address"] for tree in pair.trees} == {sentinels.master().address}
    for command in ("status", "doctor"):
        done = tenure(short_directory, command, "--config", "tenure.yaml")
        assert sentinels.master().address in done.stdout or command == "status", done.stdout + done.stderr
        assert done.returncode == 0, done.stdout + done.stderr
    leader, _ = pair.roles()
    leader.kill()
    wait_until(lambda: pair.view().epoch > after.epoch, what="the next term")
    pair.wait_for_fires(2)
    pair.store.close()


@pytest.mark.long
def test_a_killed_node_of_a_cluster_is_followed_by_its_replica(
    start: Callable[..., Tree], short_directory: Path, cluster: Cluster
) -> None:
    """Agents by MOVED and a search, everybody else by the board; every due time is accounted for."""
    pair = make_pair(start, short_directory, cluster.url)
    before = pair.view()
    slot = int(cluster.nodes[0].ask("CLUSTER", "KEYSLOT", Keys("e2e").lease))

    cluster.owner(slot).kill()

    pair.wait_for_fires(4)
    pair.prove()
    assert pair.view().epoch >= before.epoch
    assert all(tree.process.poll() is None for tree in pair.trees)
    pair.store.close()


@pytest.mark.long
def test_a_moved_slot_is_followed(start: Callable[..., Tree], short_directory: Path, cluster: Cluster) -> None:
    """Same term, nothing lost: the keys are all on the new node."""
    pair = make_pair(start, short_directory, cluster.url)
    before = pair.view()
    slot = int(cluster.nodes[0].ask("CLUSTER", "KEYSLOT", Keys("e2e").lease))
    owner = cluster.owner(slot)
    target = next(node for node in cluster.nodes if node is not owner and node.is_role(b"master"))

    cluster.begin_move(slot, target)
    cluster.end_move(slot, target)

    pair.wait_for_fires(4)
    pair.prove()
    assert pair.view().epoch == before.epoch
    assert pair.store.where == target.address
    pair.store.close()


@pytest.mark.parametrize("topology", share(["sentinel", "cluster"], 2))
def test_servers_that_do_not_answer_are_waited_for(
    start: Callable[..., Tree], short_directory: Path, topology: str
) -> None:
    """Started unready, with a line that says who was asked."""
    hosts = "127.0.0.1:1,127.0.0.1:2"
    url = f"redis+{topology}://{hosts}{'/m' if topology == 'sentinel' else ''}"
    tree = start("alone", "--port", "0", "--set", f"redis.url={url}", "--set", "log.format=json")
    line = tree.wait_for("redis_unreachable")
    assert "127.0.0.1:2" in str(line["error"])
    tree.wait_for("http_listening")
    assert tree.get("/livez")[0] == 200
    assert tree.get("/readyz")[0] == 503
    tree.terminate()
    assert tree.wait() == 0
