"""Missed due times, exactly: what an outage leaves behind, and in which order it is made up for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from supervisor.core.model import Outcome, When
from supervisor.core.schedules.catchup import fire_at_ms
from supervisor.store.schedules.backfills import BackfillCalls, Request
from supervisor.store.wire.fire import DuePage, FireCode
from tests.integration.roles.scheduler.planned import EPOCH_MS, Planned, every, planned


def outage(plan: Planned, until: float) -> None:
    """No leader from now until ``until``."""
    plan.leader.kill()
    plan.until(until)
    plan.leader.start()
    plan.advance(6)


@pytest.mark.parametrize(
    ("missed", "fired"),
    [("latest", [10, 50]), ("earliest", [10, 20]), ("all", [10, 20, 30, 40, 50]), ("skip", [10, 50])],
)
def test_several_missed_due_times_follow_the_policy(missed: str, fired: list[float]) -> None:
    """Four passed; skip runs the one that is hardly late, as after an ordinary hand-over."""
    with planned(every(10, overlap="allow", missed=missed), lease_s=5) as plan:
        plan.until(12)
        outage(plan, 52)
        assert plan.fired() == fired
        counted = plan.state().counters
        assert counted.fired + counted.missed == 5
        assert (
            plan.run(plan.schedules.due(DuePage(after_ms=0, until_ms=1, late_ms=0), ids=["s"])).seen[0].score
            == EPOCH_MS + 60_000
        )


def test_one_due_time_fires_however_late_it_is() -> None:
    """Lateness alone is no reason to lose a run."""
    with planned(every(100, overlap="allow", missed="skip")) as plan:
        plan.until(12)
        outage(plan, 180)
        assert plan.fired() == [100]


def test_all_keeps_the_order_and_the_cap() -> None:
    """The newest are kept; the others are counted under their reason."""
    with planned(every(10, overlap="allow", missed="all", max_catchup=3)) as plan:
        plan.until(12)
        outage(plan, 102)
        assert plan.fired() == [10, 80, 90, 100]
        stretches = plan.state().stretches
        assert [(each.code, each.reasons, each.count) for each in stretches if each.code == "M"] == [("M", ("cap",), 6)]


def test_all_goes_through_overlap_one_by_one() -> None:
    """Each due time is decided as if it were alone."""
    with planned(every(10, overlap="buffer_all", missed="all")) as plan:
        outage(plan, 52)
        assert plan.decided() == [("FIRED", 10), *(("BUFFERED", second) for second in (20, 30, 40, 50))]


def test_what_is_older_than_the_window_never_runs() -> None:
    """It is counted, and the rest follows the policy."""
    with planned(every(10, overlap="allow", missed="all", catchup_window_ms=25_000)) as plan:
        plan.until(12)
        outage(plan, 62)
        assert plan.fired() == [10, 40, 50, 60]


def test_nothing_is_run_for_the_time_before_a_schedule_was_seen() -> None:
    """Its watermark begins with it."""
    with planned() as plan:
        plan.until(100)
        plan.upsert(every(10, overlap="allow", missed="all"))
        plan.until(111)
        assert plan.fired() == [110]


def test_a_backfill_after_many_outages_runs_nothing_again() -> None:
    """Of the first runs nothing is remembered any more, and what was missed begins where the last of them was due."""
    with planned(every(10, overlap="allow")) as plan:
        plan.until(25)
        for count in range(1, 12):
            outage(plan, 25 + 60 * count)
            plan.advance(20)
            plan.finish()
        ran = {f"s@{EPOCH_MS + round(second * 1000)}" for second in plan.fired()}
        request = Request(from_ms=EPOCH_MS, until_ms=plan.clock.wall_ms())
        plan.run(BackfillCalls(plan.keys).add("b", "s", request, limit=1000, is_forced=False))
        plan.advance(10)
        found = set(plan.fetch())
        assert len(found) > 20
        assert found & ran == set()


def test_jitter_moves_the_fire_and_not_the_nominal_time() -> None:
    """Identity, order and watermark stay on the grid."""
    with planned(every(10, overlap="allow", jitter_ms=5000)) as plan:
        plan.until(58)
        assert plan.fired()[:4] == [10, 20, 30, 40]
        late = {round((entry.at_ms - entry.nominal_ms) / 100) for entry in plan.server.decisions}
        assert len(late) == 1
        assert 0 < late.pop() <= 50


def test_a_start_deadline_travels_with_the_run() -> None:
    """The worker decides by it."""
    with planned(every(10, overlap="allow", start_deadline_ms=3000)) as plan:
        plan.until(11)
        shown = plan.run(plan.queues.show(f"s@{EPOCH_MS + 10_000}"))
        assert shown.envelope.not_after_ms == EPOCH_MS + 13_000


def test_equal_due_times_of_a_union_are_one() -> None:
    """The union of two grids meets every thirty seconds."""
    with planned(every(10, overlap="allow", when=(When(every_ms=15_000),))) as plan:
        plan.until(31)
        assert plan.fired() == [10, 15, 20, 30]


def test_after_completion_counts_from_the_end_of_a_run() -> None:
    """However long it took; also when it was given up."""
    with planned(every(1, every_ms=None, after_completion_ms=7000)) as plan:
        plan.until(7.5)
        (first,) = plan.fetch()
        plan.until(20)
        assert len(plan.fired()) == 1
        plan.end(first)
        plan.until(26)
        assert len(plan.fired()) == 1
        plan.until(28)
        assert len(plan.fired()) == 2
        plan.finish(outcome=Outcome.DEAD)
        plan.until(36)
        assert len(plan.fired()) == 3


@pytest.mark.parametrize("overlap", ["allow", "skip", "buffer_all"])
def test_times_beside_after_completion_are_due_on_time_while_a_run_goes_on(overlap: str) -> None:
    """Each is decided at its instant, and none is missed."""
    with planned(every(2, overlap=overlap, when=(When(after_completion_ms=500),))) as plan:
        plan.until(1)
        (running,) = plan.fetch()
        plan.until(11)
        decided = [entry for entry in plan.server.decisions if entry.run_id != running]
        assert [entry.nominal_ms - EPOCH_MS for entry in decided] == [2000, 4000, 6000, 8000, 10_000]
        assert all(entry.missed == 0 and entry.at_ms - entry.nominal_ms < 1000 for entry in decided)


def test_the_end_of_a_run_makes_one_due_between_two_times() -> None:
    """The schedule was ready for its next time; what the end asks for comes before it."""
    with planned(every(20, when=(When(after_completion_ms=3000),))) as plan:
        plan.until(5)
        plan.finish()
        plan.until(21)
        assert plan.fired() == [pytest.approx(3, abs=0.1), pytest.approx(8, abs=0.2)]
        assert plan.decided()[2:] == [("SKIPPED", 20)]


def test_an_end_passes_over_no_time_that_waits_for_its_jitter() -> None:
    """The jitter is over then, as with any next due time: both are one run, and the chain goes on."""
    with planned(every(10, jitter_ms=8000, when=(When(after_completion_ms=1500),))) as plan:
        for _ in range(44):
            plan.advance(1)
            plan.finish()
        assert [second for second in plan.fired() if second % 10 == 0] == [10, 20, 30, 40]
        assert len(plan.fired()) > 15
        assert plan.state().counters.missed == 0


def test_after_an_outage_late_runs_wait_for_those_on_time() -> None:
    """A hundred hours of hourly schedules are made up for once each, and a schedule of every second is never late."""
    hourly = [every(3600, f"h{i:03}", overlap="allow") for i in range(150)]
    with planned(*hourly, every(1, overlap="allow")) as plan:
        plan.until(2)
        plan.leader.kill()
        plan.until(4 * 3600 + 1800)
        plan.leader.start()
        plan.advance(10)
        assert all(plan.fired(each.id) == [4 * 3600] for each in hourly)
        began = next(told.at_ns for told in plan.world.history if told.event == "term_served" and told.at_ns > 10**12)
        late = [
            entry.at_ms - entry.nominal_ms
            for entry in plan.server.decisions
            if entry.schedule == "s" and entry.nominal_ms > EPOCH_MS + began // 10**6
        ]
        assert late
        assert max(late) < 1000


def test_a_clock_that_is_set_forward_and_back_doubles_and_loses_nothing() -> None:
    """The due times between two right readings are each decided once."""
    with planned(every(10, overlap="allow", missed="all")) as plan:
        plan.until(15)
        plan.clock.wall_offset_ms = 3_600_000
        plan.until(45)
        plan.clock.wall_offset_ms = -3_600_000
        plan.until(75)
        plan.clock.wall_offset_ms = 0
        plan.until(95)
        assert plan.fired() == [10, 20, 30, 40, 50, 60, 70, 80, 90]


def test_a_time_that_is_said_once_completes_the_schedule() -> None:
    """It runs, late if must be, and is then out of the plan."""
    at_ms = int(datetime(2026, 1, 1, 0, 0, 20, tzinfo=UTC).timestamp() * 1000)
    with planned(every(1, every_ms=None, at_ms=at_ms)) as plan:
        outage(plan, 30)
        assert plan.fired() == [20]
        assert plan.state().counters.completed_ms > 0
        assert plan.server.store.raw.zscore(plan.keys.schedule_next, "s") is None


def test_lateness_counts_from_the_due_time_with_its_jitter() -> None:
    """A run that waits for its jitter is not late, alone or among those that are made up."""
    spread = every(10, overlap="allow", missed="all", jitter_ms=8000)
    with planned(spread) as plan:
        plan.until(60)
        outage(plan, 95)
        told = [each for told in plan.world.history if told.event == "fires" for each in told.fields["decided"]]

    fired = [(each.item.nominal_ms, each.late_ms) for each in told if each.code is FireCode.FIRED]
    decided_ms = {entry.nominal_ms: entry.at_ms for entry in plan.server.decisions}
    assert max(late for nominal, late in fired if nominal < EPOCH_MS + 50_000) < 100
    assert len(fired) == 9
    assert fired == [
        (nominal, decided_ms[nominal] - fire_at_ms(spread, nominal, nominal + 10_000)) for nominal, _ in fired
    ]
