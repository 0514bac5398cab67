"""The driver of the elector: the answer of each step is what the store says."""

from __future__ import annotations

from typing import Any

from supervisor.core.effects import Call, Listen, RunScript
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.agent.election.elector_thread import ElectorThread
from supervisor.store.keys import Keys
from tests.unit.roles.agent.elector_stepper import Scripted

KEYS = Keys("test")
NEWS = [("5-1", {"event": "released"})]


class AnsweringStore:
    """A client that answers at once, and notes its questions."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def listen(self, stream: str, last_id: str, wait_s: float) -> Any:
        self.asked.append((stream, last_id, wait_s))
        return NEWS

    def run(self, call: Call[Any], *, timeout_s: float) -> Any:
        self.asked.append((call, timeout_s))
        return "granted"


def test_an_elector_hears_what_the_stream_says_and_waits_as_long_as_it_asked_to() -> None:
    """A driver that answers nothing makes a standby ask in a circle instead of waiting for news."""
    scripted, store = Scripted(), AnsweringStore()
    thread: Any = ElectorThread(scripted.context, store=store, keys=KEYS)  # type: ignore[arg-type]
    until_ns = scripted.clock.now_ns + 1500 * MILLISECOND_NS

    assert thread._execute(Listen("4-0", until_ns)) == NEWS
    assert store.asked == [(KEYS.events, "4-0", 1.5)]


def test_an_elector_gets_the_reply_of_its_script() -> None:
    """Within the time that the question has; when Redis answered is noted for the health of the agent."""
    scripted, store = Scripted(), AnsweringStore()
    thread: Any = ElectorThread(scripted.context, store=store, keys=KEYS)  # type: ignore[arg-type]
    call: Any = object()

    assert thread._execute(RunScript(call, 750 * MILLISECOND_NS)) == "granted"
    assert store.asked == [(call, 0.75)]
    assert thread.answered_ns == scripted.clock.now_ns
