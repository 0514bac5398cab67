"""Events over HTTP: a list as JSON, and a stream of server-sent events that goes on where its client left off.

Guarantees
    ``Last-Event-ID`` (or ``after``) resumes without a gap as far as Redis keeps events, and without a repetition.
    A stream sends something at least every ``HEARTBEAT_S``, ends after ``STREAM_S``, and is cut when its client
    does not read for ``SEND_S``. Nothing is sent to one that is not admitted any more.
    Streams have places of their own, so they keep no probe out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

import msgspec
from aiohttp import web

from supervisor.clock import Clock
from supervisor.core.durations import parse_duration
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.events import LEVELS
from supervisor.core.units import SECOND_NS
from supervisor.roles.web.events.followers import Followers, Item
from supervisor.roles.web.responses import ADMIT, ASKER, HEADERS, PEER, bad_request, json_response, limit_of
from supervisor.store.client.sync_client import AsyncStore
from supervisor.store.event_log import EVENT_ID, READ_MAX, EventLog, EventPage, KeptEvent
from supervisor.telemetry.controls import without_controls

HEARTBEAT_S = 10.0
STREAM_S = 3600.0
SEND_S = 10.0
_STREAM_HEADERS = {**HEADERS, "Content-Type": "text/event-stream; charset=utf-8"}
RETRY_MS = 2000
"""How long a client is asked to wait before it comes back."""


class EventPages:
    """The handler of /api/v1/events."""

    def __init__(self, store: AsyncStore, events: EventLog, followers: Followers, clock: Clock) -> None:
        self._store = store
        self._events = events
        self._followers = followers
        self._clock = clock
        self.as_stream: Callable[[web.Request], AbstractContextManager[None]] = lambda _request: nullcontext()
        """Lets a request take long while in the block."""

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Answer with events: JSON, or a stream for clients that accept text/event-stream."""
        wanted = _Wanted.of(request)
        if "text/event-stream" in request.headers.get("Accept", ""):
            if request.method == "HEAD":  # the header alone, for which nobody needs a place
                return web.Response(headers=_STREAM_HEADERS)
            return await self._stream(request, wanted)
        since_ms = 0 if wanted.since_s is None else self._clock.wall_ms() - int(wanted.since_s * 1000)
        found = await self._read(wanted.after, since_ms=max(0, since_ms), count=wanted.count)
        rows = [event.row() for event in found if wanted.admits(event)]
        return json_response({"events": rows, "last": found.last_id if found.entries else wanted.after or None})

    async def _read(self, after: str, *, since_ms: int = 0, count: int = READ_MAX) -> EventPage:
        return await self._store.run(self._events.read(after=after, since_ms=since_ms, count=count))

    async def _stream(self, request: web.Request, wanted: _Wanted) -> web.StreamResponse:
        async with self._followers.follow(request[ASKER], request[PEER]) as queue:
            with self.as_stream(request):
                return await self._tell(request, wanted, queue)

    async def _tell(self, request: web.Request, wanted: _Wanted, queue: asyncio.Queue[Item]) -> web.StreamResponse:
        missed = await self._read(wanted.after) if wanted.after else EventPage()
        response = _EventStream(headers=_STREAM_HEADERS)
        response.admit = request[ADMIT]
        until_ns = self._clock.elapsed_ns() + int(STREAM_S * SECOND_NS)
        # The client does not read, is gone or not admitted any more, or Redis gives no more: it comes back.
        with suppress(TimeoutError, ConnectionError, web.HTTPException, StoreUnavailableError, StoreRefusedError):
            await response.prepare(request)
            await response.send(f"retry: {RETRY_MS}\n\n".encode())
            while missed.entries == READ_MAX:  # it was away for long; what comes meanwhile waits in the queue
                await response.send_events(missed, wanted)
                missed = await self._read(missed.last_id)
            await response.send_events(missed, wanted)
            last_id = missed.last_id
            while self._clock.elapsed_ns() < until_ns:
                response.admit()  # also where nothing that comes is wanted, so that nothing is sent
                try:
                    async with asyncio.timeout_at(response.sent_s + HEARTBEAT_S):
                        event = await queue.get()
                except TimeoutError:
                    await response.send(b": still here\n\n")
                    continue
                if event is None:
                    break
                if _place(event.id) > _place(last_id):
                    await response.send_events([event], wanted)
                    last_id = event.id
        return response


class _EventStream(web.StreamResponse):
    """A stream whose client is admitted anew before everything that is sent."""

    admit: Callable[[], None]
    sent_s = 0.0
    """When something was sent last, by the clock of the loop: events that are not wanted put off no heartbeat."""

    async def send(self, text: bytes) -> None:
        """Send ``text``, if the client is still admitted; raise the refusal if not."""
        self.admit()
        async with asyncio.timeout(SEND_S):
            await self.write(text)
        self.sent_s = asyncio.get_running_loop().time()

    async def send_events(self, events: list[KeptEvent], wanted: _Wanted) -> None:
        """Send those of ``events`` that are wanted."""
        for event in events:
            if wanted.admits(event):
                body = without_controls(msgspec.json.encode(event.row()))
                await self.send(b"id: %b\nevent: %b\ndata: %b\n\n" % (event.id.encode(), _name(event), body))


class _Wanted(msgspec.Struct, frozen=True):
    after: str
    since_s: float | None
    count: int
    level: str
    reasons: frozenset[str]

    @classmethod
    def of(cls, request: web.Request) -> _Wanted:
        """Read it; raise a 400 that names the fault."""
        query = request.query
        after = request.headers.get("Last-Event-ID") or query.get("after", "")
        if after and not (EVENT_ID.fullmatch(after) and max(_place(after)) < 1 << 64):
            raise bad_request("after", after, "it is the id of an event, like 1700000000000-0")
        level = query.get("level", LEVELS[0])
        if level not in LEVELS:
            raise bad_request("level", level, f"one of {', '.join(LEVELS)}")
        since_s = None
        if "since" in query:
            try:
                since_s = parse_duration(query["since"])
            except ValueError as error:
                raise bad_request("since", query["since"], str(error)) from error
        return cls(after, since_s, limit_of(request, most=READ_MAX), level, frozenset(query.getall("reason", [])))

    def admits(self, kept: KeptEvent) -> bool:
        """Return whether it was asked for."""
        event = kept.event
        is_bad_enough = event.level in LEVELS and LEVELS.index(event.level) >= LEVELS.index(self.level)
        return is_bad_enough and (not self.reasons or event.reason in self.reasons)


def _name(event: KeptEvent) -> bytes:
    """Return the reason as the name of a server-sent event, which must be one line."""
    return event.event.reason.encode("ascii", "replace").replace(b"\n", b" ").replace(b"\r", b" ")


def _place(event_id: str) -> tuple[int, int]:
    at, _, number = event_id.partition("-")
    return int(at or 0), int(number or 0)
