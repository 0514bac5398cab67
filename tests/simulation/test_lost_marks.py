"""What a leader fires after Redis lost its data: nothing that an earlier watermark of its own would bring back."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest

from supervisor.core.election.lease import DataLoss
from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.roles.agent.election.context import ElectionContext
from supervisor.store.election.leases import Leases
from supervisor.store.schedules.control import Control
from supervisor.store.wire.fire import FireCode
from supervisor.testing.replica import Replica
from supervisor.testing.world import S
from tests.kit.shares import share
from tests.simulation.cluster import MOMENTS, Cluster, cluster


@pytest.mark.parametrize("is_outage", [False, True], ids=["flushed", "restarted empty"])
def test_a_former_leader_runs_nothing_that_another_ran_since(*, is_outage: bool) -> None:
    """Its own watermarks are of an earlier term; what the lost one may have run is counted, the rest is made up."""
    with cluster(2) as it:
        first = it.leader
        it.pass_s(20)
        second = it.resign()
        it.pass_s(33.3)
        second.kill()
        it.server.empty()
        if is_outage:
            it.world.is_server_up = False
            it.pass_s(30)
            it.world.is_server_up = True
        it.pass_s(30)

        assert it.leader is first
        assert it.repeated() == {}
        (lost,) = (int(str(fields["count"])) for fields in it.told("due_times_lost"))
        assert it.due("each") <= it.decided("each") <= it.due("each") + lost, "each due time was fired or counted"
        assert 0 < lost <= 7, "what may have run since the last sight of the data: a lease at most"
        assert {r.name for r in it.replicas if r.elector.is_alive} == {first.name}


def test_a_living_leader_is_waited_for_and_its_watermarks_go_back() -> None:
    """A standby that asks first learns of the loss and leaves the lease to whoever knows what was decided."""
    for tenths in range(0, 50, 7):
        with cluster(3) as it:
            leader = it.leader
            it.pass_s(20 + tenths / 10)
            it.server.empty()
            emptied_ns = it.world.now_ns
            it.pass_s(20)

            assert it.leader is leader
            assert it.repeated() == {}
            fired_ns = [at for at in it.server.moments_ns if at > emptied_ns]
            assert fired_ns[0] - emptied_ns < 2.2 * S, "a renewal and a second of the grid"
            assert it.told("due_times_lost") == []
            assert it.times("each") == list(range(it.times("each")[0], it.times("each")[-1] + 1, 1000))


@pytest.mark.parametrize(("follower", "again"), [("lives", ""), *product(["dies with the data"], MOMENTS)])
def test_a_leader_that_stood_still_beyond_its_lease_runs_nothing_that_another_ran(follower: str, again: str) -> None:
    """It saw nobody after itself and asks first after the loss; the one who led unseen comes first, if it lives.

    The same where data are lost once more at its grant, while watermarks go back, or before they are read.
    """
    with cluster(2) as it:
        first = it.leader
        it.pass_s(10)
        first.pause(20 * S)
        it.pass_s(19.8)
        (second,) = [replica for replica in it.replicas if replica is not first]
        assert second.is_leading
        if follower != "lives":
            second.kill()
        it.server.empty()
        it.lose_again(again)
        it.pass_s(30)

        assert it.leader is (second if follower == "lives" else first)
        assert it.repeated() == {}
        lost = sum(int(str(fields["count"])) for fields in it.told("due_times_lost"))
        assert bool(lost) is (follower != "lives")
        assert it.due("each") <= it.decided("each") <= it.due("each") + lost, "each due time was fired or counted"


@pytest.mark.parametrize("again", MOMENTS)
@pytest.mark.parametrize("on_data_loss", DataLoss)
def test_what_the_last_leader_may_have_run_is_counted_however_often_data_are_lost(
    on_data_loss: DataLoss, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one knows until when it saw the data, whatever it waits for before watermarks go back."""
    context = partial(ElectionContext, on_data_loss=on_data_loss)
    monkeypatch.setattr("supervisor.testing.replica.ElectionContext", context)
    with cluster(2) as it:
        it.pass_s(20)
        last = it.resign()
        it.pass_s(10.3)
        last.kill()
        it.server.empty()
        it.lose_again(again)
        it.pass_s(10)
        it.server.execute(Leases(it.server.keys).clear_hold(by="test"))
        it.pass_s(20)

        assert it.repeated() == {}
        for schedule, step_ms in (("each", 1000), ("latest", 10_000)):
            assert it.due(schedule, step_ms) <= it.decided(schedule), "each due time was fired or counted"
        missed = sum(d.missed for d in it.server.decisions if d.schedule == "each")
        assert 0 < missed <= 7, "what may have run since the last sight of the data: a lease at most, once"


@pytest.mark.parametrize(("on_data_loss", "looks"), [(DataLoss.RESUME, 1), (DataLoss.HOLD, 1), (DataLoss.HOLD, 2)])
def test_a_second_loss_after_a_hand_over_neither_repeats_nor_forgets_a_due_time(
    on_data_loss: DataLoss, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one who led since the first loss decided some, unless it was to wait; the next one has not restored yet."""
    context = partial(ElectionContext, on_data_loss=on_data_loss)
    monkeypatch.setattr("supervisor.testing.replica.ElectionContext", context)
    with cluster(2) as it:
        it.pass_s(20.3)
        first = it.leader
        it.server.empty()
        it.pass_s(1.5 if looks == 1 else 8.5)  # the standby has seen so many times who leads since
        it.server.execute(Leases(it.server.keys).request_resign(epoch=first.board.term().epoch, to="", by="test"))
        it.pass_s(2)
        (second,) = [replica for replica in it.replicas if replica is not first]
        assert second.board.term().epoch > first.board.term().epoch, "it holds the lease"
        assert not second.is_leading, "it waits until nobody can believe in the lost term, or for a person"
        it.server.empty()
        it.pass_s(10)
        it.server.execute(Leases(it.server.keys).clear_hold(by="test"))
        it.pass_s(20)

        assert it.repeated() == {}
        assert it.due("each") <= it.decided("each"), "each due time was fired or counted"


@pytest.mark.parametrize("outage_s", [2, 20, 300])
def test_a_server_that_comes_back_empty_after_any_outage_costs_no_due_time(outage_s: int) -> None:
    """The leader knows what it decided until Redis fell silent, and nobody decided anything since."""
    with cluster(2) as it:
        leader = it.leader
        it.pass_s(10.3)
        it.world.is_server_up = False
        it.server.empty()
        it.pass_s(outage_s)
        it.world.is_server_up = True
        it.pass_s(10)

        assert it.leader is leader
        assert it.repeated() == {}
        assert it.told("due_times_lost") == []
        assert it.decided("each") == it.due("each")


@pytest.mark.parametrize("part", ["agent of the leader", "agent of a standby"])
def test_an_agent_that_dies_before_a_loss_leaves_its_sight_of_redis_to_the_next(part: str) -> None:
    """The next one finds the loss by it, and what the living scheduler decided goes back; nothing is lost or repeated."""
    with cluster(2) as it:
        leader = it.leader
        it.pass_s(20.3)
        (standby,) = [replica for replica in it.replicas if replica is not leader]
        victim = leader if part == "agent of the leader" else standby
        victim.kill_elector()
        it.server.empty()
        it.pass_s(0.05)
        victim.start_elector()
        it.pass_s(20)

        assert it.leader is leader
        assert it.repeated() == {}
        assert it.told("due_times_lost") == []
        assert it.times("each") == list(range(it.times("each")[0], it.times("each")[-1] + 1, 1000))


def test_a_schedule_that_this_leader_never_fired_is_not_lost() -> None:
    """It has no watermark of one that is due once a minute; what was due since it last saw the data is made up."""
    with cluster(1) as it:
        it.pass_s(57 - it.world.now_ns / S)
        it.world.is_server_up = False
        it.server.empty()
        it.pass_s(10)
        it.world.is_server_up = True
        it.pass_s(10)

        fired = [d for d in it.server.decisions if d.schedule == "rare" and d.code is FireCode.FIRED]
        assert len(fired) == 1
        assert it.repeated() == {}


def test_what_was_due_while_it_was_paused_is_not_run_by_an_old_watermark() -> None:
    """The pause went with the data; its watermark is of before the pause."""
    with cluster(1) as it:
        it.pass_s(20.5)
        it.world.server.execute(Control(it.server.keys).pause(["each"], reason="x", by="y", for_ms=None))
        it.world.executed()
        it.pass_s(30)
        paused = len([d for d in it.server.decisions if d.schedule == "each"])
        it.server.empty()
        it.pass_s(10)

        again = [d for d in it.server.decisions if d.schedule == "each"][paused:]
        assert len([d for d in again if d.code is FireCode.FIRED]) <= 12
        assert it.repeated() == {}


def test_a_roll_back_of_its_own_term_gives_the_leader_a_later_one() -> None:
    """What is fired again is of a term of its own, flagged and counted."""
    with cluster(2) as it:
        leader, snapshot, before = it.leader, it.server.snapshot(), it.leader.board.term().epoch
        it.pass_s(10)
        it.server.restore(snapshot)
        it.pass_s(5)

        assert it.leader is leader
        assert it.leader.board.term().epoch > before
        record = it.server.store.fields(it.server.keys.lease)
        assert int(record[b"doubtful_until"]) > it.world.server_ms() - 6000, "for replicas that start later"
        again = it.repeated()
        assert sum(int(str(fields["count"])) for fields in it.told("fires_doubtful")) >= len(again) > 0


def test_a_loss_that_others_found_is_noticed_by_what_a_former_leader_remembers() -> None:
    """They led since, fired nothing, and told nobody; the watermark is behind the one that it decided."""
    with cluster(2) as it:
        former = it.leader
        it.pass_s(10)
        it.resign().pause(60 * S)
        marks = it.server.keys.schedule_mark
        fired_ms = max(d.nominal_ms for d in it.server.decisions if d.epoch < it.server.granted[-1])
        it.server.store.raw.hset(marks, "each", fired_ms - 3000)
        it.server.store.raw.delete(f"{it.server.keys.prefix}q:default:data")
        before = len(it.server.decisions)
        it.pass_s(10)

        assert it.leader is former
        again = [
            d.nominal_ms for d in it.server.decisions[before:] if d.schedule == "each" and d.nominal_ms <= fired_ms
        ]
        assert len(again) == 3
        assert all(b'"maybe_duplicate":true' in it.run("each", nominal_ms) for nominal_ms in again)


@pytest.mark.parametrize("is_at_most_once", [False, True])
@pytest.mark.parametrize("is_emptied", [False, True], ids=["rolled back to before it was created", "emptied"])
def test_a_schedule_that_had_begun_before_the_loss_begins_again_with_a_flag(
    *, is_emptied: bool, is_at_most_once: bool
) -> None:
    """Redis knows its first run no more; one that is delivered at most once is counted as missed."""
    template = Template(job="sim.job", kind=Kind.SYNC, at_most_once=is_at_most_once)
    new = ScheduleDef(id="new", template=template, every_ms=3_600_000, run_on_create=True)
    with cluster(1, new, until="leader_acquired") as it:
        snapshot = it.server.snapshot()
        it.pass_s(10)
        assert b"maybe_duplicate" not in it.run("new", "initial") != b""
        if is_emptied:
            it.server.empty()
        else:
            it.server.restore(snapshot)
        assert it.run("new", "initial") == b""
        it.pass_s(10)

        assert (it.run("new", "initial") == b"") is is_at_most_once
        assert (b'"maybe_duplicate":true' in it.run("new", "initial")) is not is_at_most_once
        decided = [(d.code, d.missed) for d in it.server.decisions if d.schedule == "new"]
        assert decided == [(FireCode.INITIAL, 0), (FireCode.MISSED, 1) if is_at_most_once else (FireCode.INITIAL, 0)]


@pytest.mark.parametrize(("calls", "dies"), share(product(range(4), ["scheduler", "agent", "tree"]), 4))
def test_whoever_dies_while_watermarks_go_back_leaves_no_due_time_uncounted(calls: int, dies: str) -> None:
    """After the grant, and after each call of the first term since the loss: the next leader restores what is left."""
    with cluster(3) as it:
        it.pass_s(20)
        last = it.resign()
        it.pass_s(10.3)
        last.kill()
        it.server.empty()
        Death(it, dies, calls)
        it.pass_s(45)

        assert it.repeated() == {}
        counted = sum(d.missed for d in it.server.decisions if d.schedule == "each")
        assert it.due("each") <= it.decided("each") <= it.due("each") + counted, "each due time was fired or counted"
        assert 0 < counted <= 7, "what may have run since the last sight of the data: a lease at most, once"


class Death:
    """Ends a part of the next leader after so many calls of its first term; 0: before it asks anything."""

    def __init__(self, it: Cluster, part: str, calls: int) -> None:
        self.it, self.part, self.calls = it, part, calls
        self.tell, it.world.tell = it.world.tell, self.told  # type: ignore[method-assign]
        self.leader: Replica | None = None
        it.world.on_executed.append(self.executed)

    def told(self, who: str, event: str, **fields: object) -> None:
        self.tell(who, event, **fields)
        if event == "leader_acquired" and self.leader is None:
            (self.leader,) = [replica for replica in self.it.replicas if who == f"{replica.name}/elector"]
            if self.calls == 0:
                self.leader.scheduler.kill()
                self.die()

    def executed(self) -> None:
        self.calls -= self.leader is not None
        if self.calls == 0 and self.leader is not None:
            self.die()

    def die(self) -> None:
        leader, self.calls = self.leader, -1
        assert leader is not None
        end = {"scheduler": leader.replace_scheduler, "agent": leader.kill_elector, "tree": leader.kill}[self.part]
        self.it.world.after(1, end)
        if self.part == "agent":
            self.it.world.after(S // 10, leader.start_elector)
            self.it.world.after(S // 10, leader.replace_scheduler)
