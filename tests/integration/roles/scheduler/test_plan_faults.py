"""A fault at every position: a lost question or answer, one that comes twice or late, a leader that dies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import msgspec
import pytest

from supervisor.core.election.lease import Term
from supervisor.core.model import Outcome, ScheduleDef
from supervisor.core.schedules.catchup import fire_of
from supervisor.core.schedules.triggers import trigger_of
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.roles.scheduler import firing
from supervisor.store.schedules.backfills import BackfillCalls, Request
from supervisor.testing.world import Fate, Network
from tests.integration.roles.scheduler.planned import EPOCH_MS, FOR_HOURS, TEMPLATE, Planned, every, planned

POSITIONS = range(0, 36, 2)
FAULTS = ("question", "answer", "repeated", "stalled")


def dealt(which: int, *, of: Sequence[int] = POSITIONS) -> list[Any]:
    """Return each fault with every fourth position, the next ones for the next fault, and the rest for the long tests."""
    pairs = product(enumerate(of), enumerate(FAULTS))
    return [
        pytest.param(position, fault, marks=() if (number + kind) % len(FAULTS) == which else pytest.mark.long)
        for (number, position), (kind, fault) in pairs
    ]


class OneFault(Network):
    """Works, but for the call at one position."""

    def __init__(self, position: int, fault: str) -> None:
        super().__init__(Random(1))
        self.left = position
        self.fault = fault

    def fate(self) -> Fate:
        self.left -= 1
        fate = super().fate()
        if self.left != -1:
            return fate
        if self.fault == "stalled":  # decided, and written much later
            return replace(fate, stall_ns=4000 * MILLISECOND_NS)
        if self.fault == "repeated":
            return replace(fate, repeated_after_ns=2500 * MILLISECOND_NS)
        return replace(fate, is_request_lost=self.fault == "question", is_reply_lost=self.fault == "answer")


def definitions() -> tuple[ScheduleDef, ...]:
    return (
        every(3, "all", overlap="allow", missed="all"),
        every(5, "buffered", overlap="buffer_all", missed="all"),
        every(1000, "first", run_on_create=True),
        every(4, "few", overlap="allow", missed="all", max_runs=2),
    )


def course(plan: Planned) -> None:
    """Two runs of the buffered schedule end, at times at which nothing else happens."""
    plan.until(7.3)
    plan.fetch()
    for second in (7.4, 11.2, 13.1):
        plan.until(second)
        running = [run for run in plan.fetch() if run.startswith("buffered")]
        plan.end(*running, outcome=Outcome.OK)
    plan.until(24.5)


def outcome(plan: Planned) -> dict[str, list[float]]:
    return {name: plan.fired(name) for name in ("all", "few")} | {"initial": [len(plan.decided("first"))]}


def owed(plan: Planned, schedule: str, seconds: int) -> list[float]:
    """Return the due times since the schedule was first seen: a fault may hit that as well."""
    created = (plan.server.created_ms[schedule] - EPOCH_MS) / 1000
    return [second for second in range(seconds, 25, seconds) if second > created]


def sound(plan: Planned) -> None:
    """Assert what must be true after any course."""
    assert outcome(plan) == {"all": owed(plan, "all", 3), "few": owed(plan, "few", 4)[:2], "initial": [1]}
    decided = plan.decided("buffered")
    assert sorted({second for code, second in decided if code != "DUP"}) == owed(plan, "buffered", 5)
    fired = [second for code, second in decided if code == "FIRED"]
    assert fired == sorted(set(fired))
    counters = plan.state("buffered").counters
    waiting = plan.server.store.raw.llen(plan.keys.schedule_buffer("buffered"))
    assert counters.waiting == waiting
    assert counters.fired == len(fired)
    assert plan.run(plan.queues.fsck("default")) == []


@pytest.mark.share(3)
@pytest.mark.parametrize(("position", "fault"), dealt(0))
def test_one_fault_changes_nothing(position: int, fault: str) -> None:
    """Whatever call it hits, of whichever role: each due time is decided once, in order."""
    with planned(*definitions(), network=OneFault(position, fault)) as plan:
        course(plan)
        sound(plan)


@pytest.mark.share(3)
@pytest.mark.parametrize(("position", "fault"), dealt(2))
def test_one_fault_changes_nothing_while_the_next_batch_is_put_together(
    position: int, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every batch is full here, so each is prepared while the one before is in flight."""
    monkeypatch.setattr(firing, "FIRE_BATCH_MAX", 1)
    with planned(*definitions(), network=OneFault(position, fault)) as plan:
        course(plan)
        sound(plan)


@pytest.mark.share(3)
@pytest.mark.parametrize("position", POSITIONS)
def test_a_leader_that_dies_between_two_calls_is_followed_without_a_trace(position: int) -> None:
    """Its replacement knows nothing but what Redis holds."""
    with planned(*definitions()) as plan:
        plan.replace_scheduler_after(position)
        course(plan)
        sound(plan)


def test_two_evaluations_at_once_decide_once() -> None:
    """A second scheduler under the same term, as after a fork that went wrong: the watermark tells them apart."""
    with planned(*definitions()) as plan:
        term: Term = plan.leader.board.term()
        twin = type(plan.leader)(
            plan.world, plan.keys, "twin", timing=plan.leader._timing, definitions=definitions(), clock=plan.clock
        )
        twin.board.publish_term(Term(term.epoch, term.nonce, 10**18))
        twin.start_scheduler()
        course(plan)
        sound(plan)


def test_a_loss_of_data_neither_loses_nor_repeats_a_due_time() -> None:
    """What this leader decided it remembers: its watermarks go back before anything is declared anew."""
    with planned(every(10, overlap="allow", missed="all")) as plan:
        plan.until(19.8)
        plan.server.empty()
        plan.until(45)
        assert plan.fired() == [10, 20, 30, 40]
        assert any(told.event == "watermarks_seeded" for told in plan.world.history)
        doubtful = [
            plan.run(plan.queues.show(f"s@{EPOCH_MS + second * 1000}")).envelope.maybe_duplicate for second in (20, 30)
        ]
        assert doubtful == [True, False]


def test_a_loss_of_data_ends_pauses_and_begins_counts_anew_but_for_pauses_of_the_definition() -> None:
    """Nobody remembers these (docs/election.md); what was due since the last run of a completed schedule is made up."""
    held, written = every(10, "held", overlap="allow"), every(10, "written", overlap="allow", paused=True)
    few = every(4, "few", overlap="allow", missed="all", max_runs=2)
    with planned(held, written, few) as plan:
        plan.run(plan.control.pause(["held"], reason="", by="test"))
        plan.world.executed()
        plan.until(25)
        assert (plan.fired("held"), plan.fired("written"), plan.fired("few")) == ([], [], [4, 8])
        plan.server.empty()
        plan.until(45)
        assert (plan.fired("held"), plan.fired("written"), plan.fired("few")) == ([30, 40], [], [4, 8, 12, 16])
        again = plan.run(plan.queues.show(f"few@{EPOCH_MS + 12_000}")).envelope
        assert again.maybe_duplicate


def test_a_schedule_that_its_definition_pauses_owes_nothing_of_an_outage_that_lost_the_data() -> None:
    """It was paused before, and is after it."""
    with planned(every(10, overlap="allow", missed="all", paused=True)) as plan:
        plan.until(99.5)
        plan.world.is_server_up = False
        plan.until(160)
        plan.server.empty()
        plan.world.is_server_up = True
        plan.until(200)
        plan.run(plan.control.resume(["s"]))
        plan.world.executed()
        plan.until(225)
        assert plan.fired() == [210, 220]
        assert plan.state().counters.missed == 0


@pytest.mark.parametrize("is_sole", [True, False], ids=["it_held_the_lease", "its_lease_had_ended"])
def test_a_loss_of_data_loses_no_due_time_that_waits_for_its_jitter(*, is_sole: bool) -> None:
    """A leader that began meanwhile remembers no watermark of it, and nobody has decided it."""
    spread = every(1000, overlap="allow", missed="all", jitter_ms=900_000)
    fire_s = (fire_of(spread, trigger_of(spread), EPOCH_MS + 400_000) - EPOCH_MS) / 1000
    with planned(spread, **FOR_HOURS) as plan:
        plan.until(410)
        plan.leader.kill()
        plan.until(480)
        plan.leader.start()
        plan.until(600)
        if not is_sole:
            plan.leader.pause(100 * SECOND_NS)
            plan.until(690)
        plan.server.empty()
        plan.until(fire_s - 1)
        assert plan.fired() == []
        plan.until(fire_s + 2)
        assert plan.fired() == [400]
        assert plan.state().counters.missed == 0


def test_what_must_not_run_twice_is_counted_as_missed_where_a_loss_of_data_leaves_doubt() -> None:
    """Nobody knows whether it ran: a job that is delivered at most once is not fired again."""
    once = msgspec.structs.replace(TEMPLATE, at_most_once=True)
    with planned(every(10, overlap="allow", missed="all", template=once)) as plan:
        plan.until(19.8)
        plan.server.empty()
        plan.until(45)
        assert plan.fired() == [10, 30, 40]
        assert ("MISSED", 20) in plan.decided("s")
        assert plan.state("s").counters.missed == 1


@pytest.mark.parametrize("is_once", [False, True], ids=["at_least_once", "at_most_once"])
def test_a_backfill_runs_nothing_again_that_may_have_run_before_redis_lost_that(*, is_once: bool) -> None:
    """The decisions are gone with the data: what they were is unknown until the loss, and known behind it."""
    template = msgspec.structs.replace(TEMPLATE, at_most_once=is_once)
    with planned(every(10, overlap="allow", missed="latest", template=template)) as plan:
        plan.until(39.8)
        ran = plan.fetch()
        plan.server.empty()
        plan.until(55)
        plan.leader.kill()
        plan.until(85)
        plan.leader.start()
        plan.until(105)
        ran += plan.fetch()
        request = Request(from_ms=EPOCH_MS, until_ms=EPOCH_MS + 100_000)
        plan.run(BackfillCalls(plan.keys).add("b", "s", request, limit=100, is_forced=False))
        plan.world.executed()
        plan.advance(5)
        made_up = plan.fetch()
        assert set(made_up).isdisjoint(ran)
        assert made_up == [f"s@{EPOCH_MS + second * 1000}" for second in (60, 70)]


@pytest.mark.parametrize("is_once", [False, True], ids=["at_least_once", "at_most_once"])
@pytest.mark.parametrize(
    ("overlap", "missed"),
    [("allow", "latest"), ("allow", "earliest"), ("skip", "all"), ("skip", "earliest"), ("buffer_one", "all")],
)
def test_a_backfill_runs_nothing_again_that_ran_between_a_copy_and_its_restore(
    overlap: str, missed: str, *, is_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the plan makes of it: missed by the policy, skipped since a run of the copy is unfinished, buffered."""
    template = msgspec.structs.replace(TEMPLATE, at_most_once=is_once)
    with planned(every(10, overlap=overlap, missed=missed, template=template)) as plan:
        ran, copies = [], []
        for second in (11, 21, 31, 41, 51, 61):
            plan.until(second)
            copies.append(plan.server.snapshot())
            ran += plan.fetch()
            plan.end(ran[-1])
        plan.server.restore(copies[1])
        monkeypatch.setattr("tests.integration.roles.scheduler.planned.SESSION", "w/worker-1/1")
        plan.until(82)
        plan.finish()
        plan.until(105)
        plan.finish()
        request = Request(from_ms=EPOCH_MS, until_ms=EPOCH_MS + 100_000)
        plan.run(BackfillCalls(plan.keys).add("b", "s", request, limit=100, is_forced=False))
        plan.world.executed()
        plan.advance(5)
        made_up = plan.fetch()
        assert len(ran) == 6
        assert set(made_up).isdisjoint(ran)
        assert f"s@{EPOCH_MS}" in made_up
