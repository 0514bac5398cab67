"""Order in which requests begin: pages wait for each other, and health for none of them."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from supervisor.roles.web.handlers import Pages
from supervisor.settings.sections.models import Settings

PAGES = 20


async def test_one_page_begins_in_a_turn_of_the_loop() -> None:
    """A probe that comes among many requests waits for one of them, not for all."""
    child: Any = SimpleNamespace(settings=Settings.model_validate({"cluster": "c1"}), clock=None)
    nothing: Any = None
    pages = Pages(child, nothing)
    begun: list[int] = []
    turns: list[int] = []
    loop = asyncio.get_running_loop()

    async def page(number: int) -> None:
        await pages.turn()
        begun.append(number)

    def count() -> None:
        turns.append(len(begun))
        if len(begun) < PAGES:
            loop.call_soon(count)

    count()
    await asyncio.gather(*(page(number) for number in range(PAGES)))

    assert begun == list(range(PAGES))
    assert max(later - earlier for earlier, later in pairwise(turns)) == 1
