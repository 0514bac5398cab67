"""Pauses that meet: of a definition and of a person, and those that end before a due time's jitter does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from supervisor.core.model import Outcome
from supervisor.roles.scheduler.scheduler import Scheduler
from supervisor.store.schedules.backfills import BackfillCalls, Request
from supervisor.store.wire.envelope import unpack
from tests.integration.roles.scheduler.planned import EPOCH_MS, FOR_HOURS, TEMPLATE, Planned, every, planned

WAITS_S = 26.986  # the jitter of ``s``, which is on the grid of a minute


def defined(plan: Planned, *, is_paused: bool, description: str = "") -> None:
    """Create or change the schedule ``s``."""
    plan.upsert(every(10, overlap="allow", missed="all", paused=is_paused, description=description))


def paused_until(plan: Planned, second: float) -> None:
    """Pause ``s``, as a person does, until ``second`` of the world."""
    plan.run(plan.control.pause(["s"], by="kim", until_ms=EPOCH_MS + round(second * 1000)))
    plan.world.executed()


def resumed(plan: Planned) -> None:
    """Resume ``s``, as a person does."""
    plan.run(plan.control.resume(["s"]))
    plan.world.executed()


def test_a_definition_that_is_paused_outlasts_a_pause_that_ends_by_itself() -> None:
    """It was deployed while that one ran, and the schedule fired for good once it ended."""
    with planned() as plan:
        defined(plan, is_paused=False)
        plan.until(12)
        paused_until(plan, 25)
        defined(plan, is_paused=True)
        plan.until(52)
        assert plan.fired() == [10]
        defined(plan, is_paused=False)
        plan.until(72)
        assert plan.fired() == [10, 60, 70]
        assert plan.state().counters.missed == 0


@pytest.mark.parametrize("length_s", [1, 3, 5, 7, 40])
def test_a_pause_of_any_length_ends_on_time(length_s: int) -> None:
    """Also one that ends before what the leader has read ahead: it looked at that schedule seconds after its end."""
    with planned() as plan:
        plan.upsert(every(1, overlap="allow"))
        plan.until(12.5)
        paused_until(plan, 12.5 + length_s)
        plan.until(16.5 + length_s)
        assert plan.fired()[-5:] == [12, *range(13 + length_s, 17 + length_s)]


@pytest.mark.parametrize("is_paused_first", [False, True])
def test_a_definition_that_is_paused_no_more_leaves_a_persons_pause(*, is_paused_first: bool) -> None:
    """It ends when that person said, in whichever order the two began."""
    with planned() as plan:
        defined(plan, is_paused=is_paused_first)
        plan.until(12)
        paused_until(plan, 45)
        if not is_paused_first:
            defined(plan, is_paused=True)
        plan.until(22)
        defined(plan, is_paused=False)
        plan.until(62)
        assert plan.fired()[-2:] == [50, 60]
        assert set(plan.fired()) <= {10, 50, 60}


def test_a_resume_ends_both_and_no_later_edit_undoes_it() -> None:
    """Whoever resumes has seen that it is paused; only a definition that begins to say so anew pauses again."""
    with planned() as plan:
        defined(plan, is_paused=False)
        plan.until(12)
        paused_until(plan, 45)
        defined(plan, is_paused=True)
        resumed(plan)
        defined(plan, is_paused=True)
        plan.until(22)
        defined(plan, is_paused=True, description="edited")
        plan.until(32)
        assert plan.fired() == [10, 20, 30]
        paused_until(plan, 45)
        defined(plan, is_paused=True, description="edited again")
        plan.until(52)
        assert plan.fired() == [10, 20, 30, 50]


def test_a_pause_that_ends_by_itself_does_not_end_the_definitions() -> None:
    """Defined, but not due until somebody resumes it: who pauses it for a time does not."""
    with planned() as plan:
        defined(plan, is_paused=True)
        plan.until(12)
        paused_until(plan, 25)
        plan.until(42)
        assert plan.fired() == []
        resumed(plan)
        plan.until(52)
        assert plan.fired() == [50]


@pytest.mark.parametrize("ends_by_itself", [False, True])
def test_a_pause_that_is_over_before_a_due_time_has_waited_for_its_jitter_drops_nothing(
    *, ends_by_itself: bool
) -> None:
    """What waits is due when its jitter is over, and then nothing is paused. What was due within the pause is dropped."""
    with planned(every(60, overlap="allow", missed="all", jitter_ms=30_000)) as plan:
        for begins, ends in ((70, 80), (130, 200)):
            plan.until(begins)
            paused_until(plan, ends if ends_by_itself else 10_000)
            if not ends_by_itself:
                plan.until(ends)
                resumed(plan)
        plan.until(180 + WAITS_S - 0.1)
        assert plan.fired() == [60]
        plan.until(300)
        assert plan.fired() == [60, 180, 240]
        assert plan.state().counters.missed == 0


def test_nothing_that_has_fired_fires_again_after_a_pause() -> None:
    """A pause soon after a fire, and another right behind it."""
    with planned(every(60, overlap="allow", missed="all", jitter_ms=30_000)) as plan:
        plan.until(60 + WAITS_S + 0.5)
        for _ in range(2):
            paused_until(plan, 10_000)
            resumed(plan)
        plan.until(119)
        assert plan.fired() == [60]
        plan.until(150)
        assert plan.fired() == [60, 120]


def test_a_definition_that_is_paused_no_more_drops_nothing_that_waits_for_its_jitter() -> None:
    """As at the end of any pause."""
    with planned() as plan:
        for second, is_paused in ((5, False), (70, True), (80, False)):
            plan.until(second)
            plan.upsert(every(60, overlap="allow", jitter_ms=30_000, paused=is_paused))
        plan.until(100)
        assert plan.fired() == [60]


def behind(plan: Planned, *, begins: float = 45, ends: float = 46, **fields: object) -> None:
    """Let ``s``, due every ten seconds, be without a leader from 15 on, and paused from ``begins`` on; wait for ``ends``."""
    plan.upsert(every(10, overlap="allow", **fields))
    plan.until(15)
    plan.leader.kill_scheduler()
    plan.until(begins)
    paused_until(plan, 10_000)
    plan.until(ends)


@pytest.mark.parametrize("leads_first", [False, True])
@pytest.mark.parametrize(
    ("policy", "decided"),
    [
        ({"missed": "all"}, ([20, 30, 40], 0)),
        ({"missed": "latest"}, ([40], 2)),
        ({"missed": "earliest"}, ([20], 2)),
        ({"missed": "skip"}, ([], 3)),
        ({"missed": "all", "catchup_window_ms": 35_000}, ([40], 2)),
        ({"missed": "all", "catchup_window_ms": 20_000}, ([], 3)),
        ({"missed": "all", "max_catchup": 2}, ([30, 40], 1)),
        ({"missed": "all", "max_runs": 3}, ([20, 30], 0)),
        ({"missed": "all", "on_resume": "catchup"}, ([20, 30, 40, 50, 60, 70], 0)),
    ],
)
def test_what_was_due_before_a_pause_is_decided_after_it(
    policy: dict[str, object], decided: tuple[list[int], int], *, leads_first: bool
) -> None:
    """Nobody led until the pause or longer. By the policies of its schedule; the time of the pause is forgotten."""
    with planned() as plan:
        behind(plan, begins=45, ends=60, **policy)
        if leads_first:
            plan.leader.start_scheduler()
            plan.until(72)
            assert plan.fired() == [10]
            resumed(plan)
        else:
            plan.until(72)
            resumed(plan)
            plan.leader.start_scheduler()
        plan.until(79)
        assert (plan.fired()[1:], plan.state().counters.missed) == decided
        plan.until(95)
        spent = plan.state().counters.fired == policy.get("max_runs")
        assert plan.fired()[len(decided[0]) + 1 :] == ([] if spent else [80, 90])
        assert not plan.server.store.fields(plan.keys.schedule_paused)


@pytest.mark.parametrize("ends", [62, 95])
def test_a_pause_that_is_made_longer_or_shorter_began_with_the_first(ends: int) -> None:
    """What was due before that is owed, and what was due since then is not."""
    with planned() as plan:
        behind(plan, missed="all")
        plan.leader.start_scheduler()
        paused_until(plan, 75)
        plan.until(55)
        paused_until(plan, ends)
        plan.until(ends - 0.2)
        assert plan.fired() == [10]
        plan.until(ends + 9)
        assert plan.fired() == [10, 20, 30, 40, 70 if ends == 62 else 100]
        assert plan.state().counters.missed == 0


@pytest.mark.parametrize("is_defined_first", [False, True])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_pauses_beside_each_other_keep_what_was_due_before_both(*, is_defined_first: bool, is_resumed: bool) -> None:
    """The definition's ends first and the person's at 75, or one request ends both."""
    with planned() as plan:
        defined(plan, is_paused=False)
        plan.until(15)
        plan.leader.kill_scheduler()
        plan.until(45)
        for is_definition in (is_defined_first, not is_defined_first):
            if is_definition:
                defined(plan, is_paused=True)
            else:
                paused_until(plan, 75)
        plan.leader.start_scheduler()
        plan.until(62)
        if is_resumed:
            resumed(plan)
        else:
            defined(plan, is_paused=False)
        plan.until(69)
        assert plan.fired() == ([10, 20, 30, 40] if is_resumed else [10])
        plan.until(82)
        assert plan.fired() == [10, 20, 30, 40, *([70] if is_resumed else []), 80]
        assert plan.state().counters.missed == 0


def test_a_pause_after_failures_runs_nothing_again_that_failed() -> None:
    """It was decided, and so nothing is owed."""
    with planned() as plan:
        plan.upsert(every(10, overlap="allow", missed="all", pause_after_failures=2))
        for second in (11, 21):
            plan.until(second)
            plan.finish(outcome=Outcome.DEAD)
        plan.until(45)
        resumed(plan)
        plan.until(51)
        assert plan.fired() == [10, 20, 50]
        assert (plan.state().counters.failed, plan.state().counters.missed) == (0, 0)


@pytest.mark.parametrize("calls", range(10))
@pytest.mark.parametrize(
    ("fields", "fired", "missed"),
    [({"max_catchup": 2}, [10, 30, 40, 70], 1), ({"max_runs": 3}, [10, 20, 30], 0)],
)
def test_a_leader_that_dies_while_it_decides_what_is_owed_is_followed_without_a_trace(
    calls: int, fields: dict[str, object], fired: list[float], missed: int
) -> None:
    """Also by the last run that the schedule may have: no pause is left."""
    with planned() as plan:
        behind(plan, missed="all", **fields)
        plan.leader.start_scheduler()
        plan.until(62)
        resumed(plan)
        plan.replace_scheduler_after(calls)
        plan.until(75)
        assert plan.fired() == fired
        assert plan.state().counters.missed == missed
        assert not plan.server.store.fields(plan.keys.schedule_paused)


def test_what_was_due_while_it_was_completed_is_not_made_up_for() -> None:
    """It may have more runs again, and was paused before the leader had looked."""
    with planned() as plan:
        plan.upsert(every(10, overlap="allow", missed="all", max_runs=1))
        plan.until(45)
        plan.leader.kill_scheduler()
        plan.upsert(every(10, overlap="allow", missed="all", max_runs=9))
        paused_until(plan, 10_000)
        plan.leader.start_scheduler()
        plan.until(62)
        resumed(plan)
        plan.until(71)
        assert plan.fired() == [10, 70]


def test_what_is_owed_may_be_more_than_one_batch() -> None:
    """Each is decided once, and nothing that was due in the pause."""
    with planned() as plan:
        plan.upsert(every(0.1, overlap="allow", missed="all", max_catchup=1000))
        plan.until(15.05)
        plan.leader.kill_scheduler()
        plan.until(75.05)
        paused_until(plan, 10_000)
        plan.leader.start_scheduler()
        plan.until(85.05)
        resumed(plan)
        plan.until(90.05)
        due = [tenths / 10 for tenths in range(1, 901) if not 750 < tenths <= 850]
        assert plan.fired() == due[-len(plan.fired()) :]
        assert len(plan.fired()) > 780


@pytest.mark.parametrize("is_at_most_once", [False, True])
def test_what_redis_lost_before_a_pause_is_doubtful_after_it(*, is_at_most_once: bool) -> None:
    """A fail-over that lost no renewal: the leader knows that it fired, and Redis does not."""
    template = msgspec.structs.replace(TEMPLATE, at_most_once=is_at_most_once)
    with planned(every(20, overlap="allow", template=template), **FOR_HOURS) as plan:
        plan.until(19)
        copy = plan.server.snapshot()
        plan.until(21)
        (run_id,) = plan.fetch()
        plan.server.restore(copy)
        paused_until(plan, 10_000)
        plan.advance(2)
        resumed(plan)
        plan.advance(3)
        assert plan.fired() == ([20] if is_at_most_once else [20, 20])
        stored = plan.server.store.raw.hget(plan.keys.queue("default").data, run_id)
        assert is_at_most_once if stored is None else unpack(stored).maybe_duplicate
        assert len(plan.server.granted) == 1


class _SlowCatchUp(Scheduler):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"catchup_rate": 20})


def test_a_backfill_of_a_pause_waits_until_what_was_due_before_it_is_decided() -> None:
    """The catch-up of an outage has its pace, and until then the watermark lies before the pause."""
    with planned(scheduler_class=_SlowCatchUp) as plan:
        behind(plan, missed="all")
        plan.upsert(*(every(10, f"other{n}", overlap="allow", missed="all") for n in range(50)))
        plan.until(102)
        plan.leader.start_scheduler()
        plan.advance(1)
        resumed(plan)
        request = Request(from_ms=EPOCH_MS + 50_000, until_ms=EPOCH_MS + 100_000)
        plan.run(BackfillCalls(plan.keys).add("b", "s", request, limit=1000, is_forced=False))
        plan.world.executed()
        plan.until(150)
        assert [(each.state, each.enqueued) for each in plan.run(BackfillCalls(plan.keys).all())] == [("done", 6)]
