"""Two replicas on one Redis: whatever dies, schedules go on and nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from tests.e2e.pairs import Pair
from tests.e2e.servers import Server
from tests.e2e.trees import Tree, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def pair(start: Callable[..., Tree], short_directory: Path, redis_url: str, store: Store) -> Pair:
    """Two replicas, electing and firing."""
    return Pair(start, short_directory, redis_url, store)


@pytest.mark.long
@pytest.mark.parametrize("slot", ["scheduler", "agent", "worker-io-0", "web"])
def test_a_killed_child_of_the_leader_is_replaced_and_nothing_is_lost(pair: Pair, slot: str) -> None:
    """Each role has a way to die; none of them may cost a fire or a run."""
    leader, _ = pair.roles()
    leader.kill(slot)

    wait_until(lambda: sum(each["slot"] == slot for each in leader.events("child_ready")) >= 2, what=f"a new {slot}")
    pair.prove()
    assert leader.process.poll() is None


def test_a_killed_leader_is_succeeded_and_nothing_outlives_it(pair: Pair) -> None:
    """After kill -9 of the parent its children go with it, the standby leads, schedules go on."""
    leader, standby = pair.roles()
    family = leader.descendants()
    assert family
    leader.kill()

    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    wait_until(lambda: pair.leader() is standby, what="the standby to lead")
    pair.prove()


@pytest.mark.long
def test_a_run_whose_worker_is_killed_runs_again(pair: Pair) -> None:
    """The run goes back as soon as the worker is reaped, and completes once on record."""
    path = pair.enqueue_slow(3.0)
    pid = int(path.read_text().split()[3])
    os.kill(pid, signal.SIGKILL)

    wait_until(lambda: "end slow" in path.read_text(), what="the second attempt to end")
    assert path.read_text().count("start slow") == 2
    wait_until(
        lambda: (
            [
                each.outcome
                for each in pair.store.run(Queues(Keys("e2e")).recent("default", 1000))
                if each.run_id == "slow"
            ].count("ok")
            == 1
        ),
        what="its completion on record",
    )
    pair.prove()


@pytest.mark.long
def test_a_drained_leader_hands_over_and_finishes_its_run(pair: Pair) -> None:
    """SIGTERM during a run: the other leads at once, the run finishes, exit 0."""
    path = pair.enqueue_slow(15.0)
    worker = int(path.read_text().split()[3])
    tree = next(each for each in pair.trees if each.slot_pid("worker-cpu-0") == worker)
    other = next(each for each in pair.trees if each is not tree)
    tree.terminate()

    wait_until(lambda: pair.leader() is other, what="the other replica to lead")
    assert "end slow" not in path.read_text(), "the hand-over waited for the run"
    assert tree.wait() == 0
    assert path.read_text().count("start slow") == 1
    assert "end slow" in path.read_text()
    pair.prove()


@pytest.mark.long
def test_a_drain_without_its_agent_keeps_its_runs(pair: Pair) -> None:
    """The agent dies while a run goes on for longer than a session's lease: nobody else may start that run."""
    path = pair.enqueue_slow(16.0)
    worker = int(path.read_text().split()[3])
    tree = next(each for each in pair.trees if each.slot_pid("worker-cpu-0") == worker)
    tree.terminate()
    tree.wait_for("stop_stage", stage="draining")
    tree.kill("agent")

    assert tree.wait() == 0
    assert path.read_text().count("start slow") == 1
    assert "end slow" in path.read_text()
    pair.prove()


@pytest.mark.long
def test_a_second_sigterm_ends_everything_at_once(pair: Pair) -> None:
    """The operator means it: exit 1, nobody left, and the interrupted run goes to another worker."""
    path = pair.enqueue_slow(15.0)
    worker = int(path.read_text().split()[3])
    tree = next(each for each in pair.trees if each.slot_pid("worker-cpu-0") == worker)
    family = tree.descendants()
    tree.terminate()
    tree.wait_for("stop_stage", stage="draining")
    wait_until(
        lambda: tree.process.poll() is not None or tree.terminate() is not None,  # debounced: only a later one counts
        what="the second signal to end it",
        bound_s=15,
    )

    assert tree.wait() == 1
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    wait_until(lambda: "end slow" in path.read_text(), what="the run to end elsewhere")
    pair.prove()


@pytest.mark.long
def test_a_rolling_restart_loses_no_fire(pair: Pair) -> None:
    """What every deploy does: one replica after the other is stopped and started."""
    for tree in list(pair.trees):
        tree.terminate()
        assert tree.wait() == 0
        fresh = pair.start_one(f"{tree.name}-b")
        pair.trees[pair.trees.index(tree)] = fresh
        fresh.wait_for("tree_ready")
    wait_until(pair.leader, what="a leader")
    pair.prove()


@pytest.mark.long
def test_an_outage_of_redis_loses_no_fire_and_restarts_nobody(pair: Pair, server: Server) -> None:
    """Killed, and back with its data: the same processes go on where they stopped."""
    server.kill()
    for tree in pair.trees:
        wait_until(lambda tree=tree: tree.get("/readyz")[0] == 503, what=f"{tree.name} to be unready")
        assert tree.get("/livez")[0] == 200
    server.start()

    wait_until(pair.leader, what="a leader")
    pair.prove()
    for tree in pair.trees:
        wait_until(lambda tree=tree: tree.get("/readyz")[0] == 200, what=f"{tree.name} to be ready")
        assert {each["generation"] for each in tree.events("child_started")} == {1}


@pytest.mark.long
def test_a_paused_leader_cannot_fire_after_another_was_elected(pair: Pair) -> None:
    """Every process of it stands still for longer than its lease, wakes up, and writes what it still believes."""
    leader, standby = pair.roles()
    family = [psutil.Process(leader.pid), *leader.descendants()]
    for process in family:
        process.suspend()
    wait_until(lambda: pair.leader() is standby, what="the standby to lead")
    pair.wait_for_fires(2)
    for process in reversed(family):
        process.resume()

    pair.prove()
    assert leader.process.poll() is None
