"""Signals end a wait at once, and say what they want."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from supervisor.clock import SystemClock
from supervisor.roles.child import Wakeup

S = 10**9


@pytest.fixture
def wakeup() -> Iterator[Wakeup]:
    """Installed for one test."""
    made = Wakeup(SystemClock())
    yield made
    made.close()


@pytest.mark.parametrize(
    ("number", "draining", "abandoning"),
    [(signal.SIGURG, False, False), (signal.SIGTERM, True, False), (signal.SIGQUIT, True, True)],
)
def test_a_signal_before_the_wait_is_not_lost(
    wakeup: Wakeup, number: signal.Signals, *, draining: bool, abandoning: bool
) -> None:
    """The race that a flag and a plain wait would lose."""
    os.kill(os.getpid(), number)

    assert wakeup.wait(SystemClock().elapsed_ns() + 60 * S)
    assert (wakeup.is_draining, wakeup.is_abandoning) == (draining, abandoning)


def test_without_a_signal_the_wait_ends_in_time(wakeup: Wakeup) -> None:
    """And says that nothing happened."""
    assert not wakeup.wait(SystemClock().elapsed_ns() + S // 100)


def test_what_was_there_before_comes_back() -> None:
    """A role that ended leaves no handler behind."""
    before = signal.getsignal(signal.SIGTERM)
    Wakeup(SystemClock()).close()

    assert signal.getsignal(signal.SIGTERM) is before
