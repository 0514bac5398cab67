"""The asynchronous client; its guarantees are those of store/client/sync_client.py.

Calls of several tasks go one after the other. The bound of each counts from when it was asked, or from the last answer
to one before it, if later: while Redis answers, a call waits for its turn as long as that takes, ``TURN_S`` at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import hiredis
import redis.asyncio
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, NoScriptError, RedisError, ResponseError

from supervisor.clock import Clock
from supervisor.settings.sections.redis_url import split_address
from supervisor.store.client import threads
from supervisor.store.client.base import BLOCK_MARGIN_S, StoreClient
from supervisor.store.client.connections import connection
from supervisor.store.client.dialing import Dialler
from supervisor.store.client.replies import (
    DURABLE,
    answered,
    durably,
    entries,
    fenced,
    is_stale_master,
    parsed,
    replicated,
)
from supervisor.store.routing.route import LOOK_S, MOVED_ON, Route
from supervisor.store.routing.topology import is_master
from supervisor.store.scripts import Call, script

T = TypeVar("T")
TURN_S = 60.0
"""How long calls of other tasks may keep one from being sent, while they are answered."""


class TurnError(RedisConnectionError):
    """A call was not sent, because those of other tasks came before it for ``TURN_S``."""


class AsyncStore(StoreClient):
    """Asynchronous client. Calls of several tasks go one after the other."""

    def __init__(self, raw: redis.asyncio.Redis, **options: Any) -> None:
        """Wrap a client that exists, as ``StoreClient`` does. Does no I/O."""
        super().__init__(raw, **options)
        self.raw = raw
        self._call_turn = asyncio.Lock()
        self._block_turn = asyncio.Lock()
        self._answered_s = 0.0
        """When the last call was answered, by the clock of the loop."""

    @staticmethod
    def _raw_of(kwargs: dict[str, Any], route: Route | None, clock: Clock | None) -> Any:
        del route  # see _watched
        # Every wait is bounded here by asyncio.timeout; a second timer per read would cost and decide nothing.
        kwargs |= connection(kwargs.get("connection_class"), Dialler(clock), is_async=True) | {"socket_timeout": None}
        return redis.asyncio.Redis(connection_pool=redis.asyncio.ConnectionPool(**kwargs))

    async def run(self, call: Call[T], *, timeout_s: float | None = None) -> T:
        """Send ``call`` and return its parsed reply; see ``Store.run``."""
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        item = script(call.script)
        tail = (len(call.keys), *call.keys, *call.args)
        durable_ms = self._durable_ms if call.script in DURABLE else 0
        try:
            async with self._turn(wait_s):
                try:
                    replies = await self._send(
                        self._call_link, wait_s, "EVALSHA", item.sha, *tail, durable_ms=durable_ms
                    )
                except NoScriptError:
                    replies = await self._send(
                        self._call_link, wait_s, "EVAL", item.source, *tail, durable_ms=durable_ms
                    )
            reply = replicated(replies, where=self.where, operation=call.script, bound_ms=durable_ms)
        except (RedisError, OSError) as error:
            raise (fenced(error, call) or self._meaning(error, call.script)) from error
        return parsed(call, reply, where=self.where)

    async def listen(self, key: str, last_id: str, block_s: float) -> list[tuple[str, dict[str, str]]]:
        """Return stream entries after ``last_id``, waiting at most ``block_s`` for the first."""
        block_ms = max(1, round(block_s * 1000))  # 0 would mean for ever
        return entries(await self._block(block_s, "XREAD", "COUNT", 100, "BLOCK", block_ms, "STREAMS", key, last_id))

    async def ring(self, keys: Sequence[str], block_s: float) -> str | None:
        """Take one token from the first of ``keys`` that has one and return its key; None after ``block_s``."""
        reply = await self._block(block_s, "BLPOP", *keys, f"{max(0.001, block_s):.3f}")
        return reply[0].decode() if reply else None

    async def ping(self) -> None:
        """Return if the server answers."""
        await self.command("PING")

    async def command(self, *parts: str | int) -> Any:
        """Send a plain command and return the raw reply."""
        try:
            async with self._turn(self._timeout_s):
                return (await self._send(self._call_link, self._timeout_s, *parts))[0]
        except (RedisError, OSError) as error:
            raise self._meaning(error, str(parts[0])) from error

    async def close(self) -> None:
        """Drop both connections. The client may be used again."""
        for link in (self._call_link, self._block_link):
            with suppress(RedisError, OSError):  # a peer that does not take part in the end of a connection
                await link.disconnect()
        if self._route is not None:
            self._route.close()

    async def _block(self, block_s: float, *parts: str | int) -> Any:
        bound_s = block_s + BLOCK_MARGIN_S
        try:
            async with asyncio.timeout(bound_s), self._block_turn:
                return (await self._send(self._block_link, bound_s, *parts))[0]
        except (RedisError, OSError) as error:
            raise self._meaning(error, str(parts[0])) from error

    @asynccontextmanager
    async def _turn(self, wait_s: float) -> AsyncIterator[None]:
        """Wait for the turn of a call, and bound it. A silent Redis fails all that wait, not one after the other."""
        asked_s = asyncio.get_running_loop().time()
        await self._take_turn(asked_s, wait_s)
        try:
            async with asyncio.timeout_at(max(asked_s, self._answered_s) + wait_s):
                yield
        finally:
            self._call_turn.release()

    async def _take_turn(self, asked_s: float, wait_s: float) -> None:
        """Wait for the turn of a call for as long as those before it are answered."""
        loop = asyncio.get_running_loop()
        until_s = asked_s + TURN_S
        looking: asyncio.TimerHandle

        def look() -> None:
            nonlocal looking
            due_s = min(self._answered_s + wait_s, until_s)
            if due_s > loop.time():
                looking = loop.call_at(due_s, look)
            else:
                bound.reschedule(due_s)

        try:
            async with asyncio.timeout(None) as bound:
                looking = loop.call_at(asked_s + wait_s, look)
                try:
                    await self._call_turn.acquire()
                finally:
                    looking.cancel()
        except TimeoutError as error:
            if loop.time() < until_s:
                raise
            raise TurnError(f"calls of other tasks came before this one for {TURN_S:g} s") from error

    async def _send(self, link: Any, wait_s: float, *parts: Any, durable_ms: int = 0) -> list[Any]:
        task = asyncio.current_task()
        cancellations = task.cancelling() if task is not None else 0
        try:
            await self._follow(link, wait_s)
            if link.is_connected and await link.can_read():
                await link.disconnect(nowait=True)  # see Store: an idle connection ended
            if not link.is_connected:
                link.socket_connect_timeout = wait_s if self._connect_s is None else min(wait_s, self._connect_s)
                async with asyncio.timeout(self._timeout_s):  # for the greeting too, however long the call may take
                    await self._watched(self._open(link))
            replies = await self._watched(self._exchange(link, parts, durable_ms))
        except ResponseError as error:
            if is_stale_master(error):
                await self._drop(link)  # the name may lead to another server now
            raise  # else keep it: a whole reply was read, so the connection is in step
        except BaseException:
            await self._drop(link)
            raise
        if task is not None and task.cancelling() > cancellations:
            raise asyncio.CancelledError  # a library lost it, because it came together with the reply
        return replies

    async def _exchange(self, link: Any, parts: Sequence[Any], durable_ms: int) -> list[Any]:
        commands = durably(parts, durable_ms) if durable_ms else [parts]
        # The client's own packing is Python, and copies all that it has packed so far for each argument.
        await link.send_packed_command([hiredis.pack_command(tuple(command)) for command in commands])
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await link.read_response())
            except ResponseError as error:
                replies.append(error)  # the reply to WAIT comes all the same, and must be read
        if link is self._call_link:
            self._answered_s = asyncio.get_running_loop().time()
        return answered(replies)

    async def _watched(self, talk: Coroutine[Any, Any, T]) -> T:
        """Do ``talk``; give up on a server once the agent has found another, see store/client/replies.py."""
        if self._route is None or self._route.is_search:
            return await talk
        talking = asyncio.ensure_future(talk)
        generation = self._route.generation()
        try:
            while not (await asyncio.wait({talking}, timeout=LOOK_S))[0]:
                if self._route.generation() != generation:
                    raise RedisConnectionError(MOVED_ON)
            return talking.result()
        finally:
            if not talking.done():
                talking.cancel()
                await asyncio.wait({talking})

    async def _open(self, link: Any) -> None:
        await link.connect()
        if self._route is None:
            return
        try:
            await link.send_command("ROLE")
            role = await link.read_response()
        except NoPermissionError:
            return  # then the first write tells
        if not is_master(role):
            raise RedisConnectionError("it is a replica now")

    async def _follow(self, link: Any, bound_s: float) -> None:
        """Drop this connection if the route points elsewhere since it was last used.

        The other one is dropped by its own next call: a task may be waiting on it.
        """
        route = self._route
        if route is None:
            return
        if route.generation() != self._generation or self._generation == 0:
            search = partial(route.find, bound_s)
            endpoint = await threads.result_of(search, "search") if route.is_search else search()
            self.where, self._generation = endpoint.address, endpoint.generation
        host, port = split_address(self.where)
        if (link.host, link.port) != (host, port):
            await link.disconnect(nowait=True)
            link.host, link.port = host, port

    async def _drop(self, link: Any) -> None:
        if self._route is not None:
            self._route.lost()
        with suppress(RedisError, OSError):
            await link.disconnect(nowait=True)
