"""A tree in private memory, as the web child would see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supervisor.core.election.lease import Term
from supervisor.core.model import Kind
from supervisor.core.supervision.scoreboard import MAGIC, Board, board_words
from supervisor.core.supervision.states import ChildState, Phase, SlotState
from supervisor.roles.child import ChildContext
from supervisor.roles.web.cluster_snapshot import Overview
from supervisor.settings.sections.models import Settings
from supervisor.store.election.leases import LeaseCode, LeaseView
from supervisor.store.queues.reads import QueueCounts
from tests.kit.clock import FakeClock

S = 1_000_000_000
NOW_NS = 10_000 * S
NOW_MS = 1_795_178_096_007
SLOTS = ("agent", "scheduler", "web", "worker-io-0", "worker-cpu-0")


def fill(board: Board) -> None:
    """Write a healthy, leading replica; the last worker waits to be restarted."""
    header = board.header
    header.magic, header.slots, header.phase = MAGIC, len(SLOTS), Phase.READY
    header.parent_beat_ns, header.started_ns, header.is_leading = NOW_NS, NOW_NS - 3700 * S, 1
    board.publish_term(Term(7, "ab" * 16, NOW_NS + 4 * S))
    for row in board.rows:
        row.state, row.generation, row.child_generation = SlotState.RUNNING, 1, 1
        row.child_state, row.started_ns, row.beat_ns = ChildState.READY, NOW_NS - 65 * S, NOW_NS - S // 4
    board.rows[0].redis_ok_ns = NOW_NS - S
    board.rows[3].busy, board.rows[3].done = 12, 3456
    board.rows[4].state, board.rows[4].restarts = SlotState.BACKOFF, 3


@pytest.fixture
def make_child() -> Callable[..., ChildContext]:
    """Return a maker of the web child's context; keyword arguments are settings."""

    def make(**settings: Any) -> ChildContext:
        size = board_words(slots=len(SLOTS), inflight=1)
        board = Board(memoryview(bytearray(8 * size)).cast("Q"), slots=len(SLOTS), inflight=1)
        fill(board)
        return ChildContext(
            settings=Settings.model_validate({"cluster": "c1"} | settings),
            replica="host.a1b2c3",
            name="web",
            slot=2,
            generation=1,
            board=board,
            slot_names=SLOTS,
            parent_pid=0,
            clock=FakeClock(elapsed_ns=NOW_NS, wall_ms=NOW_MS),
            redis_url="unix:///nowhere",
        )

    return make


def counts(queue: str, **known: Any) -> QueueCounts:
    """Return the counts of a queue that is empty but for ``known``."""
    empty = {"ready": {}, "suspects": {}, "running": 0, "later": 0, "dead": 0, "blocked": 0, "paused": None}
    rest = {"paused_by": "", "paused_ms": None, "oldest_ready_ms": None, "next_due_ms": None, "stats": {}}
    return QueueCounts(queue=queue, **{**empty, **rest, "now_ms": NOW_MS, **known})


@pytest.fixture
def overview() -> Overview:
    """What Redis might hold."""
    return Overview(
        queues=(
            counts(
                "default",
                ready={(Kind.ASYNC, 0): 1, (Kind.ASYNC, 1): 40, (Kind.SYNC, 2): 2},
                running=12,
                later=5,
                dead=1,
            ),
            counts("shell", paused=""),
        ),
        leader=LeaseView(
            code=LeaseCode.VIEW,
            epoch=7,
            nonce="ab" * 16,
            holder="host.a1b2c3",
            seq=1,
            remaining_ms=4000,
            duration_ms=5000,
            now_ms=NOW_MS,
            genesis="g",
            last_event="1-0",
            host="host",
        ),
        next_due=(("token-cleanup", NOW_MS + 1000),),
        served={"default": (Kind.ASYNC, Kind.SYNC)},
    )
