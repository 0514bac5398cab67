"""What the scheduler does while a full batch is in flight, and what becomes of it when that one goes wrong."""

from __future__ import annotations

import pytest

from supervisor.core.effects import RunScript, Sleep
from supervisor.core.election.lease import Term
from supervisor.core.errors import FencedError, StoreUnavailableError
from supervisor.core.model import FIRE_BATCH_MAX, ScheduleDef
from supervisor.store.wire.fire import FireCode
from tests.unit.roles.scheduler.scheduler_stepper import START_MS, TERM, TICK, S, SchedulerStepper

COUNT = 2 * FIRE_BATCH_MAX + 100
DUE_MS = START_MS + 1000


def bursting() -> SchedulerStepper:
    """Return a scheduler whose first of three batches is in flight, and which did what it can meanwhile."""
    many = [
        (ScheduleDef(id=f"s{i:03}", template=TICK.template, every_ms=10_000, phase_ms=1000), DUE_MS - 10_000)
        for i in range(COUNT)
    ]
    bench = SchedulerStepper()
    for start in range(0, COUNT, FIRE_BATCH_MAX):
        page = many[start : start + FIRE_BATCH_MAX]
        bench.found(*page, is_full=start + FIRE_BATCH_MAX < COUNT)
        bench.defined(*page)
    bench.pass_ms(1000)
    meanwhile(bench)
    return bench


def meanwhile(bench: SchedulerStepper) -> None:
    """Do what is to be done while the answer is on its way, as the driver does."""
    assert isinstance(bench.step, RunScript)
    if bench.step.meanwhile is not None:
        bench.step.meanwhile()


def names(bench: SchedulerStepper) -> list[str]:
    return [name for name, _, _ in bench.items()]


def answer(bench: SchedulerStepper, code: FireCode = FireCode.FIRED, mark_ms: int = DUE_MS) -> list[str]:
    """Answer a batch; return its schedules."""
    sent = names(bench)
    bench.fired(*[(code, mark_ms)] * len(sent))
    return sent


def told(bench: SchedulerStepper) -> list[str]:
    """Return the schedules whose decisions were reported, in order."""
    return [decided.item.schedule for event, fields in bench.told if event == "fires" for decided in fields["decided"]]


def test_each_schedule_goes_out_once_and_each_decision_is_told_once() -> None:
    """The next batch is put together while one is in flight, and holds other schedules."""
    bench = bursting()
    sent = answer(bench)
    assert told(bench) == []  # its turn comes while the next one is in flight
    while isinstance(bench.step, RunScript) and bench.script == "fire":
        meanwhile(bench)
        assert told(bench) == sent
        sent += answer(bench)

    assert sent == [f"s{i:03}" for i in range(COUNT)]
    assert told(bench) == sent


def test_a_lost_answer_sends_the_same_batch_again_before_the_one_that_is_ready() -> None:
    """Whether it was accepted is not known; that of the next is not asked before."""
    bench = bursting()
    first = bench.step
    bench.raise_(StoreUnavailableError("away"))
    bench.pass_ms(300)
    assert bench.step == first
    meanwhile(bench)
    sent = answer(bench, FireCode.DUP)
    meanwhile(bench)
    sent += answer(bench)

    assert sent == [f"s{i:03}" for i in range(2 * FIRE_BATCH_MAX)]
    assert told(bench)[:FIRE_BATCH_MAX] == sent[:FIRE_BATCH_MAX]


def test_a_lost_answer_to_the_second_keeps_what_the_first_decided() -> None:
    """The first one's answer is taken in while the second is in flight, whatever becomes of that."""
    bench = bursting()
    first = answer(bench)
    second = bench.step
    bench.raise_(StoreUnavailableError("away"))
    bench.pass_ms(300)

    assert bench.step == second
    meanwhile(bench)
    assert told(bench) == first


def test_another_term_drops_the_batch_that_is_ready() -> None:
    """It was put together from what the old term had read."""
    bench = bursting()
    first = names(bench)
    bench.board.publish_term(Term(9, "b" * 32, 200 * S))
    answer(bench)

    assert told(bench) == first
    bench.found()
    assert not isinstance(bench.step, RunScript)


@pytest.mark.parametrize("batches", [0, 1])
def test_a_refused_term_drops_the_batch_that_is_ready(batches: int) -> None:
    """What was answered under it is still told."""
    bench = bursting()
    answered = [name for _ in range(batches) for name in answer(bench)]
    bench.raise_(FencedError(operation="fire", epoch=8, current_epoch=9))

    assert isinstance(bench.step, Sleep)
    assert told(bench) == answered


def test_a_stop_sends_no_further_batch_and_tells_the_last() -> None:
    """The one in flight is waited for; the one that is ready stays in the plan of Redis."""
    bench = bursting()
    bench.stopping = True
    sent = answer(bench)

    assert bench.is_over
    assert told(bench) == sent


def test_a_batch_that_waited_for_trust_is_put_together_anew() -> None:
    """More may be due by then: the due times in between are one decision, not two."""
    bench = bursting()
    bench.board.publish_term(Term(TERM.epoch, TERM.nonce, bench.clock.now_ns))
    sent = answer(bench)
    assert isinstance(bench.step, Sleep)
    bench.board.publish_term(Term(TERM.epoch, TERM.nonce, 1000 * S))
    bench.pass_ms(10_500)
    while bench.script == "schedule_due":
        bench.found()
    later = bench.items()

    assert later[0] == ("s250", DUE_MS + 10_000, "1p")
    assert not set(sent) & {name for name, _, _ in later}


def test_a_loss_of_data_drops_the_batch_that_is_ready() -> None:
    """What Redis lost may come back as something else, so everything is read again."""
    bench = bursting()
    bench.board.header.doubtful_until_ms = DUE_MS
    sent = answer(bench)

    assert bench.script == "schedule_due"
    assert told(bench) == sent


def test_a_batch_with_a_refusal_is_taken_in_before_the_next_is_sent() -> None:
    """A clock that is ahead is found out at once."""
    bench = bursting()
    size = len(names(bench))
    bench.fired(*[(FireCode.SKEWED, DUE_MS - 10_000)] * size, now_ms=DUE_MS - 2000)

    assert "clock_ahead_of_redis" in bench.events()
