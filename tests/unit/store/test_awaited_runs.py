"""Waiting for runs without a server: when each is looked at, who is woken, and what a waiter asks."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Generator
from typing import Any

import pytest

from supervisor.core.effects import Call
from supervisor.core.errors import RunTimeoutError, StoreUnavailableError, TenureError
from supervisor.core.units import SECOND_NS
from supervisor.store.keys import Keys
from supervisor.store.producer.run_asking import RunQueries, WaitForEnd
from supervisor.store.producer.waiting import AwaitedRuns, RunWaits
from supervisor.store.queues.reads import Page, RunView
from supervisor.store.queues.run_records import AWAIT_MAX
from tests.kit.clock import FakeClock

KEYS = Keys("t")
WOKEN, OVER = True, False


def view_of(state: str, **fields: Any) -> RunView:
    """Return what Redis says of a run."""
    nothing: dict[str, Any] = dict.fromkeys(("due_ms", "died_ms", "envelope", "result", "progress"))
    empty: dict[str, Any] = {
        "queue": "mail",
        "session": "",
        "limits": "",
        "waits_for": "",
        "holders": [],
        "history": [],
    }
    zero: dict[str, Any] = {"attempts": 0, "crashes": 0, "interrupts": 0, "fetched_ms": 0, "error": {}}
    return RunView(**nothing | empty | zero | {"run_id": "r", "state": state} | fields)


class Question:
    """A generator of ``RunQueries``, answered by the test."""

    def __init__(self, *, timeout: float | None = 10) -> None:
        self.clock = FakeClock()
        waits = RunWaits(KEYS, open_store=lambda: pytest.fail("no connection"), clock=self.clock, entropy=bytes)
        self.asking = RunQueries(KEYS, clock=self.clock, run=pytest.fail, run_async=pytest.fail, waits=waits)
        self.effects: Generator[Any, Any, Any] = self.asking.result("r", "mail", timeout)
        self.asked: Any = next(self.effects)

    def answer(self, value: Any) -> Any:
        """Answer the last effect, a search by its only page; return the next one."""
        if self.script == "runs_await":
            value = ("0", value)
        self.asked = self.effects.send(value)
        return self.asked

    def fail(self, error: TenureError) -> Any:
        """Fail the last effect; return the next one."""
        self.asked = self.effects.throw(error)
        return self.asked

    @property
    def script(self) -> str:
        """Name of the script that is asked for; empty while it waits."""
        return self.asked.script if isinstance(self.asked, Call) else ""


def ended(question: Question, value: Any) -> Any:
    """Answer the last effect, which ends the question, and return its result."""
    with pytest.raises(StopIteration) as stop:
        question.answer(value)
    return stop.value.value


def test_runs_are_looked_at_less_and_less_and_never_twice_a_second() -> None:
    """An end that nobody told is found within 5 s, at the price of a fifth of a call a second."""
    runs, looks = AwaitedRuns(), []
    runs.add("r", "mail", lambda: None, 0)
    for now_ms in range(0, 25_000, 100):
        asked = runs.due(now_ms * 1_000_000)
        if asked:
            looks.append(now_ms / 1000)
            runs.looked(asked, ["mail"], now_ms * 1_000_000)
    assert looks == [1, 3, 7, 12, 17, 22]


def test_one_look_takes_a_bounded_number_of_runs() -> None:
    """A hundred thousand waiters do not make one call of a second."""
    runs = AwaitedRuns()
    for number in range(2 * AWAIT_MAX + 1):
        runs.add(f"r{number}", "mail", lambda: None, 0)
    pages = []
    while asked := runs.due(SECOND_NS):
        pages.append(len(asked))
        runs.looked(asked, ["mail"] * len(asked), SECOND_NS)
    assert pages == [AWAIT_MAX, AWAIT_MAX, 1]


def test_all_waiters_of_a_run_are_woken_and_those_that_left_are_not() -> None:
    """Several parts of a program may wait for the same run."""
    runs, woken = AwaitedRuns(), []
    wakes = {name: (lambda name=name: woken.append(name)) for name in "abc"}
    for wake in wakes.values():
        runs.add("r", "mail", wake, 0)
    runs.discard("r", wakes["b"])
    runs.wake("r")
    runs.wake("other")
    assert woken == ["a", "c"]
    runs.discard("r", wakes["a"])
    runs.discard("r", wakes["c"])
    assert len(runs) == 0
    assert runs.due(10 * SECOND_NS) == []


def test_a_run_that_is_nowhere_wakes_its_waiters() -> None:
    """So an end that an older version wrote is found."""
    runs, woken = AwaitedRuns(), []
    runs.add("r", "mail", lambda: woken.append("r"), 0)
    runs.looked(runs.due(SECOND_NS), [""], SECOND_NS)
    assert woken == ["r"]


def test_after_an_outage_every_run_is_looked_at_first() -> None:
    """What ended meanwhile may have been told to nobody."""
    runs = AwaitedRuns()
    runs.add("r", "mail", lambda: None, 0)
    runs.looked(runs.due(SECOND_NS), ["mail"], SECOND_NS)
    assert runs.due(SECOND_NS) == []
    runs.look_again(SECOND_NS)
    assert runs.due(SECOND_NS) == [("mail", "r")]


@pytest.mark.parametrize("count", [1000, pytest.param(5000, marks=pytest.mark.long)])
def test_questions_that_need_no_wait_leave_nothing_behind(count: int) -> None:
    """A program that asks for states all day, and never waits, does not grow."""
    waits = RunWaits(KEYS, open_store=lambda: pytest.fail("no connection"), clock=FakeClock(), entropy=bytes)
    asking = RunQueries(
        KEYS, clock=FakeClock(), run=lambda _call: Page("0", [None]), run_async=pytest.fail, waits=waits
    )
    for _ in range(2):
        asking.answer(asking.status("warm", ""))
    tracemalloc.start()
    try:
        for number in range(count):
            asking.answer(asking.status(f"r{number}", ""), f"r{number}")
        gc.collect()  # else it depends on when the collector came last
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 20_000


def test_runs_that_are_awaited_are_looked_at_while_thousands_come_and_go() -> None:
    """What the others leave is removed, and nothing else."""
    runs = AwaitedRuns()
    runs.add("stays", "mail", str, 0)
    for number in range(5000):
        runs.add(f"r{number}", "mail", str, 0)
        runs.discard(f"r{number}", str)
    assert runs.due(SECOND_NS) == [("mail", "stays")]


def test_a_result_that_is_there_is_read_without_waiting() -> None:
    """Two calls, and no listener."""
    question = Question()
    assert question.script == "runs_await"
    question.answer([""])
    assert question.script == "run_show"
    assert ended(question, view_of("finished", result=b"[1]")) == [1]


def test_a_waiter_reads_the_run_when_it_is_woken() -> None:
    """What wakes it is a hint; what it reads is the answer."""
    question = Question()
    question.answer(["mail"])
    assert question.asked == WaitForEnd(question.clock.elapsed_ns() + 10 * SECOND_NS)
    question.answer(WOKEN)
    assert question.script == "runs_await"
    question.answer([""])
    assert ended(question, view_of("finished", result=b"1")) == 1


def test_a_run_that_comes_back_to_life_is_awaited_on() -> None:
    """A person requeued it between two questions."""
    question = Question()
    question.answer([""])
    question.answer(view_of("queued"))
    assert question.script == "runs_await"
    assert isinstance(question.answer(["mail"]), WaitForEnd)


def test_a_run_whose_places_contradict_each_other_is_not_asked_for_without_a_pause() -> None:
    """Dead and delayed at once, after a hand was in the data: the wait has its end, and Redis its peace."""
    question = Question()
    for _ in range(10):
        if isinstance(question.asked, WaitForEnd):
            break
        question.answer([""] if question.script == "runs_await" else view_of("later"))
    assert question.asked == WaitForEnd(question.clock.elapsed_ns() + 10 * SECOND_NS)
    question.answer(OVER)
    with pytest.raises(RunTimeoutError, match="it is delayed"):
        question.answer(view_of("later"))


def test_the_end_of_the_wait_names_the_state() -> None:
    """The caller learns whether it never began or is being executed."""
    question = Question()
    question.answer(["mail"])
    question.answer(OVER)
    with pytest.raises(RunTimeoutError, match="run r has not ended after 10 s, it is running") as error:
        question.answer(view_of("running"))
    assert isinstance(error.value, TimeoutError)
    assert error.value.state == "running"


def test_without_a_server_the_first_question_fails() -> None:
    """As an enqueue does: there is nothing to wait for yet."""
    with pytest.raises(StoreUnavailableError):
        Question().fail(StoreUnavailableError("no answer"))


def test_an_outage_while_waiting_is_waited_out() -> None:
    """It is asked again once a second, whatever is heard."""
    question = Question()
    question.answer(["mail"])
    question.answer(WOKEN)
    question.fail(StoreUnavailableError("no answer"))
    assert question.asked == WaitForEnd(question.clock.elapsed_ns() + SECOND_NS, is_deaf=True)
    question.answer(WOKEN)
    question.answer([""])
    assert ended(question, view_of("finished", result=b"1")) == 1


def test_an_outage_that_outlasts_the_wait_is_named() -> None:
    """Not as if the run had been seen waiting."""
    question = Question(timeout=0)
    question.answer(["mail"])
    question.answer(OVER)
    with pytest.raises(RunTimeoutError, match="Redis did not answer at last: no answer"):
        question.fail(StoreUnavailableError("no answer"))
