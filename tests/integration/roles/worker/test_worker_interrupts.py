"""Signals reach the job, and never the worker: hammered, because the window is one instruction wide."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import pytest

from supervisor.roles.worker.attempt.calls import Calls, drive
from supervisor.roles.worker.attempt.context import Context, Interrupted, SoftTimeout
from supervisor.roles.worker.attempt.invocation import spawn_all
from supervisor.roles.worker.pools import signals
from supervisor.roles.worker.pools.signals import Demand, Interrupts, Relief
from tests.integration.roles.worker.signalled import SIGNALS, Subject, in_s, own_handlers
from tests.kit.waiting import linger, wait_until

ROUNDS = 1500


def inside(work: Any, arguments: dict[str, Any]) -> Calls:
    """One call inside of steps that take time of their own, and note how it ended."""
    sum(range(300))
    value, error = yield partial(work, **arguments)
    sum(range(300))
    return (value, error) if error is None else (None, SoftTimeout("of the job"))


def planned(work: Any, arguments: dict[str, Any]) -> Calls:
    """A planner that yields nothing and returns what the work does."""

    def plan() -> Generator[Any, None, Any]:
        return work(**arguments)
        yield

    return (yield from spawn_all(plan(), Context(run_id="r", job="j")))


SURROUNDED = {"attempt": inside, "planner": planned}


@pytest.fixture
def subject() -> Iterator[Interrupts]:
    """Handlers of its own for the test."""
    with own_handlers() as interrupts:
        yield interrupts


def test_a_job_cannot_block_the_signals_of_those_behind_it(subject: Interrupts) -> None:
    """Its own soft timeout is lost with them; the next run has one again."""

    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def wait() -> None:
        wait_until(lambda: False, bound_s=20)

    subject.job(block, {}, run=Subject(), soft_ns=in_s(60))
    with pytest.raises(SoftTimeout):
        subject.job(wait, {}, run=Subject(), soft_ns=in_s(0.01))


@pytest.mark.share(3)
@pytest.mark.parametrize("kind", ["plain", "planner", "attempt"])
def test_a_soft_timeout_at_the_very_end_of_a_job_harms_nobody(subject: Interrupts, kind: str) -> None:
    """Either the job is interrupted, or its result stands; never is the worker hit, or a result lost."""
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    finished = timed_out = 0
    reasons = set()
    for _ in range(ROUNDS):
        ended: list[int] = []

        def work(rounds: int, ended: list[int]) -> int:
            total = 0
            for number in range(rounds):
                total += number
            ended.append(total)
            return total

        try:
            value = subject.job(
                work if kind == "plain" else partial(drive, SURROUNDED[kind], work),
                {"rounds": draw.randrange(200, 4000), "ended": ended},
                run=Subject(),
                soft_ns=in_s(draw.uniform(0, 0.0003)),
            )
        except SoftTimeout as timeout:
            timed_out += 1
            reasons.add(str(timeout))
        else:
            assert ended == [value], seed
            finished += 1

    assert finished, seed
    assert timed_out, seed
    assert kind != "attempt" or reasons == {"of the job"}, "interrupted outside of its job"


@contextmanager
def storm() -> Iterator[None]:
    """Send the worker signals all the time."""
    stop = threading.Event()
    draw = random.Random(7)

    def send() -> None:
        while not stop.is_set():
            os.kill(os.getpid(), draw.choice((signal.SIGUSR2, signal.SIGALRM)))
            stop.wait(draw.uniform(0, 0.0004))

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_storm_of_signals_leaves_the_worker_in_order(subject: Interrupts) -> None:
    """Handlers interrupt handlers; still only the job's frames are hit."""

    def work() -> int:
        return sum(range(2000))

    outcomes = set()
    with storm():
        for _ in range(ROUNDS):
            try:
                outcomes.add(subject.job(work, {}, run=Subject(), soft_ns=in_s(60)))
            except SoftTimeout:
                outcomes.add("soft")

    assert outcomes <= {sum(range(2000)), "soft"}


def test_an_alarm_within_the_decision_about_a_relief_does_not_call_it_twice(
    subject: Interrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers run between two steps of Python: also while one of them looks whom it interrupted."""
    reliefs: list[None] = []
    is_ours = signals._is_ours

    def interrupted(frame: FrameType | None) -> bool:
        monkeypatch.setattr(signals, "_is_ours", is_ours)
        signal.raise_signal(signal.SIGALRM)
        return is_ours(frame)

    def work() -> None:
        monkeypatch.setattr(signals, "_is_ours", interrupted)
        subject._relief = Relief(in_s(0), lambda: reliefs.append(None))  # due now: the timer is a minute away
        signal.raise_signal(signal.SIGALRM)

    subject.job(work, {}, run=Subject(), soft_ns=in_s(60), relief=Relief(in_s(60), lambda: None))
    assert len(reliefs) == 1


def test_a_relief_in_a_storm_of_signals_is_called_once_for_each_job_and_is_never_interrupted(
    subject: Interrupts,
) -> None:
    """It talks to Redis in the middle of a handler: an exception in there would leave that half done."""
    reliefs = [0, 0]

    def relieve() -> None:
        reliefs[0] += 1
        sum(range(3000))
        reliefs[1] += 1

    def work() -> int:
        return sum(range(20_000))

    with storm():
        for number in range(ROUNDS // 3):
            before = reliefs[0]
            with suppress(SoftTimeout):
                subject.job(work, {}, run=Subject(), soft_ns=in_s(60), relief=Relief(in_s(0.0001), relieve))
            assert reliefs[0] - before <= 1, number

    assert reliefs[0] == reliefs[1] > 0


def test_a_job_that_is_over_in_time_is_never_relieved(subject: Interrupts) -> None:
    """And the timer that was left running says nothing to the next job but its own time."""
    called: list[int] = []
    for _ in range(200):
        due_ns = in_s(0.05)
        subject.job(lambda: None, {}, run=Subject(), soft_ns=in_s(60), relief=Relief(due_ns, lambda: called.append(1)))
        assert not called or in_s(0) >= due_ns, "it was over in time"
        called.clear()

    def long() -> None:
        wait_until(lambda: called, what="the relief")

    subject.job(long, {}, run=Subject(), soft_ns=in_s(60), relief=Relief(in_s(0.05), lambda: called.append(2)))
    assert called == [2]
    with pytest.raises(SoftTimeout):
        subject.job(linger, {}, run=Subject(), soft_ns=in_s(0.05), relief=Relief(in_s(60), long))


@pytest.mark.parametrize("is_relieved", [True, False])
def test_a_timer_that_fires_before_its_job_is_called_comes_again(
    subject: Interrupts, monkeypatch: pytest.MonkeyPatch, *, is_relieved: bool
) -> None:
    """On a busy machine its time may be over by then: without it the job had neither relief nor soft timeout."""
    called: list[int] = []
    arm, alarms = subject._arm, [signal.SIGALRM]

    def arm_late() -> None:
        arm()
        if alarms:
            os.kill(os.getpid(), alarms.pop())

    monkeypatch.setattr(subject, "_arm", arm_late)

    def work() -> None:
        wait_until(lambda: called, what="the relief or the soft timeout")

    if is_relieved:
        subject.job(work, {}, run=Subject(), soft_ns=in_s(60), relief=Relief(in_s(0.001), lambda: called.append(1)))
        assert called == [1]
    else:
        with pytest.raises(SoftTimeout):
            subject.job(work, {}, run=Subject(), soft_ns=in_s(0.001))


def test_a_relief_that_failed_is_tried_again_while_the_job_runs(subject: Interrupts) -> None:
    """As often as it asks for it, and not once the job is over."""
    tries: list[int] = []

    def relieve() -> float | None:
        tries.append(1)
        return 0.01 if len(tries) < 3 else None

    def work() -> None:
        wait_until(lambda: len(tries) == 3, what="the third try")

    subject.job(work, {}, run=Subject(), soft_ns=in_s(60), relief=Relief(in_s(0.001), relieve))
    assert len(tries) == 3


def test_what_is_demanded_during_a_relief_is_delivered_after_it(subject: Interrupts) -> None:
    """Nothing is lost, whoever is being served."""

    def relieve() -> None:
        os.kill(os.getpid(), signal.SIGUSR2)
        sum(range(100))

    with pytest.raises(SoftTimeout):
        subject.job(linger, {}, run=Subject(), soft_ns=in_s(600), relief=Relief(in_s(0.001), relieve))


def test_a_signal_between_jobs_does_nothing_to_the_next(subject: Interrupts) -> None:
    """A soft interrupt was meant for a job that is over."""
    os.kill(os.getpid(), signal.SIGUSR2)

    assert subject.job(lambda: 1, {}, run=Subject(), soft_ns=in_s(60)) == 1


def test_a_job_is_interrupted_once_for_each_demand(subject: Interrupts) -> None:
    """What it does to clean up after a soft timeout is left alone, but for a quit."""
    seen = []

    def work() -> None:
        try:
            subject._soft_ns = in_s(0)  # due now: the timer, which is a minute away, may come before this block
            signal.raise_signal(signal.SIGALRM)
            linger()
        except SoftTimeout:
            seen.append("soft")
            os.kill(os.getpid(), signal.SIGUSR2)
            sum(range(100))
            try:
                os.kill(os.getpid(), signal.SIGQUIT)
                linger()
            except Interrupted:
                seen.append("quit")
                os.kill(os.getpid(), signal.SIGQUIT)
                sum(range(100))
                seen.append("cleaned")

    run = Subject()
    subject.job(work, {}, run=run, soft_ns=in_s(60))

    assert seen == ["soft", "quit", "cleaned"]
    assert run.is_cancelled
    assert subject.must_quit


def test_a_term_does_not_interrupt_a_job(subject: Interrupts) -> None:
    """It may finish; only afterwards nothing more is fetched."""

    def work() -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return "done"

    assert subject.job(work, {}, run=Subject(), soft_ns=in_s(60)) == "done"
    assert subject.must_stop
    assert not subject.must_quit


def test_a_wait_ends_by_the_demands_it_names_and_by_no_others(subject: Interrupts) -> None:
    """A turn goes on through a TERM; listening does not."""

    def wait(number: int) -> str:
        os.kill(os.getpid(), number)
        sum(range(100))
        return "answered"

    assert subject.wait(lambda: wait(signal.SIGTERM), on=frozenset({Demand.QUIT})) == "answered"
    with pytest.raises(Interrupted):
        subject.wait(lambda: wait(0), on=frozenset({Demand.QUIT, Demand.STOP}))
    with pytest.raises(Interrupted):
        subject.wait(lambda: wait(signal.SIGQUIT), on=frozenset({Demand.QUIT}))


def test_after_a_quit_no_job_is_begun(subject: Interrupts) -> None:
    """The signal came between the fetch and the call."""
    os.kill(os.getpid(), signal.SIGQUIT)
    called = []

    with pytest.raises(Interrupted):
        subject.job(lambda: called.append(1), {}, run=Subject(), soft_ns=in_s(60))

    assert called == []
