"""The end of the dispatcher of events: what it has taken is sent, or counted as dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.clock import SystemClock
from supervisor.core.errors import StoreUnavailableError
from supervisor.core.supervision.states import Phase
from supervisor.roles.web.events import sink
from supervisor.roles.web.events.sink import EventDispatcher, EventWebhook
from supervisor.settings.sections.models import Settings
from supervisor.store.event_log import EventLog
from supervisor.store.keys import Keys
from supervisor.telemetry import events
from supervisor.telemetry.events import Mailbox
from supervisor.telemetry.metrics import EVENTS_DROPPED, EVENTS_SENT
from tests.kit.mailboxes import arrived

LONG_S = 30.0  # a bound that nothing here comes near


class Sink:
    """A sink that answers when it is let."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.is_away = False
        self.requests = 0

    async def ask(self) -> bool:
        """Take one request; return whether it is granted."""
        self.requests += 1
        self.is_asked.set()
        await self.may_answer.wait()
        return not self.is_away

    async def run(self, _call: Any) -> int:
        """Take a batch of the stream."""
        if not await self.ask():
            raise StoreUnavailableError("it is away")
        return 1

    async def request(self, *_: Any) -> tuple[str, bool]:
        """Take a batch of the webhook."""
        return ("" if await self.ask() else "it is away"), False


class Office:
    """A dispatcher, the sinks that it sends to, and what it counted."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.header = SimpleNamespace(phase=Phase.READY)
        self.stream, self.hook = Sink(), Sink()
        settings = Settings.model_validate({"cluster": "c1", "events": {"webhook_url": "http://127.0.0.1:1/"}})
        child: Any = SimpleNamespace(
            settings=settings, replica="r1", name="web", generation=1, clock=SystemClock(),
            board=SimpleNamespace(header=self.header),
        )  # fmt: skip
        store: Any = self.stream
        self.dispatcher = EventDispatcher(child, store, EventLog(Keys("c1")), mailbox.read_fd)
        self._before = self._counts()

    def _counts(self) -> dict[str, tuple[int, int]]:
        return {
            name: (int(EVENTS_SENT.labels(sink=name)._value.get()), int(EVENTS_DROPPED.labels(sink=name)._value.get()))
            for name in ("stream", "webhook")
        }

    def counted(self, name: str) -> tuple[int, int]:
        """Return how many events were sent to a sink and dropped, since the beginning."""
        (sent, dropped), (sent_before, dropped_before) = self._counts()[name], self._before[name]
        return sent - sent_before, dropped - dropped_before


@pytest.fixture
async def office(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Office]:
    """A dispatcher that runs, with sinks that do not answer yet."""
    made = Office(mailbox)
    monkeypatch.setattr(EventWebhook, "_request", lambda _self, *args: made.hook.request(*args))
    events.attach(mailbox.write_fd, replica="r1", role="agent")
    made.dispatcher.start()
    yield made
    events.attach(None, replica="", role="")


async def begun(office: Office, *reasons: str) -> None:
    """Record events, the first of which both sinks are asked to take before the others come."""
    events.record(reasons[0])
    async with asyncio.timeout(LONG_S):
        await office.stream.is_asked.wait()
        await office.hook.is_asked.wait()
    for reason in reasons[1:]:
        events.record(reason)
    office.dispatcher.collect()


async def turns() -> None:
    """Give every task as many turns of the loop as it needs: nothing here waits for the world outside."""
    for _ in range(50):
        await asyncio.sleep(0)


async def finish(task: Awaitable[None]) -> None:
    """Wait for the end."""
    async with asyncio.timeout(LONG_S):
        await task


async def test_a_batch_in_flight_and_what_waits_behind_it_are_sent_at_the_end(office: Office) -> None:
    """A receiver takes its time; the death of a run in the drain of a deploy was told to nobody."""
    await begun(office, "run_dead", "child_exited")
    task = asyncio.create_task(office.dispatcher.close(LONG_S))
    await asyncio.sleep(0)
    office.stream.may_answer.set()
    office.hook.may_answer.set()
    await finish(task)

    assert (office.counted("stream"), office.counted("webhook")) == ((2, 0), (2, 0))


async def test_what_is_not_sent_in_time_is_counted_with_the_batch_in_hand(office: Office) -> None:
    """One sink that hangs takes the other nothing."""
    await begun(office, "run_dead", "child_exited")
    office.stream.may_answer.set()
    await turns()
    await finish(office.dispatcher.close(0.01))

    assert (office.counted("stream"), office.counted("webhook")) == ((2, 0), (0, 2))


async def test_a_sink_that_is_away_is_asked_once_more_for_each_batch(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end waits for no pause between requests, and a receiver that has just come back gets what waited for it."""
    monkeypatch.setattr(sink, "PAUSE_S", 10 * LONG_S)
    monkeypatch.setattr(sink, "RETRY_S", 10 * LONG_S)
    office.stream.is_away = office.hook.is_away = True
    for each in (office.stream, office.hook):
        each.may_answer.set()
    await begun(office, "run_dead", "child_exited")
    await turns()
    office.hook.is_away = False
    await finish(office.dispatcher.close(LONG_S))

    assert (office.counted("stream"), office.counted("webhook")) == ((0, 2), (2, 0))
    assert (office.stream.requests, office.hook.requests) == (3, 3)


@pytest.mark.parametrize(("phase", "left"), [(Phase.READY, 1), (Phase.RELOADING, 1), (Phase.DRAINING, 0)])
async def test_events_in_the_mailbox_are_the_successors_where_there_is_one(
    office: Office, mailbox: Mailbox, phase: Phase, left: int
) -> None:
    """Of a tree that stops the web child is the last to read: runs end while it drains, and the agent after them."""
    await begun(office, "leader_acquired")
    office.header.phase = phase
    for each in (office.stream, office.hook):
        each.may_answer.set()
    events.record("run_dead")
    await finish(office.dispatcher.close(LONG_S))

    assert len(arrived(mailbox)) == left
    assert (office.counted("stream"), office.counted("webhook")) == ((2 - left, 0), (2 - left, 0))
