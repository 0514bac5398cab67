"""Watermarks of an id that comes again: after a loss of data, or because its schedule was removed long ago."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from supervisor.core.effects import Steps
from supervisor.core.election.lease import Term
from supervisor.core.supervision.scoreboard import Board, board_words
from supervisor.roles.scheduler.schedule_cache import Catalogue, Watermarks
from supervisor.store.keys import Keys
from supervisor.store.schedules.fire import Schedules, Seed, Seeded
from supervisor.store.wire.definition import pack_definition
from supervisor.store.wire.fire import Seen
from tests.kit.clock import FakeClock
from tests.unit.roles.scheduler.scheduler_stepper import START_MS, TICK

DAY_MS = 86_400_000
CREATED = msgspec.structs.replace(TICK, run_on_create=True)


def seen(mark_ms: int, state: bytes = b"") -> Seen:
    return Seen(CREATED.id, 0, 1, "dynamic", mark_ms, state, b"", 0, ())


def made() -> tuple[Board, Catalogue, Watermarks]:
    """A board, a catalogue that knows the schedule, and watermarks in their first term."""
    board = Board(memoryview(bytearray(8 * board_words(slots=1, inflight=1))).cast("Q"), slots=1, inflight=1)
    clock = FakeClock(elapsed_ns=1, wall_ms=START_MS + 100 * DAY_MS)
    client: Any = SimpleNamespace(board=board, clock=clock, now_ms=clock.wall_ms)
    catalogue = Catalogue()
    assert catalogue.learn(CREATED.id, 1, pack_definition(CREATED), is_dynamic=True) is None
    marks = Watermarks(Schedules(Keys("test")), client)
    marks.begin(Term(1, "a" * 32, 1))
    return board, catalogue, marks


@pytest.mark.parametrize(
    ("passed_ms", "is_doubtful"),
    [(-5000, True), (0, True), (1000, True), (DAY_MS - 1000, True), (DAY_MS + 1000, False), (90 * DAY_MS, False)],
)
def test_a_schedule_that_begins_again_is_doubtful_for_a_day(passed_ms: int, is_doubtful: bool) -> None:  # noqa: FBT001
    """Within it, Redis went back behind its first run; later it was removed meanwhile, and is another one.

    Its initial run was kept back by every replica that had led in its former life and heard of no removal.
    """
    board, catalogue, marks = made()
    begun = b"1 0 0 0 0 0 0 0 0 0 0 1"
    assert marks.read([seen(START_MS, begun)], catalogue) == 0
    board.header.foreign_epoch = 2  # another replica led
    marks.begin(Term(3, "b" * 32, 1))
    doubtful_until_ms = marks.read([seen(START_MS + passed_ms)], catalogue)
    assert (doubtful_until_ms > 0) is is_doubtful


def test_a_reading_of_redis_that_lost_its_data_takes_no_watermark_away() -> None:
    """Readings have no fence: without its mark, what was fired a moment before the loss was fired again unmarked."""
    _, catalogue, marks = made()
    marks.remember(CREATED.id, START_MS + 5000)
    assert marks.read([seen(0)._replace(revision=None)], catalogue) == 0
    assert marks.read([seen(START_MS, b"1 0 0 0 0 0 0 0 0 0 0 1")], catalogue) >= START_MS + 5000, "it went back"


@pytest.mark.parametrize(("reads", "lost"), [(False, 3), (True, 0)])
def test_a_process_that_read_nothing_does_not_speak_for_the_one_before(*, reads: bool, lost: int) -> None:
    """It was started in the term that lost its data: what another process decided in it is not run again."""
    board, catalogue, marks = made()
    if reads:
        marks.read([seen(START_MS)], catalogue)
    header = board.header
    header.sighted_ms, header.lost_until_ms, header.held_until_ms = START_MS, START_MS + 30_000, START_MS + 90_000
    header.data_loss_epoch = 2
    term, written = Term(2, "b" * 32, 1), []

    def ask(_term: Term, seeds: list[Seed]) -> Steps[Seeded]:
        written.extend(seeds)
        yield from ()
        return Seeded(len(seeds), 0, is_over=False)

    client: Any = marks._client
    client.ask, client.report, client.show_life = ask, lambda *_, **__: None, lambda: None
    marks._schedules = cast("Schedules", SimpleNamespace(seed=lambda _term, seeds: seeds))
    marks.begin(term)
    assert not list(marks.restore(term, [TICK]))

    assert [each.lost for each in written] == [lost]
