"""A wait that is cancelled ends by that, whatever arrives at the same moment."""

from __future__ import annotations

import asyncio
import random

from tests.kit.servers import Server

ROUNDS = 60


async def test_a_cancellation_that_comes_together_with_the_reply_is_heard(server: Server) -> None:
    """A library that reads the reply may lose it; then a worker that was told to leave would listen on."""
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    store, raw = server.async_store(), server.raw()
    for _ in range(ROUNDS):
        waiting = asyncio.create_task(store.ring(["bell"], 30.0))
        await asyncio.sleep(draw.uniform(0, 0.002))
        raw.rpush("bell", "1")
        for _ in range(draw.randrange(6)):
            await asyncio.sleep(0)
        if not waiting.done():
            waiting.cancel()
            await asyncio.wait({waiting})
            assert waiting.cancelled(), seed
        raw.delete("bell")
    await store.close()
    raw.close()
