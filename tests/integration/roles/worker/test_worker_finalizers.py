"""Signals that arrive while Python ends an object: what is raised there reaches nobody."""

from __future__ import annotations

import gc
import signal
import sys
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial

import pytest

from supervisor.roles.worker.attempt.context import Interrupted, SoftTimeout
from supervisor.roles.worker.pools import signals
from supervisor.roles.worker.pools.signals import Demand, Interrupts
from tests.integration.roles.worker.signalled import Subject, in_s, own_handlers
from tests.kit.waiting import wait_until


@pytest.fixture
def subject() -> Iterator[Interrupts]:
    """Handlers of its own for the test."""
    with own_handlers() as interrupts:
        yield interrupts


class Finalized:
    """An object whose end calls something."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self.itself = self

    def __del__(self) -> None:
        self._call()
        sum(range(300))


def in_a_cycle(call: Callable[[], None]) -> None:
    """Leave it to the garbage collector."""
    Finalized(call)
    gc.collect()


def in_a_generator(call: Callable[[], None]) -> None:
    """Drop a generator within its block."""

    def block() -> Generator[None, None, None]:
        try:
            yield
        finally:
            call()
            sum(range(300))

    next(block())


def in_a_weak_reference(call: Callable[[], None]) -> None:
    """Drop the object that a weak reference watches."""

    def ended(_: object) -> None:
        call()
        sum(range(300))

    watched = Subject()
    reference = weakref.ref(watched, ended)
    del watched
    assert reference() is None


FINALIZERS = [in_a_cycle, in_a_generator, in_a_weak_reference]
DROPPED = [(signal.SIGUSR2, SoftTimeout), (signal.SIGQUIT, Interrupted)]


@pytest.mark.parametrize("end", FINALIZERS)
@pytest.mark.parametrize(("number", "raised"), DROPPED)
def test_a_demand_whose_exception_python_drops_is_delivered_once_more(
    subject: Interrupts, number: int, raised: type[BaseException], end: Callable[[Callable[[], None]], None]
) -> None:
    """Nobody can catch what is raised in a finalizer: the job would go on until its hard timeout."""
    ended: list[str] = []

    def work() -> None:
        try:
            end(partial(signal.raise_signal, number))
            wait_until(lambda: False, bound_s=20, what="the exception")
        except raised:
            for _ in range(3):  # the timer would bring it again
                signal.raise_signal(signal.SIGALRM)
                sum(range(300))
            ended.append("cleaned up")
            raise

    with subject.kept_in_finalizers(), pytest.raises(raised):
        subject.job(work, {}, run=Subject(), soft_ns=in_s(600))
    assert ended == ["cleaned up"]


@pytest.mark.parametrize("end", FINALIZERS)
def test_a_stop_whose_exception_python_drops_ends_a_wait(
    subject: Interrupts, end: Callable[[Callable[[], None]], None]
) -> None:
    """What a job left to the collector may end within a question of the worker."""

    def ask() -> None:
        end(partial(signal.raise_signal, signal.SIGTERM))
        wait_until(lambda: False, bound_s=20, what="the exception")

    with subject.kept_in_finalizers(), pytest.raises(Interrupted):
        subject.wait(ask, on=frozenset({Demand.STOP}))


def test_a_drain_does_not_interrupt_the_job_whose_finalizer_it_comes_in(subject: Interrupts) -> None:
    """The job ends as it would have; the worker learns of the stop after it."""
    with subject.kept_in_finalizers():
        subject.job(
            in_a_cycle, {"call": partial(signal.raise_signal, signal.SIGTERM)}, run=Subject(), soft_ns=in_s(600)
        )
    assert subject.must_stop


def test_a_quit_is_delivered_again_although_a_finalizer_within_its_own_lost_a_soft_timeout(subject: Interrupts) -> None:
    """Each exception that is dropped arms what it was raised for."""

    def soft() -> None:
        signal.raise_signal(signal.SIGUSR2)
        sum(range(300))

    def quit_first() -> None:
        try:
            signal.raise_signal(signal.SIGQUIT)
            sum(range(300))
        finally:
            in_a_generator(soft)

    def work() -> None:
        in_a_cycle(quit_first)
        wait_until(lambda: False, bound_s=20, what="the exception")

    with subject.kept_in_finalizers(), pytest.raises(Interrupted):
        subject.job(work, {}, run=Subject(), soft_ns=in_s(600))


def test_a_signal_within_the_delivery_of_a_quit_does_not_take_its_place(
    subject: Interrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call that the handler makes lets the next signal in."""
    made: list[object] = []

    class Quit(Interrupted):
        def __init__(self, _why: str) -> None:
            made.append(self)
            if len(made) == 1:
                signal.raise_signal(signal.SIGUSR2)
                sum(range(300))

    def work() -> None:
        signal.raise_signal(signal.SIGQUIT)
        sum(range(300))

    monkeypatch.setattr(signals, "Interrupted", Quit)
    with pytest.raises(Quit):
        subject.job(work, {}, run=Subject(), soft_ns=in_s(600))


def test_errors_of_finalizers_go_to_the_hook_of_others(subject: Interrupts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a demand is under way or not; an exception of ours that nobody demanded is theirs too."""
    seen: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: seen.append(dropped.exc_type))
    hook = sys.unraisablehook

    def fail(error: BaseException) -> None:
        raise error

    def work() -> None:
        in_a_cycle(partial(fail, KeyError()))
        in_a_cycle(partial(fail, SoftTimeout()))
        with suppress(SoftTimeout):
            signal.raise_signal(signal.SIGUSR2)
            sum(range(300))
        in_a_cycle(partial(fail, SoftTimeout()))  # as ``raise_if_cancelled`` does
        signal.raise_signal(signal.SIGALRM)
        sum(range(300))
        in_a_cycle(partial(fail, ValueError()))

    with subject.kept_in_finalizers():
        subject.job(work, {}, run=Subject(), soft_ns=in_s(600))
    assert seen == [KeyError, SoftTimeout, SoftTimeout, ValueError]
    assert sys.unraisablehook is hook


def test_a_job_that_takes_the_hook_does_so_for_itself_alone(
    subject: Interrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a signal whose handler it took. What the one before it is asked to hand on comes to it once."""
    seen: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: seen.append(dropped.exc_type))

    def take() -> None:
        before = sys.unraisablehook

        def hook(dropped: sys.UnraisableHookArgs) -> None:
            seen.append("taken")
            before(dropped)

        sys.unraisablehook = hook

    def fail() -> None:
        raise KeyError

    def work() -> None:
        in_a_cycle(fail)
        in_a_cycle(partial(signal.raise_signal, signal.SIGUSR2))
        wait_until(lambda: False, bound_s=20, what="the exception")

    with subject.kept_in_finalizers():
        subject.job(take, {}, run=Subject(), soft_ns=in_s(600))
        with pytest.raises(SoftTimeout):
            subject.job(work, {}, run=Subject(), soft_ns=in_s(600))
    assert seen == ["taken", KeyError]


def test_jobs_that_put_the_hook_back_later_leave_no_chain_of_hooks(subject: Interrupts) -> None:
    """One takes it, and a later one puts back what the first found."""
    found: list[Callable[[sys.UnraisableHookArgs], object]] = []

    def take() -> None:
        found.append(sys.unraisablehook)
        sys.unraisablehook = sys.__unraisablehook__

    def put_back() -> None:
        sys.unraisablehook = found[-1]

    with subject.kept_in_finalizers():
        for _ in range(3):
            subject.job(take, {}, run=Subject(), soft_ns=in_s(600))
            subject.job(put_back, {}, run=Subject(), soft_ns=in_s(600))
    assert len(set(map(id, found))) == 1
