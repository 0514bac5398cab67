"""Calls of many tasks over the one connection of an asynchronous client, with a clock that the test drives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import fakeredis
import pytest

from supervisor.core.errors import StoreUnavailableError
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client import async_client
from supervisor.store.client.async_client import AsyncStore
from supervisor.store.keys import Keys
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.reads import QueueReads

TIMEOUT_S, CALLS = 2.0, 20


class SlowRedis:
    """A server whose answers take long, by the clock of the running loop, which moves while one is awaited."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        passes: Callable[[], float] = loop.time
        self._ahead_s = self._takes_s = 0.0
        monkeypatch.setattr(loop, "time", lambda: passes() + self._ahead_s)
        self.store = AsyncStore(fakeredis.FakeAsyncRedis(protocol=2), timeout_s=TIMEOUT_S)
        self._send = self.store._call_link.send_packed_command
        monkeypatch.setattr(self.store._call_link, "send_packed_command", self._late)

    async def _late(self, *parts: Any, **options: Any) -> None:
        self._ahead_s += self._takes_s
        loop = asyncio.get_running_loop()
        for _ in range(5):  # timers that are due by then go off
            turn = loop.create_future()
            loop.call_soon(lambda turn=turn: turn.done() or turn.set_result(None))
            await turn
        await self._send(*parts, **options)

    async def ask_all(self, takes_s: float, ask: Callable[[], Awaitable[Any]] | None = None) -> list[Any]:
        """Return what each of many calls at once ends with."""
        ask = ask or self.store.ping
        await ask()  # connected
        self._takes_s = takes_s
        async with asyncio.timeout(1000):
            return await asyncio.gather(*(ask() for _ in range(CALLS)), return_exceptions=True)


async def test_calls_that_wait_for_others_have_time_as_long_as_redis_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 3,000 at once, a millisecond each, half failed as unanswered that never were sent."""
    redis = SlowRedis(monkeypatch)
    assert await redis.ask_all(TIMEOUT_S / 4) == [None] * CALLS


async def test_a_redis_that_falls_silent_fails_all_that_wait_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, the last of thousands would be told in an hour."""
    redis = SlowRedis(monkeypatch)
    begun_s = asyncio.get_running_loop().time()
    ends = await redis.ask_all(TIMEOUT_S + 0.1)

    assert {(type(end), str(end).rpartition(": ")[2]) for end in ends} == {(StoreUnavailableError, "no answer in time")}
    assert asyncio.get_running_loop().time() - begun_s < CALLS / 4 * TIMEOUT_S


async def test_no_call_waits_for_its_turn_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its error says that others came first, not that Redis did not answer."""
    monkeypatch.setattr(async_client, "TURN_S", 2 * TIMEOUT_S)
    redis = SlowRedis(monkeypatch)
    ends = await redis.ask_all(TIMEOUT_S / 4)

    failed = [end for end in ends if end is not None]
    assert ends == [None] * (CALLS - len(failed)) + failed
    assert 0 < len(failed) < CALLS - 4
    assert all(isinstance(end, StoreUnavailableError) for end in failed)
    assert {str(end).rpartition(": ")[2] for end in failed} == {"calls of other tasks came before this one for 4 s"}


async def test_a_call_of_a_producer_waits_for_its_turn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its second try is for a connection that died while idle: it would line up behind all others again."""
    monkeypatch.setattr(async_client, "TURN_S", 2 * TIMEOUT_S)
    redis = SlowRedis(monkeypatch)
    producer = Producer(RedisSettings(), open_async_store=lambda: redis.store)
    names = QueueReads(Keys("shop")).names()
    ends = await redis.ask_all(TIMEOUT_S / 4, lambda: producer.run_async(names))

    assert 0 < ends.count([]) < CALLS / 2 + 1  # as many as are answered while they may wait
