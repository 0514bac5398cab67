"""What is run after Redis lost its data while its clock is wrong: what may have run before is in doubt, nothing else."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest

from supervisor.core.model import ScheduleDef
from supervisor.store.wire.fire import FireCode
from tests.simulation.cluster import TEMPLATE, Cluster, cluster

if TYPE_CHECKING:
    from supervisor.testing.replica import Replica

HOUR_MS = 3_600_000
ONCE = ScheduleDef(
    id="once", template=msgspec.structs.replace(TEMPLATE, at_most_once=True), every_ms=2000, overlap="allow"
)


def lose(it: Cluster, *, is_copy: bool, outage_s: float, ahead_ms: int, dies: Replica | None = None) -> None:
    """Let Redis be away, and come back emptied or with a copy of five seconds ago, its clock that far ahead."""
    snapshot = it.server.snapshot()
    it.pass_s(5)
    if outage_s:
        it.world.is_server_up = False
        it.pass_s(outage_s)
    if dies is not None:
        dies.kill()
    if is_copy:
        it.server.restore(snapshot)
    else:
        it.server.empty()
    it.world.server_offset_ms = ahead_ms
    it.world.is_server_up = True


def codes(it: Cluster, schedule: str, since: int) -> Counter[FireCode]:
    return Counter(d.code for d in it.server.decisions[since:] if d.schedule == schedule)


def flagged(it: Cluster) -> int:
    return sum(int(str(fields["count"])) for fields in it.told("fires_doubtful"))


@pytest.mark.parametrize("outage_s", [0, 3, 120])
@pytest.mark.parametrize("is_copy", [True, False], ids=["copy", "emptied"])
def test_a_clock_that_steps_ahead_with_the_loss_keeps_nothing_back(*, is_copy: bool, outage_s: float) -> None:
    """Nobody decided by an hour that had not come: neither while the clock is wrong nor once it is right again."""
    with cluster(2, ONCE) as it:
        it.pass_s(30)
        lose(it, is_copy=is_copy, outage_s=outage_s, ahead_ms=HOUR_MS)
        it.pass_s(20)
        since = len(it.server.decisions)
        it.pass_s(20)
        it.world.server_offset_ms = 0
        it.pass_s(40)

        assert set(codes(it, "once", since)) == {FireCode.FIRED}
        assert codes(it, "once", since)[FireCode.FIRED] >= 29
        assert flagged(it) <= 15 + 2 * outage_s, "what was due between the copy and the answer that showed the loss"
        assert "once" not in {name for name, _ in it.repeated()}
        assert len(it.repeated()) <= (12 if is_copy else 0)


@pytest.mark.parametrize("is_corrected", [True, False])
@pytest.mark.parametrize("is_copy", [True, False], ids=["copy", "emptied"])
def test_a_replica_that_starts_after_such_a_loss_and_leads_keeps_nothing_back(
    *, is_copy: bool, is_corrected: bool
) -> None:
    """It knows of the loss by the record alone, which tells the same time."""
    with cluster(2, ONCE) as it:
        it.pass_s(30)
        leader = it.leader
        (standby,) = [replica for replica in it.replicas if replica is not leader]
        lose(it, is_copy=is_copy, outage_s=3, ahead_ms=HOUR_MS)
        it.pass_s(20)
        standby.kill()
        standby.start()
        it.pass_s(10)
        if is_corrected:
            it.world.server_offset_ms = 0
        assert it.resign() is standby
        since, before = len(it.server.decisions), flagged(it)
        it.pass_s(30)

        true_ms = it.world.server_ms() - it.world.server_offset_ms
        assert true_ms - 120_000 < standby.board.header.doubtful_until_ms < true_ms - 40_000, "it knows of the loss"
        assert set(codes(it, "once", since)) == {FireCode.FIRED}
        assert flagged(it) == before


@pytest.mark.parametrize("outage_s", [0, 3])
@pytest.mark.parametrize("is_copy", [True, False], ids=["copy", "emptied"])
def test_the_next_leader_after_such_a_loss_begins_where_the_data_ended(*, is_copy: bool, outage_s: float) -> None:
    """Who led dies with the data: what it may have run is counted, no hour of every schedule."""
    with cluster(2, ONCE) as it:
        it.pass_s(20)
        last = it.resign()
        it.pass_s(30)
        lose(it, is_copy=is_copy, outage_s=outage_s, ahead_ms=HOUR_MS, dies=last)
        it.pass_s(20)
        it.world.server_offset_ms = 0
        since = len(it.server.decisions)
        it.pass_s(30)

        assert codes(it, "each", since)[FireCode.FIRED] >= 29
        assert set(codes(it, "once", since)) == {FireCode.FIRED}
        lost = sum(int(str(fields["count"])) for fields in it.told("due_times_lost"))
        assert lost <= 15, "of four schedules, since the last sight of the data"


@pytest.mark.parametrize(
    ("is_copy", "leads"),
    [(True, "leader"), (False, "leader"), (False, "standby"), (False, "standby, with another agent")],
)
def test_what_was_decided_by_a_clock_that_had_long_been_ahead_is_in_doubt(*, is_copy: bool, leads: str) -> None:
    """The leader's clock was ahead as Redis' was: due times of the hour to come may have run, whoever leads next."""
    with cluster(2, ONCE) as it:
        it.pass_s(5)
        leader = it.leader
        (standby,) = [replica for replica in it.replicas if replica is not leader]
        it.world.server_offset_ms = leader.clock.wall_offset_ms = HOUR_MS
        it.pass_s(30)
        if leads == "standby, with another agent":
            standby.kill_elector()
        lose(it, is_copy=is_copy, outage_s=3, ahead_ms=HOUR_MS, dies=standby if leads == "leader" else leader)
        decided_ms = max(it.times("each"))
        assert decided_ms > it.world.server_ms() - 5000
        if leads == "standby, with another agent":
            standby.start_elector()
        it.pass_s(20)

        assert it.leader is (leader if leads == "leader" else standby)
        assert it.leader.board.header.doubtful_until_ms >= decided_ms
        record = it.server.store.fields(it.server.keys.lease)
        assert int(record[b"doubtful_until"]) >= decided_ms, "for replicas that start later"
        it.leader.clock.wall_offset_ms = HOUR_MS
        it.pass_s(20)
        assert max(it.times("each")) > decided_ms
        assert "once" not in {name for name, _ in it.repeated()}
        assert flagged(it) >= len(it.repeated())
