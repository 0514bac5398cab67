"""The scheduler, question by question: what it sends, under which term, and what it makes of each answer."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from supervisor.core.board import NO_TERM, Board, Term, board_words
from supervisor.core.errors import FencedError, StoreUnavailableError
from supervisor.core.lease import MS
from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.roles.scheduler.planner import Scheduler
from supervisor.roles.steps import Ask, Sleep, Step
from supervisor.store.keys import Keys
from supervisor.store.schedules import (
    Declared,
    FireCode,
    FireReply,
    FireResult,
    SchedulePage,
    Schedules,
    StoredSchedule,
)

S = 1000 * MS
START_MS = 1_767_225_600_000
TERM = Term(8, "a" * 32, 100 * S)
ITEM_FIELDS = 12
TICK = ScheduleDef(id="tick", template=Template(job="j", kind=Kind.SYNC), every_ms=10_000, overlap="allow")


class Bench:
    """The generator on a fake clock, under a term that the test publishes."""

    def __init__(self, *definitions: ScheduleDef, term: Term = TERM) -> None:
        self.board = Board(memoryview(bytearray(8 * board_words(slots=1, inflight=1))).cast("Q"), slots=1, inflight=1)
        self.board.publish_term(term)
        self.now_ns = 50 * S
        self.wall = START_MS
        self.stopping = False
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.scheduler = Scheduler(
            schedules=Schedules(Keys("test")),
            board=self.board,
            clock=self,
            definitions=definitions,
            lease_ms=5000,
            is_stopping=lambda: self.stopping,
            report=lambda event, **fields: self.told.append((event, fields)),
            rng=Random(1),
        )
        self.steps = self.scheduler.run()
        self.step: Step | None = next(self.steps)
        self.is_over = False

    def elapsed_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return self.wall

    @property
    def script(self) -> str:
        assert isinstance(self.step, Ask), self.step
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
        assert isinstance(self.step, Sleep), self.step
        self.now_ns += ms * MS
        self.wall += ms
        self.answer()

    def stored(self, *items: tuple[ScheduleDef, int], revision: int = 1, cursor: str = "0") -> None:
        """Answer a page."""
        assert self.script == "schedule_page"
        page = [StoredSchedule(definition=d, revision=revision, mark_ms=mark, next_ms=None) for d, mark in items]
        self.answer(SchedulePage(cursor=cursor, items=page, now_ms=self.wall, unreadable=[]))

    def fired(self, *codes: tuple[FireCode, int], now_ms: int | None = None) -> None:
        """Answer a fire."""
        assert self.script == "fire"
        self.answer(FireReply([FireResult(code, mark) for code, mark in codes], now_ms or self.wall))

    def items(self) -> list[tuple[str, int, int]]:
        """Return (schedule, nominal, missed) of what it fires."""
        assert self.script == "fire"
        flat = self.step.call.args[4:]  # type: ignore[union-attr]  # asserted to be an Ask
        rows = [flat[i : i + ITEM_FIELDS] for i in range(0, len(flat), ITEM_FIELDS)]
        return [(str(row[0]), int(row[3]), int(row[6])) for row in rows]

    def events(self) -> list[str]:
        return [event for event, _ in self.told]


def serving(*items: tuple[ScheduleDef, int]) -> Bench:
    """Return a scheduler that has read ``items``."""
    bench = Bench()
    bench.stored(*items)
    return bench


def test_without_a_trusted_term_nothing_is_sent() -> None:
    """It looks at the board twice a second, and whenever it is woken."""
    bench = Bench(TICK, term=NO_TERM)
    for _ in range(3):
        bench.pass_ms(500)
    bench.board.publish_term(TERM)
    bench.answer()

    assert bench.script == "schedule_declare"


def test_a_term_begins_with_a_declaration_and_the_stored_schedules() -> None:
    """What is stored rules; one line for each schedule says when it is due."""
    bench = Bench(TICK)
    assert bench.step.call.args[:2] == (8, "a" * 32)  # type: ignore[union-attr]  # it is an Ask
    bench.answer(Declared(applied=True, revision=1, added=["tick"], changed=[], removed=[], now_ms=START_MS))
    bench.stored((TICK, START_MS))

    planned = [fields for event, fields in bench.told if event == "schedule_planned"]
    assert planned == [{"schedule": "tick", "trigger": "every 10s", "next_ms": START_MS + 10_000}]


def test_a_replica_without_schedules_declares_nothing() -> None:
    """An empty configuration must not silence the others'."""
    assert Bench().script == "schedule_page"


def test_pages_are_read_to_the_end() -> None:
    """A schedule on the second page fires too."""
    bench = Bench()
    bench.stored((TICK, START_MS - 10_000), cursor="7")
    other = ScheduleDef(id="other", template=TICK.template, every_ms=10_000)
    bench.stored((other, START_MS - 10_000))

    assert sorted(bench.items()) == [("other", START_MS, 0), ("tick", START_MS, 0)]


def test_what_is_due_is_fired_and_planned_again() -> None:
    """On the grid, by the wall clock, after a sleep that ends in time."""
    bench = serving((TICK, START_MS))
    while isinstance(bench.step, Sleep):
        bench.pass_ms((bench.step.until_ns - bench.now_ns) // MS)
    assert bench.items() == [("tick", START_MS + 10_000, 0)]
    bench.fired((FireCode.FIRED, START_MS + 10_000))

    assert isinstance(bench.step, Sleep)
    assert bench.scheduler._catalogue.next_ms() == START_MS + 20_000


def test_an_early_timer_fires_nothing() -> None:
    """Timers may end a little before their time: it compares again after each wake."""
    bench = serving((TICK, START_MS))
    bench.wall = START_MS + 9_999
    bench.answer()
    assert isinstance(bench.step, Sleep)
    bench.pass_ms(1)

    assert bench.items() == [("tick", START_MS + 10_000, 0)]


def test_after_a_pause_only_the_latest_due_time_fires() -> None:
    """The others are counted."""
    bench = serving((TICK, START_MS - 100_000))

    assert bench.items() == [("tick", START_MS, 9)]


def test_an_unanswered_batch_is_sent_again_unchanged() -> None:
    """Time passed and more is due, but the first batch may have been accepted: Redis decides."""
    bench = serving((TICK, START_MS - 10_000))
    sent = bench.step
    bench.raise_(StoreUnavailableError("away"))
    bench.pass_ms(30_000)

    assert bench.step == sent


def test_a_duplicate_takes_the_watermark_of_redis() -> None:
    """Its own lost answer, or another term: either way Redis knows."""
    bench = serving((TICK, START_MS - 10_000))
    bench.fired((FireCode.DUP, START_MS + 30_000))

    assert bench.scheduler._catalogue.next_ms() == START_MS + 40_000


def test_a_changed_definition_makes_it_read_again() -> None:
    """A stale plan fires nothing."""
    bench = serving((TICK, START_MS - 10_000))
    bench.fired((FireCode.STALE, START_MS - 10_000))
    assert bench.script == "schedule_page"
    bench.stored((TICK, START_MS - 10_000), revision=2)

    assert bench.step.call.args[5] == 2  # type: ignore[union-attr]  # it is an Ask


def test_a_refused_term_is_never_used_again() -> None:
    """FENCED: it idles until the board has another term."""
    bench = serving((TICK, START_MS - 10_000))
    bench.raise_(FencedError(operation="fire", epoch=8, current_epoch=9))
    assert isinstance(bench.step, Sleep)
    bench.pass_ms(500)
    assert isinstance(bench.step, Sleep)
    bench.board.publish_term(Term(9, "b" * 32, 200 * S))
    bench.answer()

    assert bench.script == "schedule_page"
    assert "fenced" in bench.events()


def test_trust_is_checked_right_before_each_write() -> None:
    """It ended while the last answer was on its way: nothing is sent until it is renewed."""
    bench = serving((TICK, START_MS - 10_000))
    bench.raise_(StoreUnavailableError("away"))
    bench.now_ns = TERM.trusted_until_ns
    bench.answer()
    assert isinstance(bench.step, Sleep)
    bench.board.publish_term(Term(8, "a" * 32, 300 * S))
    bench.answer()

    assert bench.items() == [("tick", START_MS, 0)]


def test_another_term_on_the_board_ends_this_one() -> None:
    """Everything is read anew: another replica may have fired in between."""
    bench = serving((TICK, START_MS))
    bench.board.publish_term(Term(9, "b" * 32, 200 * S))
    bench.answer()

    assert bench.script == "schedule_page"


def test_a_clock_ahead_of_redis_is_held_back_to_it() -> None:
    """A second ahead: due by this machine, not by Redis. What Redis' time owes fires; the rest waits."""
    bench = serving((TICK, START_MS - 20_000))
    assert bench.items() == [("tick", START_MS, 1)]
    bench.fired((FireCode.SKEWED, START_MS - 20_000), now_ms=START_MS - 1000)
    assert bench.items() == [("tick", START_MS - 10_000, 0)]
    bench.fired((FireCode.FIRED, START_MS - 10_000), now_ms=START_MS - 1000)
    assert bench.items() == [("tick", START_MS, 0)]
    bench.fired((FireCode.SKEWED, START_MS - 10_000), now_ms=START_MS - 999)

    assert isinstance(bench.step, Sleep)
    assert bench.step.until_ns - bench.now_ns == 500 * MS
    assert bench.events().count("clock_ahead_of_redis") == 1


def test_a_held_schedule_is_not_lost_when_the_clock_is_set_right() -> None:
    """It waits on the clock that does not jump: held by the wall clock, it would wait for the old time."""
    bench = serving((TICK, START_MS - 10_000))
    bench.wall = START_MS + 3_600_000
    bench.fired((FireCode.SKEWED, START_MS - 10_000), now_ms=START_MS - 5000)
    assert isinstance(bench.step, Sleep)
    bench.wall = START_MS
    bench.now_ns += 500 * MS
    bench.answer()

    assert bench.items() == [("tick", START_MS, 0)]


def test_a_stop_ends_it_after_the_batch_in_flight() -> None:
    """The answer is taken; no further batch is sent."""
    bench = serving((TICK, START_MS - 10_000))
    bench.stopping = True
    bench.fired((FireCode.FIRED, START_MS))

    assert bench.is_over


@pytest.mark.parametrize(
    "broken",
    [
        ScheduleDef(id="broken", template=TICK.template, every_ms=1000, cron="* * * * *"),
        ScheduleDef(id="broken", template=TICK.template, cron="61 * * * *"),
        ScheduleDef(id="broken", template=Template(job="j", kind=Kind.SYNC, queue="no good"), every_ms=1000),
        ScheduleDef(id="broken", template=Template(job="j", kind=Kind.SYNC, args={"x": "y" * 70_000}), every_ms=1000),
    ],
)
def test_a_definition_that_cannot_be_used_does_not_stop_the_others(broken: ScheduleDef) -> None:
    """A newer version may have stored it; it is reported."""
    bench = serving((broken, START_MS - 10_000), (TICK, START_MS - 10_000))

    assert bench.items() == [("tick", START_MS, 0)]
    assert [fields["schedule"] for event, fields in bench.told if event == "schedule_invalid"] == ["broken"]


def test_many_due_at_once_go_in_bounded_batches() -> None:
    """Two hundred and fifty to a script, so that Redis is never blocked for long."""
    many = [ScheduleDef(id=f"s{i}", template=TICK.template, every_ms=10_000) for i in range(600)]
    bench = serving(*((definition, START_MS - 10_000) for definition in many))
    sizes = []
    while isinstance(bench.step, Ask):
        sizes.append(len(bench.items()))
        bench.fired(*[(FireCode.FIRED, START_MS)] * sizes[-1])

    assert sizes == [250, 250, 100]
