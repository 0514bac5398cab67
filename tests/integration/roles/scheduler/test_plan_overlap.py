"""Overlap, exactly: what becomes of a due time while an earlier run is unfinished."""

from __future__ import annotations

import pytest

from supervisor.core.model import Outcome
from supervisor.store.wire.fire import FireCode
from tests.integration.roles.scheduler.planned import EPOCH_MS, every, planned


def run_of(second: int) -> str:
    return f"s@{1_767_225_600_000 + second * 1000}"


def test_skip_enqueues_nothing_and_goes_on() -> None:
    """The watermark advances, and the skip is counted."""
    with planned(every(10, overlap="skip")) as plan:
        plan.until(35)
        assert plan.decided() == [("FIRED", 10), ("SKIPPED", 20), ("SKIPPED", 30)]
        assert (plan.state().counters.fired, plan.state().counters.skipped) == (1, 2)
        plan.finish()
        plan.until(45)
        assert plan.fired() == [10, 40]


def test_allow_always_enqueues() -> None:
    """However many are unfinished."""
    with planned(every(10, overlap="allow")) as plan:
        plan.until(35)
        assert plan.fired() == [10, 20, 30]


def test_policies_act_from_max_running_on() -> None:
    """Two may be unfinished, the third is skipped."""
    with planned(every(10, overlap="skip", max_running=2)) as plan:
        plan.until(35)
        assert plan.decided() == [("FIRED", 10), ("FIRED", 20), ("SKIPPED", 30)]


def test_buffer_one_starts_the_first_that_was_skipped_when_a_slot_frees() -> None:
    """At the end of the run, not at the next due time; it keeps its nominal time."""
    with planned(every(10, overlap="buffer_one")) as plan:
        plan.until(43)
        assert plan.decided() == [("FIRED", 10), ("BUFFERED", 20), ("SKIPPED", 30), ("SKIPPED", 40)]
        plan.finish()
        assert plan.fired() == [10, 20]
        assert plan.fetch() == [run_of(20)]
        assert plan.state().counters.waiting == 0
        plan.end(run_of(20))
        plan.until(55)
        assert plan.fired() == [10, 20, 50]


def test_buffer_all_keeps_the_order_up_to_its_limit() -> None:
    """First in, first out; beyond the limit the newest is dropped and counted."""
    with planned(every(10, overlap="buffer_all", buffer_limit=2)) as plan:
        plan.until(45)
        assert plan.decided() == [("FIRED", 10), ("BUFFERED", 20), ("BUFFERED", 30), ("DROPPED", 40)]
        plan.finish()
        plan.finish()
        assert plan.fired() == [10, 20, 30]
        assert plan.state().counters.dropped == 1


def test_what_waits_behind_a_run_that_must_go_on_waiting_is_no_news() -> None:
    """It is asked about with the others, and a warning of each as decided twice would hide a real one."""
    with planned(every(10, overlap="buffer_all")) as plan:
        plan.until(65)
        plan.finish()
        told = [each for line in plan.world.history if line.event == "fires" for each in line.fields["decided"]]
        assert plan.fired() == [10, 20]
        assert {each.code for each in told} == {FireCode.FIRED, FireCode.BUFFERED, FireCode.HELD}


def test_several_slots_start_several_that_wait() -> None:
    """Two runs end in one turn, so two start."""
    with planned(every(10, overlap="buffer_all", max_running=2)) as plan:
        plan.until(45)
        plan.finish()
        assert plan.fired() == [10, 20, 30, 40]


def test_a_run_that_was_replaced_before_it_began_ends_at_once() -> None:
    """cancel_other: nobody works on it, so there is nobody to ask."""
    with planned(every(10, overlap="cancel_other")) as plan:
        plan.until(25)
        assert plan.fired() == [10, 20]
        assert plan.fetch() == [run_of(20)]
        assert plan.state().counters.replaced == 1


def test_cancel_other_asks_and_starts_when_the_other_has_ended() -> None:
    """Until then the newest due time waits, instead of the one that waited before."""
    with planned(every(10, overlap="cancel_other")) as plan:
        plan.until(11)
        plan.fetch()
        plan.until(33)
        assert plan.decided() == [("FIRED", 10), ("BUFFERED", 20), ("BUFFERED", 30)]
        asked = plan.server.store.raw.hget(plan.keys.queue("default").prefix + "cancel", run_of(10))
        assert asked is not None
        assert asked.startswith(b"stop|")
        plan.end(run_of(10), outcome=Outcome.REPLACED)
        assert plan.fired() == [10, 30]
        assert plan.fetch() == [run_of(30)]


def test_cancel_other_asks_no_more_than_must_end() -> None:
    """Of several that may be unfinished the oldest is asked: one that comes takes the place of one."""
    with planned(every(10, overlap="cancel_other", max_running=3)) as plan:
        for second in (11, 21, 31):
            plan.until(second)
            plan.fetch()
        plan.until(53)
        cancels = plan.keys.queue("default").prefix + "cancel"
        assert plan.server.store.raw.hkeys(cancels) == [run_of(10).encode()]
        plan.end(run_of(10), outcome=Outcome.REPLACED)
        assert plan.fired() == [10, 20, 30, 50]
        plan.fetch()
        plan.until(73)
        assert plan.server.store.raw.hkeys(cancels) == [run_of(20).encode()]
        plan.until(91)
        assert plan.fired() == [10, 20, 30, 50, 90]
        assert plan.end(*map(run_of, (20, 30, 50))) == [run_of(20)]


@pytest.mark.parametrize("last", [{}, {"end_at_ms": EPOCH_MS + 40_000}])
def test_cancel_other_forces_when_the_grace_is_over(last: dict[str, int]) -> None:
    """The run that would not stop is no longer its worker's, also if no due time follows: its reports are refused."""
    with planned(every(20, overlap="cancel_other", cancel_grace_ms=7000, **last)) as plan:
        plan.until(21)
        plan.fetch()
        plan.until(46.5)
        assert plan.fired() == [20]
        plan.until(47.5)
        assert plan.fired() == [20, 40]
        assert plan.end(run_of(20)) == [run_of(20)]


def test_terminate_other_starts_at_once() -> None:
    """The old run ends as replaced."""
    with planned(every(10, overlap="terminate_other")) as plan:
        plan.until(11)
        plan.fetch()
        plan.until(21)
        assert plan.fired() == [10, 20]
        assert plan.end(run_of(10)) == [run_of(10)]
        shown = plan.run(plan.queues.show(run_of(10)))
        assert [entry.outcome for entry in shown.history] == ["replaced"]


def test_what_waits_too_long_is_dropped_when_its_turn_comes() -> None:
    """A buffered run older than the window is of no use."""
    with planned(every(10, overlap="buffer_one", catchup_window_ms=15_000)) as plan:
        plan.until(48)
        plan.finish()
        assert plan.decided()[-1] == ("DROPPED", 20)
        assert plan.fired() == [10]


@pytest.mark.parametrize(("overlap", "then"), [("allow", "FIRED"), ("skip", "SKIPPED")])
def test_a_changed_policy_applies_to_what_waits(overlap: str, then: str) -> None:
    """It is decided when its turn comes, by the policy as it is then."""
    with planned() as plan:
        plan.upsert(every(10, overlap="buffer_one"))
        plan.until(23)
        assert plan.decided()[-1] == ("BUFFERED", 20)
        plan.upsert(every(10, overlap=overlap))
        assert plan.decided()[-1] == (then, 20)


@pytest.mark.parametrize("how", ["dead", "lost", "cancelled"])
def test_a_run_that_did_not_end_well_frees_its_slot(how: str) -> None:
    """Given up, reaped with its session, or cancelled by a person: the slot hangs on the run's record alone."""
    with planned(every(10, overlap="buffer_one")) as plan:
        plan.until(23)
        (run_id,) = plan.fetch()
        if how == "dead":
            plan.end(run_id, outcome=Outcome.DEAD)
        elif how == "cancelled":
            plan.server.store.raw.hdel(plan.keys.queue("default").data, run_id)
            plan.end(run_id)
        else:
            raw = plan.server.store.raw
            raw.zadd(plan.keys.queue("default").dead, {run_id: 1})  # as a reaped one that must not run twice
        plan.until(35)
        assert 20 in plan.fired() or (how == "lost" and plan.decided()[-1][1] == 30)
