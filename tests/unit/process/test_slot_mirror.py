"""What the board shows of a slot, for those who decide by it."""

from __future__ import annotations

from dataclasses import replace

from supervisor.core.supervision.scoreboard import Board, SlotState, board_words
from supervisor.core.supervision.slot import Group, Slot, SlotPolicy
from supervisor.core.units import SECOND_NS
from supervisor.process.slots import LiveSlot, SlotSpec

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
