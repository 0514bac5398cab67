"""A loop that does not turn is found, and a machine that slept is not taken for one."""

from __future__ import annotations

from threading import Event
from typing import Any

from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.agent.election.elector_thread import MARGIN_NS, ElectorThread, Watchdog
from supervisor.store.keys import Keys
from tests.kit.waiting import wait_until
from tests.unit.roles.agent.elector_stepper import S, Scripted


class StuckStore:
    """A client that never comes back from a question."""

    def __init__(self) -> None:
        self.asked, self.go_on = Event(), Event()

    def run(self, *_: Any, **__: Any) -> Any:
        self.asked.set()
        assert self.go_on.wait(60)
        raise SystemExit

    def close(self) -> None:
        """Nothing to drop."""


def test_an_elector_that_hangs_in_a_question_is_overdue_on_the_board() -> None:
    """The deadline is written where every step is executed, so no step escapes it."""
    scripted, store = Scripted(), StuckStore()
    header = scripted.board.header
    thread: Any = ElectorThread(scripted.context, store=store, keys=Keys("test"))  # type: ignore[arg-type]
    thread.start()
    assert store.asked.wait(60)
    assert header.elector_due_ns == scripted.clock.now_ns + 750 * MILLISECOND_NS + MARGIN_NS
    watchdog = Watchdog()
    scripted.clock.now_ns = header.elector_due_ns
    looks = []
    for _ in range(8):
        looks.append(watchdog.is_stuck(due_ns=header.elector_due_ns, now_ns=scripted.clock.now_ns))
        scripted.clock.now_ns += S
    store.go_on.set()
    thread.join(60)

    assert looks == [False] * 6 + [True] * 2
    wait_until(lambda: header.elector_due_ns == 0, what="the end of the loop to be on the board")


def test_a_machine_that_slept_is_not_stuck() -> None:
    """Its loop has not had the time to turn: one look proves little."""
    watchdog = Watchdog()
    assert not watchdog.is_stuck(due_ns=10 * S, now_ns=5 * S)
    assert not watchdog.is_stuck(due_ns=10 * S, now_ns=9000 * S)
    assert not watchdog.is_stuck(due_ns=9010 * S, now_ns=9001 * S)


def test_a_loop_that_turns_late_starts_over() -> None:
    """Late twice is not late for twice as long."""
    watchdog = Watchdog()
    for second in range(4):
        assert not watchdog.is_stuck(due_ns=S, now_ns=(10 + second) * S)
    assert not watchdog.is_stuck(due_ns=100 * S, now_ns=14 * S)

    assert not watchdog.is_stuck(due_ns=S, now_ns=15 * S)


def test_a_loop_that_has_not_begun_or_has_ended_is_not_overdue() -> None:
    """There is nothing to turn."""
    watchdog = Watchdog()

    assert not any(watchdog.is_stuck(due_ns=0, now_ns=second * S) for second in range(1, 100))
