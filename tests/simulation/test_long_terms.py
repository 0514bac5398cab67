"""What a leader of long standing says of itself and of others: its schedules, its overdue renewals, replicas long gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.core.supervision.health import HealthEndpoint, checks, facts
from supervisor.roles.agent.election.context import ElectionTiming
from supervisor.settings.schedules.complete import schedules_digest
from supervisor.settings.sections.models import ElectionSettings
from supervisor.store.election.leases import CandidateInfo, Leases
from supervisor.store.keys import Keys
from supervisor.testing.replica import PATIENT, Replica
from supervisor.testing.server import Server, driven_time
from supervisor.testing.world import ReplicaClock, S, World

OLD = ScheduleDef(id="old", template=Template(job="sim.job", kind=Kind.SYNC), every_ms=10_000, overlap="allow")
NEW = ScheduleDef(id="new", template=Template(job="sim.job", kind=Kind.SYNC), every_ms=10_000, overlap="allow")
HOUR_S = 3600


@contextmanager
def cluster(count: int, *, is_idle: bool = False, **election: float) -> Iterator[tuple[World, list[Replica]]]:
    world = World(Server(Keys("long")), seed=1)
    timing = ElectionTiming.of(ElectionSettings(**election))
    options: Any = {"definitions": (OLD,)}
    if is_idle:  # with no schedule and few looks at the board, hours take a second
        options = {"definitions": (), **PATIENT}
    replicas = [
        Replica(world, world.server.keys, f"r{n}", timing=timing, clock=ReplicaClock(world), **options)
        for n in range(count)
    ]
    with driven_time(world.server_time_s):
        for replica in replicas:
            replica.start()
        world.run_until(3 * S)
        yield world, replicas


def test_a_leader_that_reloaded_is_listed_with_its_new_schedules() -> None:
    """The next leader must see that a newer set lives, or it would bring its own older one back."""
    with cluster(2) as (world, replicas):
        (leader,) = [replica for replica in replicas if replica.is_leading]
        leader.definitions = (OLD, NEW)
        leader.bring()
        world.run_until(world.now_ns + 3 * S)

        listed = world.server.execute(Leases(world.server.keys).candidates())
        digests = {each.replica: each.schedules_digest for each in listed}
        assert digests[leader.id] == schedules_digest((OLD, NEW))
        assert len(set(digests.values())) == 2


def test_who_was_killed_long_ago_is_no_candidate_any_more() -> None:
    """A leader may hold for months, and each start of a tree has a name of its own."""
    with cluster(1, is_idle=True, lease_duration_s=300, renew_period_s=100, renew_timeout_s=30) as (world, _):
        leases = Leases(world.server.keys)
        for number in range(150):
            info = CandidateInfo(replica=f"spot.{number:06x}")
            world.server.execute(
                leases.campaign(
                    replica=info.replica, nonce=f"{number + 1:032x}", duration_ms=300_000, floor=0, mode="register",
                    observed_epoch=0, observed_seq=0, info=info,
                )
            )  # fmt: skip
        raw, key = world.server.store.raw, world.server.keys.candidates
        for replica, seen in raw.hgetall(key).items():  # as of 22 hours ago: a simulated day of its own costs 20 s
            at_ms, info = seen.split(b" ", 1)
            raw.hset(key, replica, b"%d %s" % (int(at_ms) - 22 * HOUR_S * 1000, info))
        world.run_until(world.now_ns + HOUR_S * S)
        assert len(world.server.execute(leases.candidates())) == 151
        world.run_until(world.now_ns + 2 * HOUR_S * S)

        assert [each.host for each in world.server.execute(leases.candidates())] == ["r0"]


@pytest.mark.parametrize(("seconds", "expected"), [(20, []), (40, ["leaderElection"])])
def test_health_tells_of_a_holder_that_cannot_renew(seconds: int, expected: list[str]) -> None:
    """Nobody can tell it that another leads: it holds the lease by its own record, a lease and 20 s overdue."""
    with cluster(1) as (world, replicas):
        world.is_server_up = False
        world.run_until(world.now_ns + seconds * S)
        seen = facts(
            replicas[0].board,
            now_ns=replicas[0].clock.elapsed_ns(),
            slot_names=["scheduler"],
            pools=[],
            lease_duration_s=5.0,
        )
        failed = [
            each.name for each in checks(HealthEndpoint.HEALTHZ, seen) if each.reason and each.name == "leaderElection"
        ]
        assert failed == expected

        world.is_server_up = True
        world.run_until(world.now_ns + 3 * S)
        assert replicas[0].is_leading


def test_where_every_scheduler_died_three_times_somebody_leads_within_seconds() -> None:
    """All are penalised, and one that tries is better than none."""
    with cluster(3) as (world, replicas):
        for _ in replicas:
            (leader,) = [replica for replica in replicas if replica.is_leading]
            for _ in range(3):
                leader.replace_scheduler()
                world.run_until(world.now_ns + S // 2)
        world.run_until(world.now_ns + int(2.5 * S))

        assert sum(replica.is_leading for replica in replicas) == 1


def test_a_deploy_that_is_rolled_back_is_over_two_leases_and_seconds_after_its_last_replica_was_killed() -> None:
    """The former set rules again as soon as nobody can be holding the newer one, whoever leads meanwhile."""
    with cluster(2) as (world, replicas):
        former, newer = sorted(replicas, key=lambda replica: not replica.is_leading)
        newer.kill()
        newer.definitions = (OLD, NEW)
        newer.start()
        world.run_until(world.now_ns + 3 * S)
        epoch = former.board.term().epoch
        world.server.execute(Leases(world.server.keys).request_resign(epoch=epoch, to="", by="test"))
        world.run_until(world.now_ns + 8 * S)
        assert newer.is_leading
        assert {each.id for each in world.server.definitions()} == {"old", "new"}
        newer.kill()
        world.run_until(world.now_ns + 16 * S)

        assert former.is_leading
        assert [each.id for each in world.server.definitions()] == ["old"]
