"""Redis is asked seldom, waited for briefly, and believed only while it is fresh."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.roles.web import cluster_snapshot as module
from supervisor.roles.web.cluster_snapshot import FRESH_S, SHOWN_S, Overview, Overviews
from tests.kit.clock import FakeClock

S = 1_000_000_000


class Fake:
    """A reader that answers as told, when told."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.is_closed = False

    async def read(self) -> Overview:
        self.asked += 1
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return Overview((), None, (("asked", self.asked),))

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
async def fake() -> Fake:
    """A reader that answers at once."""
    return Fake()


async def test_many_clients_ask_redis_once(fake: Fake) -> None:
    """Ten monitoring systems must not be ten times the load."""
    shared = Overviews(fake, FakeClock())

    seen = await asyncio.gather(*(shared.get() for _ in range(20)))

    assert fake.asked == 1
    assert all(one is seen[0] is not None for one in seen)
    assert shared.is_up


async def test_a_fresh_look_is_not_repeated_and_an_older_one_is(fake: Fake) -> None:
    """At most one look in five seconds."""
    clock = FakeClock()
    shared = Overviews(fake, clock)
    await shared.get()

    clock.now_ns += int((FRESH_S - 0.1) * S)
    await shared.get()
    assert fake.asked == 1
    clock.now_ns += S
    await shared.get()
    assert fake.asked == 2


@pytest.mark.parametrize("error", [StoreUnavailableError("down"), StoreRefusedError("password")])
async def test_without_redis_there_is_nothing_to_show(fake: Fake, error: Exception) -> None:
    """Numbers from before the outage would look true; and Redis is not hammered while it is away."""
    clock = FakeClock()
    shared = Overviews(fake, clock)
    await shared.get()

    fake.error = error
    clock.now_ns += 6 * S
    assert await shared.get() is None
    assert await shared.get() is None
    assert (fake.asked, shared.is_up) == (2, False)
    fake.error = None
    clock.now_ns += 6 * S
    assert await shared.get() is not None
    assert shared.is_up


async def test_a_slow_redis_is_waited_for_briefly(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last look is shown meanwhile, until it is too old."""
    monkeypatch.setattr(module, "WAIT_S", 0.01)
    clock = FakeClock()
    shared = Overviews(fake, clock)
    first = await shared.get()

    fake.may_answer.clear()
    clock.now_ns += 6 * S
    assert await shared.get() is first
    clock.now_ns += int(SHOWN_S * S)
    assert await shared.get() is None
    assert fake.asked == 2
    await shared.close()
    assert fake.is_closed


async def test_a_redis_that_never_answers_counts_as_away(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that hangs must end, or no later look could begin."""
    monkeypatch.setattr(module, "READ_S", 0.01)
    clock = FakeClock()
    shared = Overviews(fake, clock)
    await shared.get()
    fake.may_answer.clear()
    clock.now_ns += 6 * S

    assert await shared.get() is None
    assert not shared.is_up
    clock.now_ns += 6 * S
    fake.may_answer.set()
    assert await shared.get() is not None


async def test_an_unexpected_error_does_not_end_asking(fake: Fake, monkeypatch: Any) -> None:
    """One broken look must not blind the page for ever."""
    clock = FakeClock()
    shared = Overviews(fake, clock)
    fake.error = ValueError("bug")
    with pytest.raises(ValueError, match="bug"):
        await shared.get()

    fake.error = None
    clock.now_ns += 6 * S
    assert await shared.get() is not None
