"""What the board shows of a slot, for those who decide by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from supervisor.core.supervision.scoreboard import Board, Row, board_words
from supervisor.core.supervision.slot import Group, Slot, SlotPolicy
from supervisor.core.supervision.states import SlotState
from supervisor.core.units import SECOND_NS
from supervisor.process.slots import LiveSlot, SlotSpec
from supervisor.roles.agent.sessions.local_workers import LocalWorkers

POLICY = SlotPolicy(boot_timeout_ns=SECOND_NS, grace_ns=SECOND_NS, backoff_max_ns=SECOND_NS)


def test_the_deaths_of_the_last_minute_are_on_the_board_and_outlive_a_start() -> None:
    """The agent decides by them at the third, and an agent that was replaced meanwhile knows them too."""
    board = Board(memoryview(bytearray(8 * board_words(slots=1, inflight=1))).cast("Q"), slots=1, inflight=1)
    spec = SlotSpec(name="scheduler", run=lambda _: 0, group=Group.SCHEDULER)
    live = LiveSlot(index=0, spec=spec, row=board.rows[0], inflight=board.inflight[0], policy=POLICY)
    live.mirror(is_wanted=True)
    assert board.rows[0].crashes == 0
    live.slot = Slot(
        state=SlotState.BACKOFF,
        generation=3,
        failures=(1 * SECOND_NS, 100 * SECOND_NS, 130 * SECOND_NS, 159 * SECOND_NS),
    )
    live.mirror(is_wanted=True)
    live.forget_child()
    live.slot = replace(live.slot, state=SlotState.STARTING, generation=4)
    live.mirror(is_wanted=True)

    assert board.rows[0].crashes == 3


class _WatchedRow(Row):
    """A row that calls ``after`` behind each write of one word."""

    after: Callable[[], None] = staticmethod(lambda: None)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.after()


def test_no_process_looks_dead_before_it_has_lived_between_any_two_writes() -> None:
    """The agent reads while the parent writes; a session that it judged so was condemned, and its next death unpaid."""
    board = Board(memoryview(bytearray(8 * board_words(slots=1, inflight=1))).cast("Q"), slots=1, inflight=1)
    row = board.rows[0] = _WatchedRow(board.rows[0].words)
    workers = LocalWorkers(board, ["worker-io-0"], "r1")
    live = LiveSlot(
        index=0,
        spec=SlotSpec(name="worker-io-0", run=lambda _: 0, group=Group.WORKER),
        row=row,
        inflight=board.inflight[0],
        policy=POLICY,
    )
    seen: list[tuple[set[str], set[str]]] = []
    row.after = lambda: seen.append(({each.session for each in workers.dead()}, set(workers.live())))
    was_alive: set[str] = set()
    for generation in (1, 2, 3):
        for state in (SlotState.STARTING, SlotState.RUNNING, SlotState.STOPPING, SlotState.BACKOFF):
            seen.clear()
            live.slot = replace(live.slot, state=state, generation=generation)
            live.mirror(is_wanted=True)
            for dead, alive in seen:
                assert dead <= was_alive
                assert not dead & alive
            was_alive.add(f"r1/worker-io-0/{generation}")
        assert workers.live() == []
        assert [each.generation for each in workers.dead()] == list(range(1, generation + 1))
