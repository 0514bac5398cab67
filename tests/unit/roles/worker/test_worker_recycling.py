"""When a worker process asks to be replaced."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import pytest

from supervisor.core.supervision.scoreboard import Board, board_words
from supervisor.core.supervision.states import Verb
from supervisor.roles.child import ChildContext, resident_kib
from supervisor.roles.worker.process.heartbeat import (
    LOOK_NS,
    SETTLED_NS,
    SETTLED_RUNS,
    RecyclingLimits,
    WorkerHeartbeat,
)
from supervisor.settings.sections.models import PoolSettings, Settings, WorkerKind
from tests.kit.clock import FakeClock

MIB = 1024
SECOND_NS = 1_000_000_000


@dataclass
class Stage:
    """A worker's row, its limits and its memory."""

    limits: dict[str, float]
    draw: float = 0.5
    clock: FakeClock = field(default_factory=FakeClock)
    kib: int = 100 * MIB

    def __post_init__(self) -> None:
        words = memoryview(bytearray(board_words(slots=3, inflight=3) * 8)).cast("Q")
        self.board = Board(words, slots=3, inflight=3)
        self.row = self.board.rows[2]
        child = ChildContext(
            settings=Settings(),
            replica="r",
            name="worker-a-0",
            slot=2,
            generation=4,
            board=self.board,
            slot_names=("x", "y", "worker-a-0"),
            parent_pid=os.getppid(),
            clock=self.clock,
            redis_url="",
        )
        self.subject = RecyclingLimits(
            PoolSettings(kind=WorkerKind.SYNC, **self.limits),  # type: ignore[arg-type]
            presence=WorkerHeartbeat(child),
            clock=self.clock,
            uniform=lambda: self.draw,
            resident=lambda: self.kib,
        )

    def asked(self, *, runs: int = 0, after_s: float = 0.0) -> int:
        """Let time and work go by, look, and return how many requests there have been."""
        self.row.done += runs
        self.clock.now_ns += round(after_s * SECOND_NS)
        self.subject.tick(self.clock.now_ns)
        return self.row.request_number


@pytest.fixture(autouse=True)
def _no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "kill", lambda *_: None)


def test_without_limits_nothing_is_asked() -> None:
    """They are off unless somebody sets them."""
    stage = Stage({})

    assert stage.asked(runs=10**9, after_s=10**9) == 0
    assert stage.row.rss_kib == 100 * MIB


def test_the_request_names_this_very_process() -> None:
    """The parent checks the generation: a late request must not hit a successor."""
    stage = Stage({"recycle_runs": 10})

    assert stage.asked(runs=9) == 0
    assert stage.asked(runs=1) == 1
    row = stage.row
    assert (row.request_verb, row.request_slot, row.request_generation) == (Verb.RECYCLE, 2, 4)


def test_it_is_asked_again_only_after_a_while_and_once_it_was_seen() -> None:
    """An aborted replacement is forgotten by the parent; a request that it has not read yet must not be overwritten."""
    stage = Stage({"recycle_runs": 10})
    assert stage.asked(runs=10) == 1
    assert stage.asked(after_s=59) == 1
    assert stage.asked(after_s=2) == 1
    stage.row.handled_number = 1
    assert stage.asked() == 2


def test_growth_counts_from_what_the_process_settled_at() -> None:
    """One that is born large would be replaced for ever by another that is."""
    stage = Stage({"recycle_growth_mib": 50})
    stage.asked(runs=SETTLED_RUNS)
    stage.kib = 149 * MIB
    assert stage.asked(after_s=LOOK_NS / SECOND_NS) == 0
    stage.kib = 150 * MIB
    assert stage.asked(after_s=1) == 0  # memory is looked at now and then only
    assert stage.asked(after_s=LOOK_NS / SECOND_NS) == 1


def test_a_process_without_much_work_settles_by_time() -> None:
    """Else it would have no baseline."""
    stage = Stage({"recycle_growth_mib": 50})
    stage.kib = 300 * MIB
    stage.asked(after_s=SETTLED_NS / SECOND_NS)
    stage.kib = 349 * MIB
    assert stage.asked(after_s=6) == 0
    stage.kib = 350 * MIB
    assert stage.asked(after_s=6) == 1


@pytest.mark.parametrize(("draw", "age_s"), [(0.0, 90.0), (0.5, 100.0), (1.0, 110.5)])
def test_limits_are_moved_by_up_to_a_tenth(draw: float, age_s: float) -> None:
    """Processes that started together must not be replaced together."""
    stage = Stage({"recycle_age_s": 100.0}, draw=draw)

    assert stage.asked(after_s=age_s - 1) == 0
    assert stage.asked(after_s=1) == 1


def test_the_system_tells_how_large_a_process_is() -> None:
    """In KiB; and where it does not, nothing is recycled for growth."""
    assert 1 * MIB < resident_kib() < 10_000 * MIB
    assert resident_kib(2**22 + 1) == 0, "above every number that Linux gives out"


def test_a_process_whose_hooks_hang_asks_without_any_limit() -> None:
    """Nothing else ends their threads; asked once, and again only after a while."""
    stage = Stage({})
    for _ in range(2):
        stage.subject.tick(stage.clock.now_ns, is_stuck=True)

    assert (stage.row.request_number, stage.row.request_verb) == (1, Verb.RECYCLE)
