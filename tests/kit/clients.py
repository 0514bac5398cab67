"""Both clients behind one face, so that each fault is shown for both."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest
import uvloop

from supervisor.clock import SystemClock
from supervisor.core.effects import Call
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import AsyncStore, Store
from supervisor.store.election.leases import LeaseCode, Leases
from supervisor.store.keys import Keys

T = TypeVar("T")
KEYS = Keys("faults")
CALL = Leases(KEYS).view()
SLACK_S = 10.0  # what a busy machine may add to a bound
_CLOCK = SystemClock()


class Blocking:
    """The asynchronous client, driven to the end of each call."""

    def __init__(self, runner: asyncio.Runner, store: AsyncStore) -> None:
        self._runner = runner
        self.store = store

    def _wait(self, todo: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(todo)

    def run(self, call: Call[T], *, timeout_s: float | None = None) -> T:
        return self._wait(self.store.run(call, timeout_s=timeout_s))

    def ring(self, keys: Sequence[str], block_s: float) -> str | None:
        return self._wait(self.store.ring(keys, block_s))

    def command(self, *parts: str | int) -> Any:
        return self._wait(self.store.command(*parts))

    def ping(self) -> None:
        self._wait(self.store.ping())

    @property
    def where(self) -> str:
        return self.store.where

    def close(self) -> None:
        self._wait(self.store.close())


class Clients:
    """Makes clients of one kind, "blocking", "asynchronous" or "uvloop", and closes them with the test."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop if kind == "uvloop" else None)
        self._made: list[Any] = []

    def __call__(self, url: str, *, timeout_s: float = 20.0, name: str = "faults:test", **settings: Any) -> Any:
        follow = settings.pop("follow", None)
        options: dict[str, Any] = {
            "settings": settings.pop("redis", None) or RedisSettings(**settings), "name": name,
            "timeout_s": timeout_s, "follow": follow
        }  # fmt: skip
        if self.kind == "blocking":
            store: Any = Store.connect(url, **options)
        else:
            store = Blocking(self.runner, self.runner.run(_connect(url, options)))
        self._made.append(store)
        return store

    def let_the_loop_read(self) -> None:
        """An event loop learns of a closed connection when it runs."""
        for _ in range(3):
            self.runner.run(asyncio.sleep(0))

    def close(self) -> None:
        for store in self._made:
            store.close()
        self.runner.close()


async def _connect(url: str, options: dict[str, Any]) -> AsyncStore:
    return AsyncStore.connect(url, **options)


def works(store: Any) -> None:
    """Fail unless a script runs, on the client that had the trouble."""
    assert store.run(CALL, timeout_s=20.0).code is LeaseCode.VIEW


def rings(store: Any, bell: str) -> None:
    """Fail unless a wait for a bell ends with it; an unheard one ends by a margin of 0.25 s, short for a busy machine."""
    store.command("RPUSH", bell, "x")
    assert store.ring([bell], 20) is not None


def unavailable(store: Any, why: str, *, where: str, bound_s: float = 20.0) -> str:
    """Fail unless a call says that it is worth a retry, within its bound; return the message."""
    return _fails(store, StoreUnavailableError, why, where, bound_s)


def refused(store: Any, why: str, *, where: str) -> str:
    """Fail unless a call says that a person must act; return the message."""
    return _fails(store, StoreRefusedError, why, where, 20.0)


def _fails(store: Any, kind: type[Exception], why: str, where: str, bound_s: float) -> str:
    started_ns = _CLOCK.elapsed_ns()
    with pytest.raises(kind, match=why) as caught:
        store.run(CALL, timeout_s=bound_s)
    assert (_CLOCK.elapsed_ns() - started_ns) / 1e9 < bound_s + SLACK_S
    chain = f"{caught.value} {caught.value.__cause__!r}"
    assert "s3cret" not in chain
    assert where in str(caught.value)
    return str(caught.value)
