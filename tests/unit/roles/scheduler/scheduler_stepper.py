"""The scheduler's generator on a fake clock, answered question by question."""

from __future__ import annotations

from random import Random
from typing import Any

from supervisor.core.effects import RunScript, Sleep, Step, Watch
from supervisor.core.election.lease import Term
from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.core.supervision.scoreboard import Board, board_words
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.scheduler.scheduler import Scheduler
from supervisor.store.keys import Keys
from supervisor.store.schedules.fire import PlanCode, Schedules
from supervisor.store.wire.definition import pack_definition
from supervisor.store.wire.fire import DueReply, FireCode, FireReply, FireResult, Seen
from tests.kit.clock import FakeClock

S = 1000 * MILLISECOND_NS
START_MS = 1_767_225_600_000
TERM = Term(8, "a" * 32, 100 * S)
TICK = ScheduleDef(id="tick", template=Template(job="j", kind=Kind.SYNC), every_ms=10_000, overlap="allow")
SOON = ScheduleDef(id="tick", template=TICK.template, every_ms=10_000, phase_ms=1000, overlap="allow")
Stored = tuple[ScheduleDef, int]  # definition and watermark


class SchedulerStepper:
    """The generator on a fake clock, under a term that the test publishes."""

    def __init__(self, *definitions: ScheduleDef, term: Term = TERM, lease_ms: int = 5000) -> None:
        self.board = Board(memoryview(bytearray(8 * board_words(slots=1, inflight=1))).cast("Q"), slots=1, inflight=1)
        self.board.publish_term(term)
        self.clock = FakeClock(elapsed_ns=50 * S, wall_ms=START_MS)
        self.stopping = False
        self.signs = 0  # of life, to the parent
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.scheduler = Scheduler(
            schedules=Schedules(Keys("test")),
            board=self.board,
            clock=self.clock,
            definitions=definitions,
            lease_ms=lease_ms,
            is_stopping=lambda: self.stopping,
            report=lambda event, **fields: self.told.append((event, fields)),
            rng=Random(1),
            show_life=self._show_life,
        )
        self.steps = self.scheduler.run()
        self.step: Step | None = next(self.steps)
        self.is_over = False

    def _show_life(self) -> None:
        self.signs += 1

    @property
    def script(self) -> str:
        assert isinstance(self.step, RunScript), self.step
        return self.step.call.script

    def answer(self, value: Any = None) -> None:
        try:
            self.step = self.steps.send(value)
        except StopIteration:
            self.step, self.is_over = None, True

    def raise_(self, error: Exception) -> None:
        self.step = self.steps.throw(error)

    def pass_ms(self, ms: int) -> None:
        """Let time pass on both clocks, and wake it."""
        assert isinstance(self.step, Sleep | Watch), self.step
        self.clock.now_ns += ms * MILLISECOND_NS
        self.answer()

    def found(self, *items: Stored, revision: int = 1, score: int | None = None, **reply: Any) -> None:
        """Answer what is due; each is planned for its first due time after its watermark, or at ``score``."""
        assert self.script == "schedule_due"
        seen = [
            Seen(d.id, score if score is not None else mark + (d.every_ms or 0), revision, "d", mark, b"", b"", 0, ())
            for d, mark in items
        ]
        defaults = {
            "now_ms": self.clock.wall_ms(),
            "planned": len(seen),
            "defined": len(seen),
            "overdue": 0,
            "next_ms": None,
        }
        defaults |= {"is_full": False, "last_change": "0-0", "is_late_full": False}
        self.answer(DueReply(seen=seen, **defaults | reply))

    def defined(self, *items: Stored, revision: int = 1) -> None:
        """Answer definitions."""
        assert self.script == "schedule_read"
        self.answer([(revision, pack_definition(definition)) for definition, _ in items])

    def planned(self, *codes: PlanCode) -> None:
        """Answer a plan."""
        assert self.script == "schedule_plan"
        self.answer(list(codes))

    def fired(self, *codes: tuple[FireCode, int], now_ms: int | None = None) -> None:
        """Answer a fire."""
        assert self.script == "fire"
        self.answer(FireReply([FireResult(code, mark) for code, mark in codes], now_ms or self.clock.wall_ms()))

    def lines(self) -> list[list[str]]:
        """Return the words of each line that it fires, as ``fire.lua`` names them."""
        assert self.script == "fire"
        return [str(line).split(" ") for line in self.step.call.args[5::3]]  # type: ignore[union-attr]  # it is an Ask

    def items(self) -> list[tuple[str, int, str]]:
        """Return (schedule, nominal, missed) of what it fires."""
        return [(words[7], int(words[3]), words[6]) for words in self.lines()]

    def events(self) -> list[str]:
        return [event for event, _ in self.told]


def serving(*items: Stored) -> SchedulerStepper:
    """Return a scheduler that has read ``items``."""
    bench = SchedulerStepper()
    bench.found(*items)
    if items:
        bench.defined(*items)
    return bench
