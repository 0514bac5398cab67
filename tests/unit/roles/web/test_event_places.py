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
from supervisor.roles.web.events.followers import Followers, Item
from supervisor.roles.web.events.handlers import EventPages, _place
from supervisor.roles.web.responses import ADMIT, ASKER, PEER
from supervisor.store.event_log import READ_MAX, EventPage, KeptEvent
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


def page_of(last_id: str, events: int, others: int = 0) -> EventPage:
    """Return what a read finds: so many events, and others that are none."""
    event = Event("reload_done", "info", "", "", 1, 0, 0, "r1", "agent")
    page = EventPage([KeptEvent(last_id, event)] * events)
    page.last_id, page.entries = last_id, events + others
    return page


class History:
    """Stands for Redis, its events and who follows them: a page, and one more during which the token goes."""

    def __init__(self, access: Access, follower: Callable[[Callable[[], None]], asyncio.Queue[Item]]) -> None:
        self._access = access
        self._follower = follower
        self._left = ["1-0", "2-0"]

    def read(self, **_: Any) -> EventPage:
        """Return the next page."""
        if len(self._left) == 1:
            self._access.end()
        return page_of(self._left.pop(0), READ_MAX)

    async def run(self, page: EventPage) -> EventPage:
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
        self._end, self._place, self._passed_s = end, 0, 0.0
        self._turned_s = asyncio.get_running_loop().time()

    async def get(self) -> Item:
        """Return the next one."""
        loop = asyncio.get_running_loop()
        turned_s, self._turned_s = self._turned_s, loop.time()
        # a pause of the machine counts as one turn
        self._passed_s += min(self._turned_s - turned_s, handlers.HEARTBEAT_S / 10)
        if self._passed_s > 10 * handlers.HEARTBEAT_S:
            self._end()
        turn = loop.create_future()
        loop.call_soon(lambda: turn.done() or turn.set_result(None))
        await turn
        self._place += 1
        return KeptEvent(f"9-{self._place}", Event("reload_done", "info", "", "", 1, 0, 0, "r1", "agent"))


async def told(
    query: str = "",
    follower: Callable[[Callable[[], None]], asyncio.Queue[Item]] = Silence,
    kind: type[History] = History,
) -> bytes:
    """Return all that a follower gets before its stream ends."""
    access = Access()
    history: Any = kind(access, follower)
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


async def test_a_page_with_entries_that_are_no_events_is_not_the_last() -> None:
    """What lay behind it was never sent to who came back after more than a page."""
    asked: list[str] = []

    class Mixed(History):
        def read(self, *, after: str, **_: Any) -> EventPage:
            asked.append(after)
            pages = {
                "0-1": page_of("3-0", 1, READ_MAX - 1),
                "3-0": page_of("5-0", 0, READ_MAX),
                "5-0": page_of("6-0", 1),
            }
            return pages[after]

    text = await told("?after=0-1", kind=Mixed)
    assert (asked, text.count(b"id: 3-0"), text.count(b"id: 6-0")) == (["0-1", "3-0", "5-0"], 1, 1)


async def test_a_new_follower_begins_behind_an_entry_that_is_no_event() -> None:
    """Where that was the newest it was sent everything that Redis keeps."""
    begun: asyncio.Queue[str] = asyncio.Queue()

    class Redis:
        key = "log"

        def read(self, **_: Any) -> EventPage:
            return page_of("9-0", 0, 1)

        async def run(self, page: EventPage) -> EventPage:
            return page

        async def listen(self, _key: str, last_id: str, _block_s: float) -> list[Any]:
            begun.put_nowait(last_id)
            return await asyncio.Future()

    store: Any = Redis()
    followers = Followers(store, store)
    async with asyncio.timeout(30), followers.follow("reader", "127.0.0.1"):
        assert await begun.get() == "9-0"


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
        async def run(self, page: EventPage) -> EventPage:
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
    assert b"Bad Gateway" not in text
    assert faults == []
