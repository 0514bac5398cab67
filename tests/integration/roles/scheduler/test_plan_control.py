"""What people change while a leader plans: it follows within a moment, and nothing is fired in retrospect."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from supervisor.core.model import Outcome
from tests.integration.roles.scheduler.planned import EPOCH_MS, every, planned


def test_a_pause_stops_what_is_due_and_its_end_makes_nothing_up() -> None:
    """The time of a pause is not missed."""
    with planned(every(10, overlap="allow", missed="all")) as plan:
        plan.until(12)
        plan.run(plan.control.pause(["s"], reason="maintenance"))
        plan.until(45)
        plan.run(plan.control.resume(["s"]))
        plan.world.executed()
        plan.until(62)
        assert plan.fired() == [10, 50, 60]
        assert plan.state().counters.missed == 0


def test_a_pause_may_count_as_an_outage() -> None:
    """on_resume: catchup."""
    with planned(every(10, overlap="allow", missed="all", on_resume="catchup")) as plan:
        plan.until(12)
        plan.run(plan.control.pause(["s"]))
        plan.until(45)
        plan.run(plan.control.resume(["s"]))
        plan.world.executed()
        plan.until(52)
        assert plan.fired() == [10, 20, 30, 40, 50]


def test_a_pause_with_an_end_ends_by_itself() -> None:
    """And what came due since then is owed."""
    with planned(every(10, overlap="allow")) as plan:
        plan.until(12)
        plan.run(plan.control.pause(["s"], until_ms=EPOCH_MS + 35_000))
        plan.world.executed()
        plan.until(52)
        assert plan.fired() == [10, 40, 50]


def test_a_pause_stops_buffered_starts() -> None:
    """They start when it is over."""
    with planned(every(10, overlap="buffer_one")) as plan:
        plan.until(23)
        plan.run(plan.control.pause(["s"]))
        plan.finish()
        plan.advance(2)
        assert plan.fired() == [10]
        plan.run(plan.control.resume(["s"]))
        plan.world.executed()
        plan.advance(0.5)
        assert plan.fired() == [10, 20]


def test_a_change_is_effective_at_once() -> None:
    """The listener hears of it; a hundred milliseconds are enough."""
    with planned() as plan:
        plan.until(9.7)
        plan.upsert(every(10, overlap="allow"))
        plan.until(10.2)
        assert plan.fired() == [10]
        plan.until(15)
        plan.upsert(every(3, overlap="allow"))
        plan.until(21.2)
        assert plan.fired() == [10, 18, 21]


def test_changing_arguments_does_not_restart_the_clock() -> None:
    """Only a change of the timing begins anew."""
    with planned() as plan:
        plan.upsert(every(10, overlap="allow"))
        plan.until(19)
        plan.upsert(every(10, overlap="allow", description="new"))
        plan.until(21)
        assert plan.fired() == [10, 20]


def test_failures_in_a_row_pause_the_schedule() -> None:
    """With the reason; a success in between starts the count anew."""
    with planned(every(10, overlap="skip", pause_after_failures=2)) as plan:
        for second, outcome in ((11, Outcome.DEAD), (21, Outcome.OK), (31, Outcome.DEAD), (41, Outcome.DEAD)):
            plan.until(second)
            plan.finish(outcome=outcome)
        plan.until(75)
        assert plan.fired() == [10, 20, 30, 40]
        pause = plan.server.store.raw.hget(plan.keys.schedule_paused, "s")
        assert pause is not None
        assert b"2 runs failed in a row" in pause
        plan.run(plan.control.resume(["s"]))
        plan.world.executed()
        plan.until(81)
        assert plan.fired()[-1] == 80


@pytest.mark.share(2)
@pytest.mark.parametrize("ends_by_itself", [False, True])
def test_failures_in_a_pause_do_not_pause_again(*, ends_by_itself: bool) -> None:
    """Runs that were under way when it paused fail, too: whoever resumed it saw it pause again at once."""
    with planned(every(10, overlap="allow", pause_after_failures=2)) as plan:
        plan.until(51)
        first, second, *others = plan.fetch()
        plan.end(first, second, outcome=Outcome.DEAD)
        plan.until(55)
        assert plan.server.store.raw.hexists(plan.keys.schedule_paused, "s")
        plan.end(*others, outcome=Outcome.DEAD)
        if ends_by_itself:
            plan.run(plan.control.pause(["s"], until_ms=EPOCH_MS + 65_000))
        else:
            plan.until(65)
            plan.run(plan.control.resume(["s"]))
        plan.world.executed()
        plan.until(91)
        assert plan.fired() == [10, 20, 30, 40, 50, 70, 80, 90]
        plan.finish(outcome=Outcome.DEAD)
        plan.until(95)
        assert plan.server.store.raw.hexists(plan.keys.schedule_paused, "s")


def test_max_runs_completes_the_schedule() -> None:
    """It counts what was enqueued, not what was skipped."""
    with planned(every(10, overlap="skip", max_runs=2)) as plan:
        plan.until(25)
        plan.finish()
        plan.until(75)
        assert plan.decided() == [("FIRED", 10), ("SKIPPED", 20), ("FIRED", 30)]
        assert plan.state().counters.completed_ms > 0


def test_max_runs_that_are_had_amid_what_is_owed_end_it() -> None:
    """With two due times left over, the leader asked Redis as fast as it answered, for good."""
    with planned(every(2, missed="all", overlap="allow", max_runs=3)) as plan:
        plan.until(3)
        plan.leader.kill()
        plan.until(20)
        plan.leader.start()
        plan.until(40)
        assert plan.fired() == [2, 4, 6]


def test_a_completed_schedule_that_may_run_on_does() -> None:
    """An edit that raises max_runs opens it again."""
    with planned() as plan:
        plan.upsert(every(10, overlap="allow", max_runs=1))
        plan.until(25)
        plan.upsert(every(10, overlap="allow", max_runs=3))
        plan.until(55)
        assert plan.fired() == [10, 30, 40]


@pytest.mark.parametrize(
    "lives",
    [
        [{"every_ms": None, "at_ms": EPOCH_MS + s * 1000} for s in (10, 30)],
        [{"end_at_ms": EPOCH_MS + s * 1000} for s in (10, 30)],
        [{"max_runs": n} for n in (1, 2)],
        [{"max_runs": 1}, {"max_runs": 2, "end_at_ms": EPOCH_MS + 90_000}],
        [{"max_runs": 1}, {"max_runs": 2, "every_ms": None, "cron": "*/10 * * * * *"}],
    ],
    ids=["at", "end_at", "max_runs", "max_runs and end_at", "max_runs and spelling"],
)
def test_an_edit_that_lets_a_completed_schedule_go_on_counts_from_its_moment_though_nobody_leads(
    lives: list[dict[str, Any]],
) -> None:
    """What is due between the edit and the next look of a leader is owed, and nothing that was due before the edit."""
    with planned(every(1000, "other")) as plan:
        before, after = (every(10, missed="all", overlap="allow", **fields) for fields in lives)
        plan.upsert(before)
        plan.until(24)
        plan.leader.kill_scheduler()
        plan.edit(after)
        plan.until(35)
        plan.leader.start_scheduler()
        plan.until(60)
        assert plan.fired() == [10, 30]


@pytest.mark.parametrize("edit", [{"description": "weekly"}, {"max_runs": 8}])
@pytest.mark.parametrize("is_led", [True, False])
def test_a_further_edit_of_a_completed_schedule_that_is_to_go_on_takes_no_due_time_from_it(
    edit: dict[str, Any], *, is_led: bool
) -> None:
    """It is completed until the leader has dealt with it: while nobody leads, and while it is paused."""
    with planned(every(1000, "other")) as plan:
        plan.upsert(first := every(10, missed="all", overlap="allow", on_resume="catchup", max_runs=1))
        plan.until(14)
        if is_led:
            plan.run(plan.control.pause(["s"]))
        else:
            plan.leader.kill_scheduler()
        plan.until(24)
        plan.upsert(more := msgspec.structs.replace(first, max_runs=9))
        plan.until(45)
        plan.upsert(msgspec.structs.replace(more, **edit))
        if is_led:
            plan.run(plan.control.resume(["s"]))
        else:
            plan.leader.start_scheduler()
        plan.until(58)
        assert plan.fired() == [10, 30, 40, 50]


def test_a_completed_dynamic_schedule_is_deleted_in_the_end() -> None:
    """retain_completed later; static ones stay listed."""
    with planned(every(10, "static", max_runs=1, retain_completed_ms=20_000)) as plan:
        plan.upsert(every(10, overlap="allow", max_runs=1, retain_completed_ms=20_000))
        plan.until(25)
        assert plan.server.store.raw.hexists(plan.keys.schedule_def, "s")
        plan.until(40)
        assert not plan.server.store.raw.hexists(plan.keys.schedule_def, "s")
        assert plan.server.store.raw.hexists(plan.keys.schedule_def, "static")


def test_a_chain_is_completed_when_its_last_run_has_ended() -> None:
    """Behind end_at no end of a run makes another one due: it is not looked at for ever."""
    with planned(every(1000, "other")) as plan:
        chain = {"every_ms": None, "after_completion_ms": 5000, "retain_completed_ms": 20_000}
        plan.upsert(every(1, end_at_ms=plan.world.start_ms + 8000, **chain))
        plan.until(7)
        (last,) = plan.fetch()
        plan.until(40)
        assert plan.server.store.raw.hexists(plan.keys.schedule_def, "s")
        plan.end(last)
        plan.until(70)
        assert len(plan.fired()) == 1
        assert not plan.server.store.raw.hexists(plan.keys.schedule_def, "s")


def test_a_new_schedule_may_begin_with_a_run() -> None:
    """Once for the cluster: not at a restart, not with another leader, not after an edit."""
    with planned(every(1000, overlap="allow", run_on_create=True)) as plan:
        plan.advance(1)
        assert plan.fetch() == ["s!initial"]
        plan.leader.kill()
        plan.leader.start()
        plan.advance(10)
        assert plan.fetch() == []
        assert [code for code, _ in plan.decided()] == ["INITIAL"]


def test_a_forgotten_schedule_is_found_again() -> None:
    """A chain that could break would stop for ever: a page of all schedules is searched every ten seconds."""
    with planned(every(10, overlap="allow")) as plan:
        plan.until(12)
        plan.server.store.raw.zrem(plan.keys.schedule_next, "s")
        plan.leader.kill()
        plan.leader.start()
        plan.until(45)
        assert plan.fired()[-1] == 40
        assert any(told.event == "schedule_overdue" for told in plan.world.history)


@pytest.mark.parametrize("overlap", ["skip", "buffer_one"])
def test_a_lost_message_costs_seconds_at_most(overlap: str) -> None:
    """The request stands in the plan; the stream only tells of it."""
    with planned(every(10, overlap=overlap)) as plan:
        plan.until(12)
        plan.leader.is_cut = True
        plan.upsert(every(1, "new", overlap="allow"))
        plan.server.store.raw.delete(plan.keys.schedule_changes)
        plan.leader.is_cut = False
        plan.until(20)
        assert plan.fired("new")
