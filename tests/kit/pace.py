"""The pace of calls in a driven world: a loop that waits for nothing calls Redis as fast as it answers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from supervisor.core.units import SECOND_NS
from supervisor.testing.world import World

CALLS_MAX = 100
"""Calls of one script within a second; without a fault 35 at most, over all tests of schedules and the simulation."""


def limit_pace(world: World) -> None:
    """Fail as soon as actors of ``world`` call one script more than CALLS_MAX times within a second of it."""
    execute = world.server.execute
    calls: Counter[tuple[int, str]] = Counter()

    def counted(call: Any) -> Any:
        now = world.now_ns // SECOND_NS, call.script
        calls[now] += 1
        assert calls[now] <= CALLS_MAX, f"{call.script} is called in a loop: {CALLS_MAX} times within a second"
        return execute(call)

    world.server.execute = counted  # type: ignore[method-assign]
