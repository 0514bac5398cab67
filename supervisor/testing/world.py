"""A seeded world: virtual time, a queue of happenings, a network that can misbehave. One thread, no waiting.

Guarantees
    The same seed gives the same history. Time passes only between happenings.
    Actors run the production generators; the world carries out their steps, with the
    delays, losses and repetitions that its network draws.

    Every answer, error, wake-up and request of an actor goes through ``_once_running``, which
    holds it back while the actor is paused. Whatever belongs to a step that is over is recognised
    by its number and dropped. So one is enough to hold: the first to arrive ends the step.

Does not guarantee
    Preemption inside a computation: an actor is paused, or dies, at its steps only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Protocol

from supervisor.core.effects import Call, Listen, RunScript, Sleep, Step, Steps, Watch
from supervisor.core.errors import StoreUnavailableError, TenureError
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
        self.sent_ns = 0  # when the request was sent that an actor had the server execute last
        self.history: list[Told] = []
        self.on_executed: list[Callable[[], None]] = []
        self._queue: list[tuple[int, int, Callable[[], None]]] = []  # when, its number, what happens
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
        heappush(self._queue, (self.now_ns + max(0, delay_ns), next(self._numbers), act))

    def run_until(self, at_ns: int) -> None:
        """Let everything happen that is due until ``at_ns``, in order."""
        while self._queue and self._queue[0][0] <= at_ns:
            self.now_ns, _, act = heappop(self._queue)
            act()
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


REFUSED_NS = 1 * MILLISECOND_NS  # how fast a connection to a server that is down is refused


class Link(Protocol):
    """Link of the machine to the server."""

    is_cut: bool


@dataclass(eq=False)
class Actor:
    """One generator, being executed: one process or thread."""

    world: World
    clock: ReplicaClock
    link: Link
    name: str
    _: KW_ONLY
    on_step: Callable[[], None] = lambda: None
    on_end: Callable[[], None] = lambda: None
    events_after: Callable[[str], list[Any]] | None = None

    def __post_init__(self) -> None:
        self._events_after = self.events_after or self.world.server.events_after
        self._steps: Steps[None] | None = None
        self._number = 0  # of the step being executed
        self._step: Step | None = None
        self._paused_until_ns = 0
        self._held: tuple[int, Callable[[], None]] | None = None  # of which step, and what happens after the pause

    @property
    def is_alive(self) -> bool:
        """True if it runs or is paused."""
        return self._steps is not None

    @property
    def is_paused(self) -> bool:
        """True if it is paused."""
        return self._paused_until_ns > self.world.now_ns

    def start(self, steps: Steps[None]) -> None:
        """Begin to execute ``steps``."""
        assert not self.is_alive
        self._steps = steps
        self._paused_until_ns = 0
        self._held = None
        self._resume(None, None)

    def kill(self) -> None:
        """End it at once, whatever it is doing; nothing of it runs again."""
        if self._steps is not None:
            self._number += 1
            self._steps = self._step = None

    def pause(self, for_ns: int) -> None:
        """Stop it for ``for_ns``: arrivals meanwhile wait."""
        self._paused_until_ns = max(self._paused_until_ns, self.world.now_ns + for_ns)

    def unpause(self) -> None:
        """End a pause now, and with it a stall: waiting events happen at once, not when the pause would have ended."""
        self._paused_until_ns = 0
        self.world.after(0, self._go_on)

    def wake(self) -> None:
        """Notify a sleeping actor of a change."""
        if isinstance(self._step, Sleep | Watch):
            self._deliver(self._number, [], None)

    def hear(self) -> None:
        """Notify a listening actor that the stream may have grown."""
        step = self._step
        if isinstance(step, Listen | Watch) and self.world.is_server_up and not self.link.is_cut:
            server = self.world.server
            heard: list[Any] = (
                self._events_after(step.last_id) if isinstance(step, Listen) else server.changes_after(step.last_id)
            )
            if heard:
                number, fate = self._number, self.world.network.fate()
                self.world.after(fate.reply_ns, lambda: self._deliver(number, heard, None))

    def _deliver(self, number: int, answer: Any, error: TenureError | None) -> None:
        self._once_running(number, lambda: self._resume(answer, error))

    def _once_running(self, number: int, act: Callable[[], None]) -> None:
        """Do ``act`` of step ``number``: now, or when the process runs again."""
        if number != self._number or not self.is_alive:
            return
        wait_ns = self._paused_until_ns - self.world.now_ns
        if wait_ns <= 0:
            act()
        elif self._held is None:
            self._held = (number, act)
            self.world.after(wait_ns, self._go_on)

    def _go_on(self) -> None:
        """Let waiting events happen; where the pause has grown meanwhile, they wait on."""
        held, self._held = self._held, None
        if held is not None:
            self._once_running(*held)

    def _resume(self, answer: Any, error: TenureError | None) -> None:
        assert self._steps is not None
        self._number += 1
        self._step = None
        self.on_step()
        try:
            step = self._steps.throw(error) if error is not None else self._steps.send(answer)
        except StopIteration:
            self._steps = None
            self.on_end()
            return
        if self._steps is None:
            return  # killed by what it just did
        self._step = step
        self._begin(step, self._number)

    def _begin(self, step: Step, number: int) -> None:
        world = self.world
        if isinstance(step, RunScript):
            self._ask(step, number)
            if step.meanwhile is not None:
                step.meanwhile()
            return
        until_ns = self.clock.true_ns(step.until_ns)
        answer: list[Any] = []
        world.after(until_ns - world.now_ns, lambda: self._deliver(number, answer, None))
        if isinstance(step, Listen) and not world.is_server_up:
            world.after(REFUSED_NS, lambda: self._deliver(number, None, _away("down")))
        if isinstance(step, Listen | Watch):
            self.hear()

    def _ask(self, step: RunScript, number: int) -> None:
        fate = self.world.network.fate()
        if fate.stall_ns:
            self.pause(fate.stall_ns)
        self._once_running(number, lambda: self._send(step, number, fate))

    def _send(self, step: RunScript, number: int, fate: Fate) -> None:
        world, sent_ns = self.world, self.world.now_ns
        timeout_at_ns = self.clock.true_ns(self.clock.elapsed_ns() + step.timeout_ns)
        world.after(timeout_at_ns - world.now_ns, lambda: self._deliver(number, None, _away("no answer in time")))
        if fate.reset_ns is not None:
            world.after(fate.reset_ns, lambda: self._deliver(number, None, _away("connection reset")))
        if self.link.is_cut or fate.is_request_lost:
            return
        reply_ns = None if fate.is_reply_lost else fate.reply_ns
        world.after(fate.request_ns, lambda: self._arrive(step.call, number, sent_ns, reply_ns))
        if fate.repeated_after_ns is not None:
            repeated_ns = fate.request_ns + fate.repeated_after_ns
            world.after(repeated_ns, lambda: self._arrive(step.call, number, sent_ns, None))

    def _arrive(self, call: Call[Any], number: int, sent_ns: int, reply_ns: int | None) -> None:
        """The request reaches the server, which answers unless the reply is lost."""
        world = self.world
        answer: Any = None
        error: TenureError | None = None
        if world.is_server_up:
            world.sent_ns = sent_ns
            try:
                answer = world.server.execute(call)
            except TenureError as raised:
                error = raised
            world.executed()
        else:
            error = _away("down")
        if reply_ns is not None and not self.link.is_cut:
            world.after(reply_ns, lambda: self._deliver(number, answer, error))


def _away(reason: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"the simulated server: {reason}")
