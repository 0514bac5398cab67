"""Every way in which a leader can end, with real processes: one effective scheduler, nothing lost, nothing doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.store.client.sync_client import Store
from tests.e2e.clusters import Cluster, Shared, family, metric
from tests.e2e.servers import Server
from tests.e2e.trees import Tree, tenure
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.xdist_group("election")]
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    """Three replicas for every test that leaves them whole."""
    found = Shared(("one", "two", "three"))
    found.take()
    yield found
    found.drop()


@pytest.fixture
def cluster(shared: Shared, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Those three, electing and firing."""
    failures = request.session.testsfailed
    yield shared.take()[0]
    if request.session.testsfailed > failures:
        shared.drop()
        shared.take()  # here, where it is not held against the next test


@pytest.fixture
def pair(start: Callable[..., Tree], short_directory: Path, redis_url: str, store: Store) -> Cluster:
    """Two replicas for a test that spoils them."""
    return Cluster(start, short_directory, redis_url, store)


def test_a_late_fire_of_a_paused_leader_is_refused_and_counted(cluster: Cluster) -> None:
    """It stops between the check of its term and its write, another leads meanwhile, it wakes up and writes."""
    leader, _ = cluster.roles()
    cluster.faults_of(leader).stop_before_fire()
    wait_until(lambda: cluster.faults_of(leader).is_stopped, what="the scheduler to stop before its write")
    paused = family(leader)
    for process in paused:
        process.suspend()
    cluster.wait_for_other_leader(leader)
    cluster.wait_for_fires(2)
    for process in reversed(paused):  # the scheduler writes before anybody could tell it not to
        process.resume()

    wait_until(lambda: leader.events("fenced"), what="the refusal")
    wait_until(lambda: metric(leader, "tenure_election_fenced_total") >= 1, what="the count on /metrics")
    cluster.prove()
    assert leader.process.poll() is None


@pytest.mark.long
def test_a_leader_whose_wall_clock_steps_an_hour_ahead_fires_on_by_the_time_of_redis(cluster: Cluster) -> None:
    """It can neither push watermarks into the future nor stop the schedules, whoever leads."""
    leader, _ = cluster.roles()
    before = cluster.view()
    cluster.faults_of(leader).step_wall_clock(HOUR_MS)
    cluster.wait_for_fires(6)
    cluster.faults_of(leader).step_wall_clock(0)

    cluster.prove()
    assert cluster.view().transitions - before.transitions <= 1, "one hand-over, to one whose clock is right, is enough"


@pytest.mark.long
def test_a_leader_whose_wall_clock_steps_an_hour_back_loses_and_doubles_nothing(cluster: Cluster) -> None:
    """It would fire nothing for an hour, so it gives way to one that has the time, and says so."""
    leader, _ = cluster.roles()
    before = cluster.view()
    cluster.faults_of(leader).step_wall_clock(-HOUR_MS)
    cluster.wait_for_other_leader(leader)
    cluster.wait_for_fires(4)
    status, body = leader.get("/readyz?verbose")
    assert (status, metric(leader, "tenure_clock_skew_seconds") < -HOUR_MS / 1001) == (503, True), body
    assert "[-]clock failed" in body
    cluster.faults_of(leader).step_wall_clock(0)

    cluster.prove()
    assert cluster.view().transitions - before.transitions == 1
    assert [each.reason for each in cluster.events() if each.kind == "released"][-1] == "clock_skew"


@pytest.mark.long
def test_redis_back_with_its_data_finds_the_same_term(cluster: Cluster, shared: Shared) -> None:
    """An outage is nobody's fault: the leader goes on where it stopped, and no other tries."""
    _, server = shared.take()
    before = cluster.view()
    server.kill()
    for tree in cluster.trees:
        tree.wait_for("redis_unanswered")
    server.start()
    wait_until(cluster.answers, what="Redis to have loaded its data")
    cluster.prove()

    after = cluster.view()
    assert (after.epoch, after.holder, after.transitions) == (before.epoch, before.holder, before.transitions)


def test_redis_back_without_its_data_never_repeats_an_epoch(pair: Cluster, server: Server) -> None:
    """Restarted empty: a larger epoch at once, and schedules go on."""
    before = pair.view()
    fired = pair.history().fired
    server.kill()
    for path in server.directory.glob("appendonlydir/*"):
        path.unlink()
    server.start()
    wait_until(pair.answers, what="Redis to answer")
    wait_until(lambda: pair.view().holder, what="a leader of the empty server")
    assert pair.view().epoch > before.epoch
    pair.wait_for_fires(4)

    again = pair.history().fired
    assert not set(fired) & set(again), "what was fired before the loss was fired again"


@pytest.mark.long
def test_a_scheduler_that_keeps_dying_hands_over_and_its_workers_go_on(pair: Cluster) -> None:
    """Three deaths within a minute: this replica does not schedule, but its runs are not interrupted."""
    leader, standby = pair.roles()
    workers = {leader.slot_pid(slot) for slot in ("worker-io-0", "worker-cpu-0")}
    deaths = 0
    while pair.leader() is leader and deaths < 3:
        generation = len(leader.events("child_started"))
        leader.kill("scheduler")
        deaths += 1
        wait_until(
            lambda before=generation: len(leader.events("child_started")) > before or pair.leader() is not leader,
            what="a new scheduler or another leader",
        )
    assert pair.wait_for_other_leader(leader) is standby
    pair.prove()

    assert {leader.slot_pid(slot) for slot in ("worker-io-0", "worker-cpu-0")} == workers
    assert "lost" not in " ".join(each.reason for each in pair.events())


@pytest.mark.long
def test_a_dead_agent_costs_no_term(cluster: Cluster) -> None:
    """Its replacement resumes the term from the scoreboard, by renewing it."""
    leader, _ = cluster.roles()
    before = cluster.view()
    leader.kill("agent")
    wait_until(lambda: sum(each["slot"] == "agent" for each in leader.events("child_ready")) >= 2, what="a new agent")
    wait_until(lambda: cluster.view().seq > before.seq + 3, what="renewals by the new agent")

    assert (cluster.view().epoch, cluster.view().transitions) == (before.epoch, before.transitions)
    cluster.prove()


def test_a_leader_that_is_asked_to_resign_hands_over_to_whom_it_was_told(cluster: Cluster) -> None:
    """By the command, among three; and nobody stops working.

    The others leave the lease to that one for 0.25 s; where the machine stands still for longer, another may have it.
    """
    for _ in range(5):
        leader, _ = cluster.roles()
        heir = cluster.others(leader)[-1]
        name = heir.name.partition("-")[0]
        words = ("leader", "resign", "--to", name, "--yes", "--timeout", "50s")
        done = tenure(cluster.directory, *words, environ=_beside(cluster.directory))
        if done.returncode != 3:
            break
        assert "was faster" in done.stderr

    assert done.returncode == 0, done.stderr
    assert cluster.leader() is heir
    assert [each.kind for each in cluster.events()[-3:]] == ["resign_requested", "released", "acquired"]
    cluster.prove()


@pytest.mark.long
def test_a_name_that_two_replicas_use_is_said_by_both_and_harms_nothing(
    start: Callable[..., Tree], short_directory: Path, redis_url: str, store: Store
) -> None:
    """A copied configuration: each incarnation has an identity of its own, so only people are confused."""
    cluster = Cluster(start, short_directory, redis_url, store, names=("one",))
    twin = cluster.start_one("one-twin")
    cluster.trees.append(twin)
    for tree in cluster.trees:
        said = tree.wait_for("name_used_twice")
        assert said["name"] == "one"

    assert cluster.view().transitions == 1
    cluster.prove()


@pytest.mark.long
def test_a_rolling_restart_of_three_replicas_makes_at_most_two_transitions(
    start: Callable[..., Tree], short_directory: Path, redis_url: str, store: Store
) -> None:
    """Each stops and starts in turn, the leader first; leadership converges on one that stays.

    A machine that stands still for longer than a lease costs a term, so the lease is a long one.
    """
    names, election = ("one", "two", "three"), "{lease_duration: 15s, renew_period: 2s, renew_timeout: 2s}"
    cluster = Cluster(start, short_directory, redis_url, store, names=names, election=election)
    leader, _ = cluster.roles()
    before = cluster.view().transitions
    for tree in [leader, *cluster.others(leader)]:
        tree.terminate()
        assert tree.wait() == 0
        fresh = cluster.start_one(f"{tree.name}-b")
        cluster.trees[cluster.trees.index(tree)] = fresh
        fresh.wait_for("tree_ready")
    cluster.prove()

    assert cluster.view().transitions - before <= 2


def _beside(directory: Path) -> dict[str, str]:
    """Return the environment of a command beside the replicas: it imports their jobs, so it has faults too."""
    return {"E2E_FAULTS": str(directory / "faults-command"), "TENURE_CONFIG": str(directory / "tenure.yaml")}
