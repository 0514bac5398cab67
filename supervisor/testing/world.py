"""A seeded world: virtual time, a queue of happenings, a network that can misbehave. One thread, no waiting.

Guarantees
    The same seed gives the same history. Time passes only between happenings.
    Actors run the production generators; the world carries out their steps, with the
    delays, losses and repetitions that its network draws.

Does not guarantee
    Preemption inside a computation: an actor is paused, or dies, at its steps only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.testing.server import Server

EPOCH_MS = 1_767_225_600_000  # 2026-01-01T00:00Z: where calendars begin unless told otherwise
S = 1000 * MILLISECOND_NS


@dataclass(frozen=True, slots=True)
class Told:
    """One line of the history."""

    at_ns: int
    who: str
    event: str
    fields: dict[str, Any]

    def __str__(self) -> str:
        """Render for people: seconds since the start, actor, event."""
        detail = " ".join(f"{name}={value}" for name, value in self.fields.items())
        return f"{self.at_ns / SECOND_NS:10.4f}  {self.who:<18} {self.event} {detail}".rstrip()


@dataclass(frozen=True, slots=True)
class Fate:
    """Fate of one call on its way."""

    stall_ns: int  # the process stands still between its decision and the write
    request_ns: int
    reply_ns: int
    is_request_lost: bool = False
    is_reply_lost: bool = False
    repeated_after_ns: int | None = None  # the network delivers the request a second time
    reset_ns: int | None = None  # the connection is reset: the caller is told then, whatever became of the request


class Network:
    """A network that always works. Others draw worse fates."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def fate(self) -> Fate:
        """Return the fate of the next call: a fraction of a millisecond each way."""
        return Fate(
            0,
            self.rng.randrange(MILLISECOND_NS // 10, MILLISECOND_NS // 2),
            self.rng.randrange(MILLISECOND_NS // 10, MILLISECOND_NS // 2),
        )


@dataclass(order=True)
class _Happening:
    at_ns: int
    number: int
    act: Callable[[], None] = field(compare=False)


class World:
    """True time, the server, the network, and future events."""

    def __init__(self, server: Server, *, seed: int, start_ms: int = EPOCH_MS, network: Network | None = None) -> None:
        self.server = server
        self.seed = seed
        self.rng = Random(seed)  # noqa: S311 - a simulation must repeat itself
        self.network = network or Network(self.rng)
        self.start_ms = start_ms
        self.now_ns = 0
        self.server_offset_ms = 0  # how far Redis' clock is from the truth
        self.is_server_up = True
        self.history: list[Told] = []
        self.on_executed: list[Callable[[], None]] = []
        self._queue: list[_Happening] = []
        self._numbers = count()
        server.now_ns = lambda: self.now_ns

    def server_time_s(self) -> float:
        """Return the time of Redis' clock."""
        return (self.start_ms + self.server_offset_ms) / 1000 + self.now_ns / SECOND_NS

    def server_ms(self) -> int:
        """Return the time of Redis' clock, in milliseconds."""
        return int(self.server_time_s() * 1000)

    def after(self, delay_ns: int, act: Callable[[], None]) -> None:
        """Let ``act`` happen ``delay_ns`` from now."""
        heappush(self._queue, _Happening(self.now_ns + max(0, delay_ns), next(self._numbers), act))

    def run_until(self, at_ns: int) -> None:
        """Let everything happen that is due until ``at_ns``, in order."""
        while self._queue and self._queue[0].at_ns <= at_ns:
            happening = heappop(self._queue)
            self.now_ns = happening.at_ns
            happening.act()
        self.now_ns = max(self.now_ns, at_ns)

    def tell(self, who: str, event: str, **fields: Any) -> None:
        """Write one line of the history."""
        self.history.append(Told(self.now_ns, who, event, fields))

    def executed(self) -> None:
        """Notify all listeners that the server did something."""
        for hook in list(self.on_executed):
            hook()


class ReplicaClock:
    """The clocks of one machine: each with its own error. A ``supervisor.clock.Clock``."""

    def __init__(self, world: World, *, boot_offset_ns: int = 0, rate: float = 1.0, wall_offset_ms: int = 0) -> None:
        self._world = world
        self._boot_offset_ns = boot_offset_ns
        self._rate = rate
        self.wall_offset_ms = wall_offset_ms

    def elapsed_ns(self) -> int:
        """Return CLOCK_BOOTTIME of the machine."""
        return self._boot_offset_ns + int(self._world.now_ns * self._rate)

    def wall_ms(self) -> int:
        """Return the wall clock of the machine."""
        return self._world.start_ms + self.wall_offset_ms + self._world.now_ns // MILLISECOND_NS

    def true_ns(self, elapsed_ns: int) -> int:
        """Return the true time at which ``elapsed_ns`` will be shown."""
        true_ns = int((elapsed_ns - self._boot_offset_ns) / self._rate)
        while self._boot_offset_ns + int(true_ns * self._rate) < elapsed_ns:
            true_ns += 1  # rounding must not wake anybody a nanosecond early for ever
        return true_ns
