"""A follower of events: its place, as it gives it when it comes back, and the end of its stream with its token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ServerDisconnectedError, web
from aiohttp.test_utils import TestClient, TestServer

from supervisor.core.errors import StoreRefusedError
from supervisor.core.events import Event
from supervisor.roles.web.events import handlers
from supervisor.roles.web.events.followers import Item
from supervisor.roles.web.events.handlers import EventPages, _place
from supervisor.roles.web.responses import ADMIT, ASKER, PEER
from supervisor.store.event_log import READ_MAX, KeptEvent
from tests.kit.clock import FakeClock


def test_ids_are_in_the_order_of_their_time_and_then_of_their_number() -> None:
    """By the number alone, who resumes would get old events again and miss new ones."""
    mixed = ["7-0", "6-10", "", "10-0", "6-9", "6-0"]
    assert sorted(mixed, key=_place) == ["", "6-0", "6-9", "6-10", "7-0", "10-0"]


class Access:
    """A token that is taken away at a moment of the test's choice."""

    is_over = False

    def admit(self) -> None:
        """Refuse the request from then on."""
        if self.is_over:
            raise web.HTTPUnauthorized

    def end(self) -> None:
        """Take the token away."""
        self.is_over = True


class Silence(asyncio.Queue[Item]):
    """A queue into which nothing comes, and whose reader loses the token as it begins to wait."""

    def __init__(self, end: Callable[[], None]) -> None:
        super().__init__()
        self._end = end

    async def get(self) -> Item:
        """Wait for ever."""
        self._end()
        return await super().get()


class History:
    """Stands for Redis, its events and who follows them: a page, and one more during which the token goes."""

    def __init__(self, access: Access, follower: Callable[[Callable[[], None]], asyncio.Queue[Item]]) -> None:
        self._access = access
        self._follower = follower
        self._left = ["1-0", "2-0"]

    def read(self, **_: Any) -> list[KeptEvent]:
        """Return the next page."""
        if len(self._left) == 1:
            self._access.end()
        event = Event("reload_done", "info", "", "", 1, 0, 0, "r1", "agent")
        return [KeptEvent(self._left.pop(0), event)] * READ_MAX

    async def run(self, page: list[KeptEvent]) -> list[KeptEvent]:
        """Return the result of a call."""
        return page

    @asynccontextmanager
    async def follow(self, _token: str, _address: str) -> AsyncIterator[asyncio.Queue[Item]]:
        """Return the queue of a follower."""
        yield self._follower(self._access.end)


class Chatter(asyncio.Queue[Item]):
    """A queue with one event after the other, whose reader loses the token after ten times the heartbeat."""

    def __init__(self, end: Callable[[], None]) -> None:
        super().__init__()
        self._end, self._place = end, 0
        self._until_s = asyncio.get_running_loop().time() + 10 * handlers.HEARTBEAT_S

    async def get(self) -> Item:
        """Return the next one."""
        loop = asyncio.get_running_loop()
        if loop.time() > self._until_s:
            self._end()
        turn = loop.create_future()
        loop.call_soon(lambda: turn.done() or turn.set_result(None))
        await turn
        self._place += 1
        return KeptEvent(f"9-{self._place}", Event("reload_done", "info", "", "", 1, 0, 0, "r1", "agent"))


async def told(query: str = "", follower: Callable[[Callable[[], None]], asyncio.Queue[Item]] = Silence) -> bytes:
    """Return all that a follower gets before its stream ends."""
    access = Access()
    history: Any = History(access, follower)
    pages = EventPages(history, history, history, FakeClock(elapsed_ns=0, wall_ms=0))

    async def follow(request: web.Request) -> web.StreamResponse:
        request[ADMIT], request[ASKER], request[PEER] = access.admit, "reader", "127.0.0.1"
        return await pages.events(request)

    app = web.Application()
    app.router.add_get("/", follow)
    async with TestClient(TestServer(app)) as client:
        answer = await client.get(f"/{query}", headers={"Accept": "text/event-stream"})
        return await answer.read()


async def test_no_heartbeat_follows_the_end_of_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who lost the token while nothing happened gets nothing any more."""
    monkeypatch.setattr(handlers, "HEARTBEAT_S", 0.0)
    assert await told() == b"retry: 2000\n\n"


async def test_events_that_are_not_wanted_put_off_no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy ends a stream on which nothing comes, whatever is dropped on the way to it."""
    monkeypatch.setattr(handlers, "HEARTBEAT_S", 0.03)
    assert b": still here" in await told("?level=error", Chatter)


async def test_no_event_that_was_missed_follows_the_end_of_a_token() -> None:
    """A client that reads slowly would get a history of thousands after it."""
    text = await told("?after=0-1")
    assert (b"id: 1-0" in text, b"id: 2-0" in text) == (True, False)


async def test_a_client_that_leaves_as_its_stream_begins_is_no_fault_of_ours() -> None:
    """Each left an error with a trace in the log, and counted as a failure of the server that alarms look at."""
    faults: list[BaseException] = []
    history: Any = History(Access(), Silence)
    pages = EventPages(history, history, history, FakeClock(elapsed_ns=0, wall_ms=0))

    async def follow(request: web.Request) -> web.StreamResponse:
        request[ADMIT], request[ASKER], request[PEER] = Access().admit, "reader", "127.0.0.1"
        assert request.transport is not None
        request.transport.close()
        try:
            return await pages.events(request)
        except ConnectionError as error:
            faults.append(error)
            raise

    app = web.Application()
    app.router.add_get("/", follow)
    async with TestClient(TestServer(app)) as client:
        with pytest.raises(ServerDisconnectedError):
            await client.get("/", headers={"Accept": "text/event-stream"})
    assert faults == []


async def test_a_stream_ends_where_redis_refuses_more_of_it() -> None:
    """An answer that was made of the refusal came into the middle of the stream, as bytes of an event."""
    faults: list[BaseException] = []

    class Refusing(History):
        async def run(self, page: list[KeptEvent]) -> list[KeptEvent]:
            if page[0].id != "1-0":
                raise StoreRefusedError("WRONGTYPE")
            return page

    history: Any = Refusing(Access(), Silence)
    pages = EventPages(history, history, history, FakeClock(elapsed_ns=0, wall_ms=0))

    async def follow(request: web.Request) -> web.StreamResponse:
        request[ADMIT], request[ASKER], request[PEER] = Access().admit, "reader", "127.0.0.1"
        try:
            return await pages.events(request)
        except StoreRefusedError as error:
            faults.append(error)
            raise web.HTTPBadGateway from error  # as the route does

    app = web.Application()
    app.router.add_get("/", follow)
    async with TestClient(TestServer(app)) as client:
        text = await (await client.get("/?after=0-1", headers={"Accept": "text/event-stream"})).read()
    assert text.count(b"id: 1-0") == READ_MAX
    assert b"502" not in text
    assert faults == []
