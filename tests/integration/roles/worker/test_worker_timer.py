"""The timer of a plain worker is the kernel's, and others in the process use it too."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from supervisor.roles.worker.attempt.context import SoftTimeout
from supervisor.roles.worker.pools.signals import Interrupts, Relief
from tests.integration.roles.worker.signalled import Subject, in_s, own_handlers
from tests.kit.waiting import linger, wait_until


@pytest.fixture
def subject() -> Iterator[Interrupts]:
    """Handlers of its own for the test."""
    with own_handlers() as interrupts:
        yield interrupts


@pytest.mark.parametrize("left_s", [0, 60], ids=["ended", "late"])
def test_a_job_that_uses_the_timer_takes_no_soft_timeout_from_those_behind_it(
    subject: Interrupts, left_s: float
) -> None:
    """A fast one leaves the timer running for the next job; `signal.alarm(0)` at its end stops it."""

    def use() -> None:
        before = signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, left_s)
        signal.signal(signal.SIGALRM, before)

    def wait() -> None:
        wait_until(lambda: False, bound_s=20)

    relieved: list[int] = []
    subject.job(use, {}, run=Subject(), soft_ns=in_s(60), relief=Relief(in_s(0.01), lambda: None))
    relief = Relief(in_s(0.02), lambda: relieved.append(1))
    with pytest.raises(SoftTimeout):
        subject.job(wait, {}, run=Subject(), soft_ns=in_s(0.1), relief=relief)

    assert relieved == [1]


@pytest.mark.parametrize("relief", [None, Relief(in_s(600), lambda: None)], ids=["slow", "fast"])
def test_an_alarm_that_a_job_leaves_behind_ends_with_it(subject: Interrupts, relief: Relief | None) -> None:
    """It failed before it could take it back; its handler would raise in the worker, which had no run any more."""

    def expire(_number: int, _frame: object) -> None:
        raise TimeoutError("of a job that has ended")

    def use() -> None:
        signal.signal(signal.SIGALRM, expire)
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        subject.job(use, {}, run=Subject(), soft_ns=in_s(600), relief=relief)

    def is_ended() -> bool:
        """An alarm that finds a fast job about to end sets the timer anew for the next, as it is without an alarm."""
        left_s = signal.getitimer(signal.ITIMER_REAL)[0]
        return left_s == 0 or (relief is not None and left_s > 60)

    wait_until(is_ended, what="the job's timer to be stopped")


def test_a_timer_of_another_clock_that_fires_early_is_set_again(subject: Interrupts) -> None:
    """The deadline counts, not the timer: it may have been another library's."""

    def work() -> None:
        os.kill(os.getpid(), signal.SIGALRM)
        linger()

    began_ns = in_s(0)
    with pytest.raises(SoftTimeout):
        subject.job(work, {}, run=Subject(), soft_ns=in_s(0.1))

    assert in_s(0) - began_ns >= 100_000_000
