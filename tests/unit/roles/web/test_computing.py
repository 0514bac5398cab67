"""What handlers compute beside the loop of the web child."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from supervisor.roles.web.api.base import ApiContext, ApiHandlers
from supervisor.settings.sections.models import Settings


async def test_a_computation_ends_with_its_request() -> None:
    """An answer that took too long was given up; the next request would wait behind what nobody reads."""
    handlers = ApiHandlers(cast("ApiContext", SimpleNamespace(keys=None, settings=Settings())))
    begun, loop = asyncio.Event(), asyncio.get_running_loop()

    def endless() -> Iterator[Any]:
        while True:
            loop.call_soon_threadsafe(begun.set)
            yield threading.current_thread().name

    asked = asyncio.create_task(handlers._computed(endless()))
    await begun.wait()
    asked.cancel()
    await asyncio.wait([asked])
    (beside,) = await handlers._computed(threading.current_thread().name for _ in "1")
    assert beside.startswith("compute")
