"""A program that enqueues in one event loop after the other, as a command or a request handler with ``asyncio.run`` does."""

from __future__ import annotations

import asyncio
import gc
import warnings
import weakref
from pathlib import Path

import pytest

from tests.integration.store.producer.shop import Shop
from tests.kit.servers import REAL


def test_a_connection_ends_with_its_event_loop(shop: Shop) -> None:
    """Each loop left one, for good, until the program could open no file any more."""
    asyncio.run(shop.producer.enqueue_async("report", {"month": 7}))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        asyncio.run(shop.producer.enqueue_async("report", {"month": 7}))

    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.parametrize(
    "server", [REAL], indirect=True
)  # fakeredis keeps its end of each connection, which knows the loop
def test_a_loop_that_was_only_closed_is_given_up_when_the_next_one_asks(shop: Shop) -> None:
    """Nothing ends the generators of such a loop, and a connection cannot be closed without it."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(shop.producer.enqueue_async("report", {"month": 7}))
    loop.close()
    ended = weakref.ref(loop)
    del loop
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(shop.producer.enqueue_async("report", {"month": 7}))
        gc.collect()

    assert ended() is None


def test_a_loop_that_closed_its_connection_gets_another(shop: Shop) -> None:
    """And its end is no error."""

    async def twice() -> set[str]:
        first = await shop.producer.enqueue_async("report", {"month": 7})
        await shop.producer.close_async()
        return {first, await shop.producer.enqueue_async("report", {"month": 7})}

    assert len(asyncio.run(twice(), debug=True)) == 2
