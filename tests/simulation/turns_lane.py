"""A worker's way to the server, and everything that can go wrong with one call on it."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Any

from supervisor.core.effects import Call
from supervisor.core.errors import StoreUnavailableError
from tests.simulation.turns_loop import Program

if TYPE_CHECKING:
    from tests.simulation.turns import TurnWorld

WAY_S, TIMEOUT_S = 0.0005, 1.0
LATE_S = (1.042, 1.05, 2.5)  # soon after the caller asks again, while its later turns go on; and long after
AGAIN_S = (0.003, 0.008, 0.05)
BELL_LOOK_S = 0.02


class Fault(Enum):
    """What goes wrong with one call."""

    NONE = "none"
    REQUEST_LOST = "request lost"
    REPLY_LOST = "reply lost"
    LATE = "arrives after the caller gave up"
    TWICE = "arrives twice"
    KILLED_BEFORE = "process killed before"
    KILLED_AFTER = "process killed after"
    CONDEMNED_BEFORE = "session taken away before"
    CONDEMNED_AFTER = "session taken away after"


DEADLY = {Fault.KILLED_BEFORE, Fault.KILLED_AFTER, Fault.CONDEMNED_BEFORE, Fault.CONDEMNED_AFTER}


class Lane:
    """A worker's way to the server."""

    def __init__(self, world: TurnWorld, session: str, program: Program) -> None:
        self._world = world
        self._session = session
        self._program = program

    async def run(self, call: Call[Any], **_: Any) -> Any:
        """Send one call; what happens to it the plan says."""
        world = self._world
        if world.is_closed:
            raise StoreUnavailableError("the world is over")
        position = world.position
        fault = world.plan(position)
        world.position += 1
        if fault in {Fault.REQUEST_LOST, Fault.LATE}:
            if fault is Fault.LATE:
                world.calls.append(call)
                world.after(LATE_S[position % len(LATE_S)], lambda: world.arrive_again(call))
            await asyncio.sleep(TIMEOUT_S)
            raise StoreUnavailableError("lost on its way")
        await asyncio.sleep(WAY_S)
        if fault is Fault.KILLED_BEFORE:
            await self._die()
        if fault is Fault.CONDEMNED_BEFORE:
            world.condemn(self._session)
        reply = world.execute(call)
        if fault is Fault.KILLED_AFTER:
            await self._die()
        if fault is Fault.CONDEMNED_AFTER:
            world.condemn(self._session)
        if fault is Fault.TWICE:
            world.after(AGAIN_S[position % len(AGAIN_S)], lambda: world.arrive_again(call))
        await asyncio.sleep(TIMEOUT_S if fault is Fault.REPLY_LOST else WAY_S)
        if fault is Fault.REPLY_LOST:
            raise StoreUnavailableError("the reply was lost")
        return reply

    async def _die(self) -> None:
        self._program.is_killed = True
        await asyncio.get_running_loop().create_future()

    async def ring(self, keys: Any, block_s: float) -> Any:
        """Wait at the bells."""
        if self._world.is_closed:
            raise StoreUnavailableError("the world is over")
        until_s = self._world.time.now_s + block_s
        while self._world.time.now_s < until_s:
            for key in keys:
                if self._world.store.raw.lpop(key) is not None:
                    return key
            await asyncio.sleep(BELL_LOOK_S)
        return None

    async def command(self, *parts: Any) -> Any:
        """Send a plain command."""
        if self._world.is_closed:
            raise StoreUnavailableError("the world is over")
        await asyncio.sleep(WAY_S)
        return self._world.store.raw.execute_command(*parts)

    async def close(self) -> None:
        """Drop nothing: there is no connection."""
