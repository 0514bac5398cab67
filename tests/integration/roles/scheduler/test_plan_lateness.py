"""Promises of schedules about their runs: each miss is told once, and its end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from supervisor.core.model import Envelope, Outcome
from supervisor.core.units import MILLISECOND_NS
from supervisor.operations import schedule_control
from supervisor.roles.scheduler.fenced_client import Lateness
from supervisor.store.schedules.definitions import Definitions
from supervisor.store.schedules.reads import LATE_MS, Record, Views
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.fire import LatenessChange
from supervisor.store.wire.poll import Ack
from supervisor.testing.world import EPOCH_MS
from tests.integration.roles.scheduler.planned import FOR_HOURS, TEMPLATE, Planned, every, planned
from tests.integration.roles.scheduler.test_plan_faults import OneFault
from tests.integration.roles.scheduler.test_plan_following import after

HOUR = 3600


def told(plan: Planned) -> list[tuple[str, str]]:
    """Return what was told about lateness: the schedule and its promise, or that it keeps it again."""
    return [
        (str(each.fields["schedule"]), str(each.fields.get("promise", "recovered")))
        for each in plan.world.history
        if each.event in {"schedule_late", "schedule_recovered"}
    ]


def record(plan: Planned, schedule: str = "s") -> Record:
    (found,) = plan.run(Views(plan.keys).inspect([schedule]))
    assert found.record is not None
    return found.record


def late(plan: Planned) -> str:
    (found,) = plan.run(Views(plan.keys).inspect(["s"]))
    assert found.record is not None
    return found.record.lateness(found.now_ms)


def promised(plan: Planned) -> dict[bytes, float]:
    return dict(plan.server.store.raw.zrange(plan.keys.schedule_promised, 0, -1, withscores=True))


def silent(**fields: Any) -> Any:
    """Return a schedule of every ten seconds that expects a success within 25."""
    return every(10, overlap="allow", expect_success_every_ms=25_000, **fields)


def test_a_schedule_without_a_success_for_too_long_is_late_once_and_recovers_once() -> None:
    """Counted from its definition until it has one, then from the last; failures are none."""
    with planned(silent()) as plan:
        plan.until(24)
        plan.finish(outcome=Outcome.DEAD)
        assert (told(plan), late(plan)) == ([], "")
        plan.until(90)
        assert (told(plan), late(plan)) == ([("s", "expect_success_every")], "no success in time")
        plan.finish()
        plan.advance(6)
        assert told(plan) == [("s", "expect_success_every"), ("s", "recovered")]
        assert (late(plan), record(plan).expected.ok_ms) == ("", EPOCH_MS + 90_000)
        plan.until(130)
        assert told(plan)[2:] == [("s", "expect_success_every")]


def test_a_run_by_hand_is_a_success_and_a_child_is_none() -> None:
    """Whoever mends the job and triggers it ends the alarm."""
    with planned(silent(max_running=1)) as plan:
        plan.until(40)
        plan.fetch()
        asked = schedule_control.trigger(plan.keys, "s", key="k", wall_ms=plan.clock.wall_ms())
        answer = None
        with suppress(StopIteration):
            while True:
                answer = plan.run(asked.send(answer))
        assert plan.fetch() == ["s!manual!k"]
        plan.end("s!manual!k")
        plan.advance(6)
        assert told(plan) == [("s", "expect_success_every"), ("s", "recovered")]


@pytest.mark.share(2)
@pytest.mark.parametrize("seconds", [30.0, 300.0])
def test_the_time_of_a_pause_is_no_silence(seconds: float) -> None:
    """A paused schedule is silent, one that was late before too; then it counts anew."""
    with planned(silent()) as plan:
        plan.until(40)
        plan.run(plan.control.pause(["s"], reason="", by="test"))
        plan.advance(seconds)
        assert (len(told(plan)), late(plan)) == (1, "")
        assert LATE_MS not in promised(plan).values()
        plan.run(plan.control.resume(["s"]))
        plan.advance(18)
        assert len(told(plan)) == 1
        plan.advance(20)
        assert len(told(plan)) == 2


def test_a_completed_schedule_is_silent() -> None:
    """Nothing is due any more."""
    with planned(silent(max_runs=1), **FOR_HOURS) as plan:
        plan.until(15)
        plan.finish()
        plan.advance(HOUR)
        assert told(plan) == []


def test_a_run_that_has_not_ended_ok_in_time_is_told_once() -> None:
    """Whether it hangs, waits or failed; the next that ends ok ends it."""
    with planned(every(60, overlap="allow", finish_within_ms=20_000)) as plan:
        plan.until(70)
        plan.finish()
        plan.until(110)
        assert (told(plan), promised(plan)) == ([], {})
        plan.until(160)
        assert (told(plan), late(plan)) == ([("s", "finish_within")], "a run has not ended in time")
        plan.finish(outcome=Outcome.DEAD)
        plan.until(185)
        assert told(plan) == [("s", "finish_within")]
        plan.finish()
        plan.advance(6)
        assert told(plan) == [("s", "finish_within"), ("s", "recovered")]
        assert (late(plan), promised(plan)) == ("", {})


def test_runs_that_are_late_together_are_told_in_one_line() -> None:
    """Such as those that are caught up after an outage; each is counted."""
    with planned(every(60, overlap="allow", missed="all", finish_within_ms=20_000)) as plan:
        plan.until(50)
        plan.leader.kill_scheduler()
        plan.advance(300)
        plan.leader.start_scheduler()
        plan.advance(25)
        lines = [each.fields for each in plan.world.history if each.event == "schedule_late"]
        assert sum(int(line.get("count", 1)) for line in lines) >= 4
        assert len(lines) == 1, lines


def test_a_run_that_ends_right_after_its_time_is_told_all_the_same() -> None:
    """Also when the leader did not look in between."""
    with planned(every(60, overlap="allow", finish_within_ms=20_000)) as plan:
        plan.until(75.5)  # the leader has just looked, or will in a moment
        plan.fetch()
        plan.until(80.05)
        plan.end(f"s@{EPOCH_MS + 60_000}")
        plan.advance(15)
        assert told(plan) == [("s", "finish_within"), ("s", "recovered")]


def test_a_success_while_the_alarm_is_told_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy leader settles it seconds later: whoever heard the alarm hears the end of it."""
    with planned(silent()) as plan:
        plan.until(20)
        ended = Ack(run_id=plan.fetch()[0], queue="default", attempt=1, outcome=Outcome.OK, schedule="s")
        tell = Lateness._report

        def tell_and_end(teller: Lateness, changes: Sequence[LatenessChange]) -> None:
            tell(teller, changes)
            plan._turn(acks=[] if changes[0].is_over else [ended])

        monkeypatch.setattr(Lateness, "_report", tell_and_end)
        plan.until(40)
        assert (told(plan), late(plan)) == ([("s", "expect_success_every"), ("s", "recovered")], "")


def test_a_schedule_that_is_late_stays_so_under_a_new_name() -> None:
    """The metric and its alert go on, until a run of the new name ends ok."""
    with planned(every(1000, "other")) as plan:
        plan.upsert(every(30, finish_within_ms=10_000))
        plan.until(45)
        plan.fetch()
        plan.upsert(every(30, "new", finish_within_ms=20_000, renamed_from="s"))
        plan.until(55)
        counts = [each.fields["count"] for each in plan.world.history if each.event == "schedules_late"]
        assert counts[-1] == 1
        plan.end(f"s@{EPOCH_MS + 30_000}")
        plan.advance(6)
        assert told(plan) == [("s", "finish_within"), ("new", "recovered")]


@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_a_run_that_began_under_a_former_name_is_late_all_the_same(overlap: str) -> None:
    """It was told under neither name; the alarm is that of the new one, and ends with a success of it."""
    with planned(every(1000, "other")) as plan:
        plan.upsert(every(30, overlap=overlap, finish_within_ms=20_000))
        plan.until(35)
        plan.fetch()
        plan.upsert(every(30, "new", overlap=overlap, finish_within_ms=20_000, renamed_from="s"))
        plan.until(56)
        assert told(plan) == [("s", "finish_within")]
        assert record(plan, "new").expected.late_ms == EPOCH_MS + 30_000
        plan.end(f"s@{EPOCH_MS + 30_000}")
        plan.advance(6)
        assert told(plan) == [("s", "finish_within"), ("new", "recovered")]


def test_a_run_whose_end_was_asked_for_is_not_late() -> None:
    """Cancelled by a person, or replaced by a newer one."""
    with planned(every(60, overlap="terminate_other", finish_within_ms=90_000)) as plan:
        plan.until(125)
        plan.finish(outcome=Outcome.CANCELLED)
        plan.until(170)
        assert (told(plan), promised(plan)) == ([], {})


@pytest.mark.share(4)
@pytest.mark.parametrize("fault", ["question", "answer", "repeated"])
@pytest.mark.parametrize("position", range(0, 48, 6))
def test_a_fault_of_the_network_loses_no_alarm(position: int, fault: str) -> None:
    """Nothing is settled in Redis before it was told."""
    with planned(silent(finish_within_ms=12_000, max_runs=1), network=OneFault(position, fault)) as plan:
        plan.until(20)
        plan.fetch()
        plan.until(45)
        told_late = told(plan)
        assert sorted(set(told_late)) == [("s", "finish_within")]  # completed: no success is expected any more
        assert len(told_late) == 1


def test_another_leader_goes_on_with_what_is_counted() -> None:
    """The marks lie in Redis: what was told is not told again, what was not is."""
    with planned(silent()) as plan:
        plan.until(20)
        for second in (20, 33, 36, 60):
            plan.until(second)
            plan.leader.kill_scheduler()
            plan.world.after(200 * MILLISECOND_NS, plan.leader.start_scheduler)
            plan.advance(0.5)
        plan.until(90)
        assert told(plan) == [("s", "expect_success_every")]


def test_an_edit_keeps_what_is_counted_and_a_removal_leaves_nothing() -> None:
    """A longer promise ends an alarm with the next success; a new name takes the last success along."""
    with planned(every(1000, "other")) as plan:
        plan.upsert(silent(finish_within_ms=8_000))
        plan.until(15)
        plan.finish()
        last = record(plan).expected
        plan.upsert(every(10, "new", overlap="allow", expect_success_every_ms=60_000, renamed_from="s"))
        assert record(plan, "new").expected == last._replace(every_ms=60_000)
        plan.until(70)
        assert told(plan) == []
        plan.run(Definitions(plan.keys).delete([("new", None), ("s", None)]))
        plan.advance(10)
        assert promised(plan) == {}


@pytest.mark.parametrize("since_ms", [10**14, 10**15 - 1, 10**17, 10**400])
def test_an_expectation_since_a_year_that_no_calendar_has_ends_no_leader(since_ms: int) -> None:
    """The text of the report was made of it, and the scheduler died in each term."""
    with planned(silent()) as plan:
        plan.until(2)
        plan.server.store.raw.hset(f"{plan.keys.prefix}schedule:expected", "s", f"25000 {since_ms} 0 0 0")
        plan.server.store.raw.zadd(plan.keys.schedule_promised, {"s": EPOCH_MS})
        plan.until(31)
        assert plan.fired() == [10, 20, 30]


@pytest.mark.parametrize("score", ["-inf", "-1e300"])
def test_an_expectation_at_a_time_that_is_no_number_ends_no_leader(score: str) -> None:
    """It is left out until the schedule counts anew, as after a pause; the others are told."""
    with planned(silent()) as plan:
        plan.until(2)
        plan.server.store.raw.zadd(plan.keys.schedule_promised, {"s": score})
        plan.run(plan.control.pause(["s"], until_ms=EPOCH_MS + 4000))
        plan.world.executed()
        plan.until(31)
        assert plan.fired() == [10, 20, 30]
        assert told(plan) == [("s", "expect_success_every")]


def test_a_nominal_time_that_nobody_writes_ends_no_promise_and_keeps_no_place_of_a_follower() -> None:
    """Whoever may enqueue by Redis can lay its run: nothing was late any more, and of 1,000 places each kept one."""
    with planned(silent(), after()) as plan:
        raw, queue = plan.server.store.raw, plan.keys.queue("default")
        for digits in range(16, 20):
            made = pack(Envelope(id="s@" + digits * "9", template=TEMPLATE))
            raw.hset(queue.data, made.run_id, made.data)
            raw.rpush(queue.ready(TEMPLATE.kind, 1), made.run_id)
        plan.finish()
        assert raw.hget(plan.keys.schedule_state, "b") is None
        plan.until(40)
        assert told(plan) == [("s", "expect_success_every")]
