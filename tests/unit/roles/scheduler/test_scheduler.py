"""The scheduler, question by question: what it sends, under which term, and what it makes of each answer."""

from __future__ import annotations

import pytest

from supervisor.core.effects import RunScript, Sleep, Watch
from supervisor.core.election.lease import NO_TERM, Term
from supervisor.core.errors import FencedError, StoreUnavailableError
from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.core.units import MILLISECOND_NS
from supervisor.store.schedules.fire import PlanCode
from supervisor.store.wire.definition import pack_definition
from supervisor.store.wire.fire import FireCode
from tests.unit.roles.scheduler.scheduler_stepper import SOON, START_MS, TERM, TICK, S, SchedulerStepper, serving


def test_without_a_trusted_term_nothing_is_sent() -> None:
    """It looks at the board twice a second, and whenever it is woken."""
    bench = SchedulerStepper(TICK, term=NO_TERM)
    for _ in range(3):
        bench.pass_ms(500)
    bench.board.publish_term(TERM)
    bench.answer()

    assert isinstance(bench.step, RunScript)


def test_while_the_term_is_held_nothing_is_sent() -> None:
    """After a loss of data a person may have to say that scheduling goes on."""
    bench = SchedulerStepper(TICK, term=NO_TERM)
    bench.board.header.is_held = 1
    bench.board.publish_term(TERM)
    bench.answer()
    assert isinstance(bench.step, Sleep)
    bench.board.header.is_held = 0
    bench.answer()

    assert isinstance(bench.step, RunScript)


def test_a_replica_without_schedules_declares_nothing() -> None:
    """An empty configuration must not silence the others'."""
    bench = SchedulerStepper()
    bench.found()

    assert isinstance(bench.step, Watch)


def test_what_is_due_is_fired_and_planned_again() -> None:
    """On the grid, by the wall clock, after a sleep that ends in time."""
    bench = serving((SOON, START_MS - 9000))
    while isinstance(bench.step, Watch):
        bench.pass_ms((bench.step.until_ns - bench.clock.now_ns) // MILLISECOND_NS)
    assert bench.items() == [("tick", START_MS + 1000, "0")]
    assert bench.clock.wall_ms() == START_MS + 1000

    assert bench.lines()[0][5] == str(START_MS + 11_000)


def test_an_early_timer_fires_nothing() -> None:
    """Timers may end a little before their time: it compares again after each wake."""
    bench = serving((SOON, START_MS - 9000))
    bench.clock.wall_offset_ms = 999
    bench.answer()
    assert not isinstance(bench.step, RunScript)
    bench.pass_ms(1)

    assert bench.items() == [("tick", START_MS + 1000, "0")]


def test_a_request_to_look_is_answered_by_a_place_in_the_plan() -> None:
    """A changed schedule has the score 0; when it is due is worked out from its watermark."""
    bench = SchedulerStepper()
    bench.found((SOON, START_MS - 9000), score=0)
    bench.defined((SOON, START_MS - 9000))
    assert bench.script == "schedule_plan"
    assert bench.step.call.args[2:9] == ("tick", 1, START_MS - 9000, 0, b"", START_MS + 1000, "")  # type: ignore[union-attr]
    bench.planned(PlanCode.PLANNED)

    assert isinstance(bench.step, Watch)
    planned = [fields for event, fields in bench.told if event == "schedule_planned"]
    assert planned == [{"schedule": "tick", "trigger": "every 10s phase 1s", "next_ms": START_MS + 1000}]


@pytest.mark.parametrize("code", [PlanCode.MOVED, PlanCode.STALE, PlanCode.DUP])
def test_a_plan_that_came_too_late_is_made_again(code: PlanCode) -> None:
    """Somebody changed the schedule between the two questions."""
    bench = SchedulerStepper()
    bench.found((TICK, START_MS - 5000), score=0)
    bench.defined((TICK, START_MS - 5000))
    bench.planned(code)

    assert bench.script == "schedule_due"
    assert bench.step.call.args[-1] == "tick"  # type: ignore[union-attr]  # it is an Ask


def test_news_of_a_change_is_followed_at_once() -> None:
    """The entry in the stream ends the wait."""
    bench = serving()
    assert isinstance(bench.step, Watch)
    bench.answer([("5-0", {"kind": "upsert", "schedule": "tick"})])
    assert bench.script == "schedule_due"
    bench.found()

    assert isinstance(bench.step, Watch)
    assert bench.step.last_id == "5-0"


def test_what_no_news_came_of_is_found_within_seconds() -> None:
    """A message may be lost: requests, late ones and forgotten ones are looked for unasked."""
    bench = serving()
    for _ in range(5):
        assert isinstance(bench.step, Watch)
        bench.pass_ms(1000)

    assert bench.script == "schedule_due"
    after, _, until, limit, asked, late_ms, late = bench.step.call.args[:7]  # type: ignore[union-attr]  # it is an Ask
    assert (after, until, late_ms) == (
        bench.clock.wall_ms() - 10_000,
        bench.clock.wall_ms() - 500,
        bench.clock.wall_ms() - 10_000,
    )
    assert min(int(limit), int(asked), int(late)) > 0


def test_after_a_pause_only_the_latest_due_time_fires() -> None:
    """The others are counted."""
    bench = serving((TICK, START_MS - 100_000))

    assert bench.items() == [("tick", START_MS, "9p")]


def test_an_unanswered_batch_is_sent_again_unchanged() -> None:
    """Time passed and more is due, but the first batch may have been accepted: Redis decides."""
    bench = serving((TICK, START_MS - 10_000))
    sent = bench.step
    bench.raise_(StoreUnavailableError("away"))
    bench.pass_ms(30_000)

    assert bench.step == sent


def test_a_duplicate_takes_the_watermark_of_redis() -> None:
    """Its own lost answer, or another term: either way Redis knows."""
    fast = ScheduleDef(id="fast", template=TICK.template, every_ms=100, overlap="allow")
    bench = serving((fast, START_MS - 100))
    bench.fired((FireCode.DUP, START_MS + 300))
    while isinstance(bench.step, Watch):
        bench.pass_ms(100)

    assert bench.items() == [("fast", START_MS + 400, "0")]


def test_a_changed_definition_is_read_again() -> None:
    """A stale plan fires nothing."""
    bench = serving((TICK, START_MS - 10_000))
    bench.fired((FireCode.STALE, START_MS - 10_000))
    bench.found((TICK, START_MS - 10_000), revision=2)
    bench.defined((TICK, START_MS - 10_000), revision=2)

    assert bench.lines()[0][1] == "2"


def test_a_paused_schedule_leaves_the_window() -> None:
    """Who paused it has planned when it is looked at again."""
    bench = serving((TICK, START_MS - 10_000))
    bench.fired((FireCode.PAUSED, START_MS - 10_000))

    assert isinstance(bench.step, Watch)


def test_a_refused_term_is_not_used_again() -> None:
    """FENCED: it idles until the board has another term."""
    bench = serving((TICK, START_MS - 10_000))
    bench.raise_(FencedError(operation="fire", epoch=8, current_epoch=9))
    assert isinstance(bench.step, Sleep)
    bench.pass_ms(500)
    assert isinstance(bench.step, Sleep)
    bench.board.publish_term(Term(9, "b" * 32, 200 * S))
    bench.answer()

    assert bench.script == "schedule_due"
    assert "fenced" in bench.events()
    assert "term_left" in bench.events()


def test_a_refused_term_that_was_renewed_since_is_served_again() -> None:
    """Redis went back to before the term that it was refused for: nobody else would serve this one, ever."""
    bench = serving((TICK, START_MS - 10_000))
    bench.raise_(FencedError(operation="fire", epoch=8, current_epoch=9))
    bench.board.publish_term(Term(8, "a" * 32, TERM.trusted_until_ns))
    bench.pass_ms(500)
    assert isinstance(bench.step, Sleep)
    bench.board.publish_term(Term(8, "a" * 32, TERM.trusted_until_ns + 1))
    bench.pass_ms(500)
    assert bench.script == "schedule_due"
    bench.found((TICK, START_MS - 10_000))
    bench.defined((TICK, START_MS - 10_000))

    assert isinstance(bench.step, RunScript)
    assert b'"maybe_duplicate":true' in bench.step.call.args[-1], "the forgotten term may have fired it"


def test_a_refusal_makes_it_read_the_term_again_before_it_idles() -> None:
    """The agent may have been given a later epoch just now."""
    bench = serving((TICK, START_MS - 10_000))
    bench.board.publish_term(Term(9, "b" * 32, 200 * S))
    bench.raise_(FencedError(operation="fire", epoch=8, current_epoch=9))

    assert bench.script == "schedule_due"


def test_trust_is_checked_right_before_each_write() -> None:
    """It ended while the last answer was on its way: nothing is sent until it is renewed."""
    bench = serving((TICK, START_MS - 10_000))
    bench.raise_(StoreUnavailableError("away"))
    bench.clock.now_ns = TERM.trusted_until_ns
    bench.answer()
    assert isinstance(bench.step, Sleep)
    bench.board.publish_term(Term(8, "a" * 32, 300 * S))
    bench.answer()

    assert bench.items() == [("tick", START_MS, "0")]


def test_another_term_on_the_board_ends_this_one() -> None:
    """Everything is read anew: another replica may have fired in between."""
    bench = serving((SOON, START_MS - 9000))
    bench.board.publish_term(Term(9, "b" * 32, 200 * S))
    bench.answer()

    assert bench.script == "schedule_due"


def test_a_clock_ahead_of_redis_is_held_back_to_it() -> None:
    """A second ahead: due by this machine, not by Redis. What Redis' time owes fires; the rest waits."""
    bench = serving((TICK, START_MS - 20_000))
    assert bench.items() == [("tick", START_MS, "1p")]
    bench.fired((FireCode.SKEWED, START_MS - 20_000), now_ms=START_MS - 1000)
    assert bench.items() == [("tick", START_MS - 10_000, "0")]
    bench.fired((FireCode.FIRED, START_MS - 10_000), now_ms=START_MS - 1000)
    assert bench.items() == [("tick", START_MS, "0")]
    bench.fired((FireCode.SKEWED, START_MS - 10_000), now_ms=START_MS - 999)

    assert isinstance(bench.step, Watch)
    assert bench.step.until_ns - bench.clock.now_ns == 500 * MILLISECOND_NS
    assert bench.events().count("clock_ahead_of_redis") == 1


def test_a_held_schedule_is_not_lost_when_the_clock_is_set_right() -> None:
    """It waits on the clock that does not jump: held by the wall clock, it would wait for the old time."""
    bench = serving((TICK, START_MS - 10_000))
    bench.clock.wall_offset_ms = 3_600_000
    bench.fired((FireCode.SKEWED, START_MS - 10_000), now_ms=START_MS - 5000)
    while isinstance(bench.step, RunScript):  # the jump left everything late
        bench.found()
    bench.clock.wall_offset_ms = 0
    bench.clock.now_ns += 500 * MILLISECOND_NS
    bench.answer()

    assert bench.items() == [("tick", START_MS, "0")]


def test_a_stop_ends_it_after_the_batch_in_flight() -> None:
    """The answer is taken; no further batch is sent."""
    bench = serving((TICK, START_MS - 10_000))
    bench.stopping = True
    bench.fired((FireCode.FIRED, START_MS))

    assert bench.is_over


@pytest.mark.parametrize(
    "broken",
    [
        ScheduleDef(id="broken", template=TICK.template, every_ms=1000, cron="* * * * *"),
        ScheduleDef(id="broken", template=TICK.template, cron="61 * * * *"),
        ScheduleDef(id="broken", template=Template(job="j", kind=Kind.SYNC, queue="no good"), every_ms=1000),
        ScheduleDef(id="broken", template=Template(job="j", kind=Kind.SYNC, args={"x": "y" * 60_000}), every_ms=1000),
    ],
)
def test_a_definition_that_cannot_be_used_does_not_stop_the_others(broken: ScheduleDef) -> None:
    """A newer version may have stored it; it is reported once, left alone for a minute, and never given up."""
    bench = SchedulerStepper()
    bad = (broken, START_MS - 1000)
    bench.found(bad, (TICK, START_MS - 10_000))
    if broken.template.args:
        assert bench.script == "schedule_read"
        bench.answer([(1, b"{}"), (1, pack_definition(TICK))])
    else:
        bench.defined(bad, (TICK, START_MS - 10_000))
    assert bench.script == "schedule_plan"
    assert bench.step.call.args[7] == START_MS + 60_000  # type: ignore[union-attr]  # it is an Ask
    bench.planned(PlanCode.PLANNED)

    assert bench.items() == [("tick", START_MS, "0")]
    assert [fields["schedule"] for event, fields in bench.told if event == "schedule_invalid"] == ["broken"]


def test_many_due_at_once_go_in_bounded_batches() -> None:
    """Two hundred and fifty to a script, so that Redis is never blocked for long."""
    many = [
        (ScheduleDef(id=f"s{i:03}", template=TICK.template, every_ms=10_000, phase_ms=1000), START_MS - 9000)
        for i in range(600)
    ]
    bench = SchedulerStepper()
    for start in range(0, 600, 250):
        page = many[start : start + 250]
        bench.found(*page, is_full=start < 500)
        bench.defined(*page)
    bench.pass_ms(1000)
    sizes = []
    while isinstance(bench.step, RunScript) and bench.script == "fire":
        sizes.append(len(bench.items()))
        bench.fired(*[(FireCode.FIRED, START_MS + 1000)] * sizes[-1])

    assert sizes == [250, 250, 100]


def test_late_runs_are_paced_and_go_behind_those_on_time() -> None:
    """A thousand a second by default, fifty at a time: what becomes due meanwhile waits for one small batch at most."""
    late = [
        (ScheduleDef(id=f"l{i:03}", template=TICK.template, every_ms=3_600_000, phase_ms=1), START_MS - 3_700_000)
        for i in range(200)
    ]
    bench = serving((TICK, START_MS - 10_000), *late)
    assert bench.items() == [("tick", START_MS, "0")]
    bench.fired((FireCode.FIRED, START_MS))
    sizes = []
    while isinstance(bench.step, RunScript):
        if bench.script == "schedule_due":
            bench.found()
            continue
        sizes.append(len(bench.items()))
        bench.fired(*[(FireCode.FIRED, START_MS - 3_599_999)] * sizes[-1])

    assert sizes == [50, 50, 50]  # a burst of a tenth of a second, and then it waits
    assert isinstance(bench.step, Watch)
    assert bench.step.until_ns - bench.clock.now_ns <= 50 * MILLISECOND_NS
