"""The clients: one synchronous, one asynchronous, the same calls.

Guarantees
    A command is sent once. When its reply is lost the caller is told, and decides.
    Every wait has a bound on this side, also a blocking read on a server that is gone.
    Errors are ``StoreUnavailableError`` (try again), ``StoreRefusedError`` (a person must
    act) or ``FencedError``, and name the server without its credentials.

Does not guarantee
    That a call which raised ``StoreUnavailableError`` had no effect. That is why every
    script can be sent twice.

Each client has two connections, made when first used and again after any error: one for
calls, and one for blocking reads, so that an acknowledgement never waits behind a block.
A client serves one thread, and is made after the fork that it is used in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

import redis
import redis.asyncio
from redis.connection import SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError

from supervisor.clock import Clock
from supervisor.settings.models import RedisSettings
from supervisor.store.link import BLOCK_MARGIN_S, address, entries, fenced, is_stale_master, options, translate
from supervisor.store.scripts import Call, script

T = TypeVar("T")
_ASYNC_CLASS = {
    SSLConnection: redis.asyncio.SSLConnection,
    UnixDomainSocketConnection: redis.asyncio.UnixDomainSocketConnection,
}


def _is_over(link: Any) -> bool:
    """Return whether an idle connection ended: nothing was asked, so there is nothing else to read."""
    try:
        return bool(link.can_read(0))
    except RedisConnectionError:
        return True


class Store:
    """Synchronous client."""

    def __init__(self, raw: redis.Redis, *, timeout_s: float = 2.0) -> None:
        """Wrap a client that exists. Does no I/O."""
        self.raw = raw
        self.where = address(raw.connection_pool.connection_kwargs)
        self._timeout_s = timeout_s
        self._call_link: Any = raw.connection_pool.make_connection()
        self._block_link: Any = None

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        settings: RedisSettings,
        name: str,
        timeout_s: float | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Return a client of the server at ``url``. Connects when first used.

        Args:
            url: redis://, rediss:// or unix://.
            settings: credentials, TLS files and timeouts.
            name: shown by CLIENT LIST, as ``tenure:<name>``.
            timeout_s: bound of each call; default: ``command_timeout``.
            clock: unused by this client; kept so that both are made alike.
        """
        del clock
        bound = settings.command_timeout_s if timeout_s is None else timeout_s
        kwargs = options(url, settings, client_name=f"tenure:{name}", timeout_s=bound)
        return cls(redis.Redis(connection_pool=redis.ConnectionPool(**kwargs)), timeout_s=bound)

    def __repr__(self) -> str:
        """Show the address only: a connection's arguments hold the password."""
        return f"<{type(self).__name__} {self.where}>"

    def run(self, call: Call[T], *, timeout_s: float | None = None) -> T:
        """Send ``call`` and return its parsed reply.

        Raises:
            StoreUnavailableError: no answer, or not now. The call may have had its effect.
            StoreRefusedError: the server said no.
            FencedError: the call carried a term that is not the current one.
        """
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        item = script(call.script)
        tail = (len(call.keys), *call.keys, *call.args)
        try:
            try:
                reply = self._send(self._call_link, wait_s, "EVALSHA", item.sha, *tail)
            except NoScriptError:
                reply = self._send(self._call_link, wait_s, "EVAL", item.source, *tail)
        except ResponseError as error:
            raise (fenced(error, call) or translate(error, where=self.where, operation=call.script)) from error
        except (RedisError, OSError) as error:
            raise translate(error, where=self.where, operation=call.script) from error
        return call.parse(reply)

    def listen(self, key: str, last_id: str, block_s: float) -> list[tuple[str, dict[str, str]]]:
        """Return stream entries after ``last_id``, waiting at most ``block_s`` for the first."""
        block_ms = max(1, round(block_s * 1000))  # 0 would mean for ever
        return entries(self._block(block_s, "XREAD", "COUNT", 100, "BLOCK", block_ms, "STREAMS", key, last_id))

    def ring(self, keys: Sequence[str], block_s: float) -> str | None:
        """Take one token from the first of ``keys`` that has one and return its key; None after ``block_s``."""
        reply = self._block(block_s, "BLPOP", *keys, f"{max(0.001, block_s):.3f}")
        return reply[0].decode() if reply else None

    def ping(self) -> None:
        """Return if the server answers."""
        self.command("PING")

    def command(self, *parts: str | int) -> Any:
        """Send a plain command and return the raw reply. For start-up checks and diagnosis."""
        try:
            return self._send(self._call_link, self._timeout_s, *parts)
        except (RedisError, OSError) as error:
            raise translate(error, where=self.where, operation=str(parts[0])) from error

    def close(self) -> None:
        """Drop both connections. The client may be used again."""
        for link in (self._call_link, self._block_link):
            if link is not None:
                link.disconnect()

    def _block(self, block_s: float, *parts: str | int) -> Any:
        if self._block_link is None:
            self._block_link = self.raw.connection_pool.make_connection()
        try:
            return self._send(self._block_link, block_s + BLOCK_MARGIN_S, *parts)
        except (RedisError, OSError) as error:
            raise translate(error, where=self.where, operation=str(parts[0])) from error

    @staticmethod
    def _send(link: Any, wait_s: float, *parts: Any) -> Any:
        try:
            if link.is_connected and _is_over(link):
                link.disconnect()
            link.send_command(*parts)
            return link.read_response(timeout=wait_s)
        except ResponseError as error:
            if is_stale_master(error):
                link.disconnect()  # the name may lead to another server now
            raise  # else keep it: a whole reply was read, so the connection is in step
        except BaseException:
            link.disconnect()
            raise


class AsyncStore:
    """Asynchronous client. Calls of several tasks go one after the other."""

    def __init__(self, raw: redis.asyncio.Redis, *, timeout_s: float = 2.0) -> None:
        """Wrap a client that exists. Does no I/O."""
        self.raw = raw
        self.where = address(raw.connection_pool.connection_kwargs)
        self._timeout_s = timeout_s
        pool: Any = raw.connection_pool
        self._call_link: Any = pool.make_connection()
        self._block_link: Any = pool.make_connection()
        self._call_turn = asyncio.Lock()
        self._block_turn = asyncio.Lock()

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        settings: RedisSettings,
        name: str,
        timeout_s: float | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Return a client of the server at ``url``; see ``Store.connect``."""
        del clock
        bound = settings.command_timeout_s if timeout_s is None else timeout_s
        kwargs = options(url, settings, client_name=f"tenure:{name}", timeout_s=bound)
        kind = kwargs.pop("connection_class", None)
        # Every wait is bounded here by asyncio.timeout; a second timer per read would cost and decide nothing.
        kwargs |= {"socket_timeout": None}
        kwargs |= {"connection_class": _ASYNC_CLASS[kind]} if kind is not None else {}
        return cls(redis.asyncio.Redis(connection_pool=redis.asyncio.ConnectionPool(**kwargs)), timeout_s=bound)

    def __repr__(self) -> str:
        """Show the address only: a connection's arguments hold the password."""
        return f"<{type(self).__name__} {self.where}>"

    async def run(self, call: Call[T], *, timeout_s: float | None = None) -> T:
        """Send ``call`` and return its parsed reply; see ``Store.run``."""
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        item = script(call.script)
        tail = (len(call.keys), *call.keys, *call.args)
        try:
            async with self._call_turn:
                try:
                    reply = await self._send(self._call_link, wait_s, "EVALSHA", item.sha, *tail)
                except NoScriptError:
                    reply = await self._send(self._call_link, wait_s, "EVAL", item.source, *tail)
        except ResponseError as error:
            raise (fenced(error, call) or translate(error, where=self.where, operation=call.script)) from error
        except (RedisError, OSError) as error:
            raise translate(error, where=self.where, operation=call.script) from error
        return call.parse(reply)

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
            async with self._call_turn:
                return await self._send(self._call_link, self._timeout_s, *parts)
        except (RedisError, OSError) as error:
            raise translate(error, where=self.where, operation=str(parts[0])) from error

    async def close(self) -> None:
        """Drop both connections. The client may be used again."""
        for link in (self._call_link, self._block_link):
            await link.disconnect()

    async def _block(self, block_s: float, *parts: str | int) -> Any:
        try:
            async with self._block_turn:
                return await self._send(self._block_link, block_s + BLOCK_MARGIN_S, *parts)
        except (RedisError, OSError) as error:
            raise translate(error, where=self.where, operation=str(parts[0])) from error

    @staticmethod
    async def _send(link: Any, wait_s: float, *parts: Any) -> Any:
        try:
            async with asyncio.timeout(wait_s):
                if link.is_connected and await link.can_read():
                    await link.disconnect(nowait=True)  # see _is_over
                await link.connect()
                await link.send_command(*parts)
                return await link.read_response()
        except ResponseError as error:
            if is_stale_master(error):
                await link.disconnect(nowait=True)  # the name may lead to another server now
            raise  # else keep it: a whole reply was read, so the connection is in step
        except BaseException:
            with suppress(RedisError, OSError):
                await link.disconnect(nowait=True)
            raise
