"""Requests that a run must end: they reach the run that they are for, whenever their signal comes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from supervisor.core.supervision.inflight import execution_hash
from supervisor.core.supervision.scoreboard import UnwantedReason
from supervisor.roles.worker.attempt.context import SoftTimeout
from supervisor.roles.worker.pools.signals import Demand, Interrupts
from tests.integration.roles.worker.signalled import Subject, in_s, own_handlers
from tests.kit.waiting import wait_until


@pytest.fixture
def subject() -> Iterator[Interrupts]:
    """Handlers of its own for the test."""
    with own_handlers() as interrupts:
        yield interrupts


def test_a_second_signal_while_the_first_is_asked_about_is_no_request_of_its_own(subject: Interrupts) -> None:
    """Taken for a soft timeout it would have the run tried again that somebody wanted to end."""
    requests = [(execution_hash(("q", "r"), 5), UnwantedReason.CANCELLED)]

    def unwanted() -> tuple[int, UnwantedReason] | None:
        found = requests.pop() if requests else None
        os.kill(os.getpid(), signal.SIGUSR2)
        sum(range(100))
        return found

    subject._unwanted = unwanted
    run = Subject()

    def work() -> None:
        os.kill(os.getpid(), signal.SIGUSR2)
        threading.Event().wait(600)

    with pytest.raises(SoftTimeout, match="a person asked"):
        subject.job(work, {}, run=run, soft_ns=in_s(60))
    assert run.unwanted is UnwantedReason.CANCELLED


def asked_once(subject: Interrupts, run_id: str) -> None:
    """Let the next question be answered by a request for ``run_id``, and send the signal that brings it."""
    requests = [(execution_hash(("q", run_id), 5), UnwantedReason.REPLACED)]
    subject._unwanted = lambda: requests.pop() if requests else None
    signal.raise_signal(signal.SIGUSR2)


@pytest.mark.parametrize("again", [False, True])
def test_a_request_that_comes_just_before_its_job_is_called_ends_it(subject: Interrupts, *, again: bool) -> None:
    """The agent sees the run as begun a moment before the job is called; a second signal has nothing new to say."""

    def long() -> None:
        if again:
            signal.raise_signal(signal.SIGUSR2)
        wait_until(lambda: False, bound_s=30)

    run = Subject()
    asked_once(subject, "r")

    with pytest.raises(SoftTimeout, match="newer run"):
        subject.job(long, {}, run=run, soft_ns=in_s(60))

    assert run.unwanted is UnwantedReason.REPLACED


@pytest.mark.parametrize(("asked", "has_waited"), [("r", True), ("another", False)])
def test_a_request_that_came_too_late_for_its_run_ends_no_other(
    subject: Interrupts, *, asked: str, has_waited: bool
) -> None:
    """Neither the next run, nor a later attempt of the same."""
    asked_once(subject, asked)
    if has_waited:
        subject.wait(lambda: None, on=frozenset({Demand.QUIT}))

    assert subject.job(lambda: "done", {}, run=Subject(), soft_ns=in_s(60)) == "done"
    assert subject.job(lambda: "done", {}, run=Subject(), soft_ns=in_s(60)) == "done"
