"""Requests that a run must end: they reach the run that they are for, whenever their signal comes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from supervisor.core.supervision.scoreboard import execution_hash
from supervisor.core.supervision.states import UnwantedReason
from supervisor.roles.worker.attempt.context import SoftTimeout
from supervisor.roles.worker.pools.signals import Demand, EndRequest, Interrupts, Relief
from tests.integration.roles.worker.signalled import Subject, in_s, own_handlers
from tests.kit.waiting import wait_until

OURS = execution_hash(("q", "r"), 5)


@pytest.fixture
def subject() -> Iterator[Interrupts]:
    """Handlers of its own for the test."""
    with own_handlers() as interrupts:
        yield interrupts


def long() -> None:
    """Wait as a job does."""
    wait_until(lambda: False, bound_s=30)


@pytest.mark.parametrize("place", ["reading", "noting"])
def test_a_signal_within_the_handler_of_another_is_no_request_of_its_own(subject: Interrupts, place: str) -> None:
    """Taken for a soft timeout it would have the run tried again that somebody wanted to end."""
    places = [place]

    def signal_at(here: str) -> None:
        if here in places:
            places.clear()
            signal.raise_signal(signal.SIGUSR2)

    class Signalled(Subject):
        def cancel(self, unwanted: UnwantedReason | None = None) -> None:
            signal_at("noting")
            super().cancel(unwanted)

    def end_request() -> EndRequest:
        signal_at("reading")
        return 1, OURS, UnwantedReason.CANCELLED

    subject._end_request = end_request
    run = Signalled()

    def work() -> None:
        signal.raise_signal(signal.SIGUSR2)
        long()

    with pytest.raises(SoftTimeout, match="a person asked"):
        subject.job(work, {}, run=run, soft_ns=in_s(60))
    assert (run.unwanted, places) == (UnwantedReason.CANCELLED, [])


def test_the_signal_of_a_request_that_is_known_ends_nothing_more(subject: Interrupts) -> None:
    """One signal found two requests; that of the second comes when the next run has begun. One more is a person's."""
    asked(subject, 1, execution_hash(("q", "another"), 5), is_signalled=False)

    def work() -> None:
        asked(subject, 2, OURS)
        long()

    with pytest.raises(SoftTimeout, match="newer run"):
        subject.job(work, {}, run=Subject(), soft_ns=in_s(60))

    def innocent() -> str:
        signal.raise_signal(signal.SIGUSR2)
        return "done"

    assert subject.job(innocent, {}, run=Subject(hash=7), soft_ns=in_s(60)) == "done"
    with pytest.raises(SoftTimeout, match="soft timeout"):
        subject.job(lambda: (signal.raise_signal(signal.SIGUSR2), long()), {}, run=Subject(hash=8), soft_ns=in_s(60))


def asked(subject: Interrupts, number: int, execution: int, *, is_signalled: bool = True) -> None:
    """Let the agent's last request be this one, and send the signal that brings it."""
    subject._end_request = lambda: (number, execution, UnwantedReason.REPLACED)
    if is_signalled:
        signal.raise_signal(signal.SIGUSR2)


@pytest.mark.parametrize("again", [False, True])
def test_a_request_that_comes_just_before_its_job_is_called_ends_it(subject: Interrupts, *, again: bool) -> None:
    """The agent sees the run as begun a moment before the job is called, and may ask a second time."""

    def work() -> None:
        if again:
            asked(subject, 2, OURS)
        long()

    run = Subject()
    asked(subject, 1, OURS)

    with pytest.raises(SoftTimeout, match="newer run"):
        subject.job(work, {}, run=run, soft_ns=in_s(60))

    assert run.unwanted is UnwantedReason.REPLACED


STEPS = frozenset(each.__code__ for each in (Interrupts.job, Interrupts.install, Interrupts._arm))


class AtStep:
    """Asks for the end of the run before one of the lines that lead to the call of its job."""

    def __init__(self, subject: Interrupts, step: int) -> None:
        self.subject, self.left, self.step = subject, step, step

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        """Count a line."""
        if frame.f_code in STEPS and event == "line" and self.left:
            self.left -= 1
            if not self.left:
                asked(self.subject, self.step, OURS)
        return self.trace

    def work(self) -> bool:
        """Be the job; return whether it was called before that step came."""
        sys.settrace(None)
        if not self.left:
            long()
        return bool(self.left)


@pytest.mark.parametrize("relief", [None, Relief(in_s(60), lambda: None)])
def test_a_request_at_any_step_before_its_job_is_called_ends_it(subject: Interrupts, relief: Relief | None) -> None:
    """On a busy machine the signal comes between any two lines; the timer that brings it again must survive them."""
    tracer = sys.gettrace()
    for step in range(1, 100):
        at, run = AtStep(subject, step), Subject()
        sys.settrace(at.trace)
        try:
            assert subject.job(at.work, {}, run=run, soft_ns=in_s(60), relief=relief)
        except SoftTimeout:
            assert run.unwanted is UnwantedReason.REPLACED
        else:
            break
        finally:
            sys.settrace(tracer)
    assert 10 < step < 99


@pytest.mark.parametrize(("run_id", "has_waited"), [("r", True), ("another", False)])
def test_a_request_that_came_too_late_for_its_run_ends_no_other(
    subject: Interrupts, *, run_id: str, has_waited: bool
) -> None:
    """Neither the next run, nor a later attempt of the same."""
    asked(subject, 1, execution_hash(("q", run_id), 5))
    if has_waited:
        subject.wait(lambda: None, on=frozenset({Demand.QUIT}))

    assert subject.job(lambda: "done", {}, run=Subject(), soft_ns=in_s(60)) == "done"
    assert subject.job(lambda: "done", {}, run=Subject(), soft_ns=in_s(60)) == "done"
