"""A kernel whose processes follow a script, under a clock that only waiting moves."""

from __future__ import annotations

import errno
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from signal import Signals

from supervisor.core.supervision.scoreboard import Board, Row, board_words
from supervisor.core.supervision.slot import Group
from supervisor.core.supervision.states import ChildState, RunState, SlotState
from supervisor.core.units import SECOND_NS
from supervisor.process.parent import ChildIdentity, Parent, ParentLimits, SlotSpec
from supervisor.process.reloading import Reloading
from supervisor.process.slots import Log
from supervisor.process.system.linux import Wait
from supervisor.process.system.reaper import Ended
from supervisor.process.system.signals import Received
from supervisor.process.system.systemd import Notifier
from tests.kit.clock import START_NS, FakeClock

NEVER = 1 << 62


@dataclass(frozen=True)
class Manner:
    """How one process behaves. Times in seconds after its start, or after it was told; None: never."""

    ready_s: float | None = 0.01
    dies_s: float | None = None
    status: int = 0  # of its own death, or when it is told
    silent_s: float | None = None  # its loop stands still from then on
    term_s: float | None = 0.02  # how long TERM takes
    quit_s: float | None = 0.02
    abort_s: float | None = 0.01
    kill_s: float | None = 0.001  # None: uninterruptible sleep
    has_run: bool = False  # in its in-flight table


GOOD = Manner()


@dataclass
class Process:
    """One scripted process."""

    pid: int
    spec: SlotSpec
    launch: ChildIdentity
    manner: Manner
    started_ns: int
    ends_ns: int = NEVER
    status: int = 0
    is_ready: bool = False
    got: list[tuple[int, Signals]] = field(default_factory=list)

    def end(self, at_ns: int, status: int) -> None:
        if at_ns < self.ends_ns:
            self.ends_ns, self.status = at_ns, status


@dataclass
class FakeKernel:
    """Forks scripted processes. ``manners`` gives the behaviour of each (slot name, generation)."""

    clock: FakeClock
    board: Board
    manners: Callable[[str, int], Manner]
    signals: list[tuple[int, Signals]] = field(default_factory=list)  # what operators send, and when
    alive: dict[int, Process] = field(default_factory=dict)
    history: list[Process] = field(default_factory=list)
    forks_fail: Callable[[int], bool] = lambda _: False
    pressure: float = 0.0
    wants_processor: bool = True  # every child, at every moment
    kills_for_memory: int | None = None  # as the kernel counts them
    pauses: list[tuple[int, int]] = field(default_factory=list)  # (from, for): the whole machine stands still
    kernels_own: list[tuple[int, Signals]] = field(default_factory=list)  # of the signals, those nobody sent
    plans: list[tuple[int, Callable[[], object]]] = field(default_factory=list)
    deadline_words: dict[str, int] = field(default_factory=dict)
    waits: int = 0

    def prepare(self) -> None:
        pass

    def fork(self, spec: SlotSpec, launch: ChildIdentity, log: Log) -> int:
        twins = [process for process in self.alive.values() if process.spec.name == spec.name]
        assert not twins, f"{spec.name} would have two processes"
        if self.forks_fail(self.clock.now_ns):
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        manner = self.manners(spec.name, launch.generation)
        process = Process(100 + len(self.history), spec, launch, manner, self.clock.now_ns)
        if manner.dies_s is not None:
            process.end(self.clock.now_ns + int(manner.dies_s * SECOND_NS), manner.status)
        self.alive[process.pid] = process
        self.history.append(process)
        return process.pid

    def send(self, pid: int, number: Signals) -> None:
        process = self.alive[pid]  # a KeyError here is a signal to a reaped pid: a stranger's
        process.got.append((self.clock.now_ns, number))
        manner, status = process.manner, -number
        took_s = {Signals.SIGTERM: manner.term_s, Signals.SIGQUIT: manner.quit_s, Signals.SIGABRT: manner.abort_s}
        if number is Signals.SIGTERM or number is Signals.SIGQUIT:
            status = manner.status
        if number is Signals.SIGKILL:
            self._end(process, manner.kill_s, -9)
        elif number in took_s:
            self._end(process, took_s[number], status)

    def _end(self, process: Process, after_s: float | None, status: int) -> None:
        if after_s is not None:
            process.end(self.clock.now_ns + int(after_s * SECOND_NS), status)

    def kill(self, pid: int) -> None:
        self.send(pid, Signals.SIGKILL)

    def reap(self, ours: Container[int]) -> list[Ended]:
        assert all(process.pid not in ours for process in self.history if process.pid not in self.alive)
        dead = [process for process in self.alive.values() if process.ends_ns <= self.clock.now_ns]
        for process in dead:
            del self.alive[process.pid]
        return [Ended(process.pid, process.status, 1000) for process in dead]

    def wait(self, timeout_ns: int) -> Received | None:
        self.waits += 1
        assert self.waits < 200_000, "the parent spins"
        self._live()
        until_ns = self.clock.now_ns + max(0, timeout_ns)
        for plan in [plan for plan in self.plans if plan[0] <= self.clock.now_ns]:
            self.plans.remove(plan)
            plan[1]()
        events = [at_ns for at_ns, _ in [*self.signals, *self.plans]]
        events += [process.ends_ns for process in self.alive.values() if process.ends_ns > self.clock.now_ns]
        events += [at_ns for at_ns in map(self._ready_ns, self.alive.values()) if at_ns > self.clock.now_ns]
        self.clock.now_ns = max(self.clock.now_ns, min([until_ns, *events]))
        for pause in self.pauses:
            if pause[0] <= self.clock.now_ns:
                self.pauses.remove(pause)
                self.clock.now_ns += pause[1]
                break
        else:
            self._live()
        for pending in sorted(self.signals):
            if pending[0] <= self.clock.now_ns:
                self.signals.remove(pending)
                return Received(pending[1], 1, 0, is_from_kernel=pending in self.kernels_own)
        return None

    def _ready_ns(self, process: Process) -> int:
        ready_s = process.manner.ready_s
        return NEVER if ready_s is None or process.is_ready else process.started_ns + int(ready_s * SECOND_NS)

    def _live(self) -> None:
        """Write what every living process would have written on the board by now."""
        now_ns = self.clock.now_ns
        for process in self.alive.values():
            if process.ends_ns <= now_ns or process.manner.ready_s is None:
                continue
            row = self.board.rows[process.launch.slot]
            if now_ns >= self._ready_ns(process):
                process.is_ready = True
                row.child_generation = process.launch.generation
                row.child_state = ChildState.READY
                if process.manner.has_run:
                    self.board.inflight[process.launch.slot].put(0, execution=7, attempt=1, state=RunState.STARTED)
                row.deadline_ns = self.deadline_words.get(process.spec.name, 0)
            silent_s = process.manner.silent_s
            if process.is_ready and (silent_s is None or now_ns < process.started_ns + int(silent_s * SECOND_NS)):
                row.beat_ns = now_ns

    def sweep(self, until_ns: int) -> int:
        for pid in list(self.alive):
            self.kill(pid)
        self.clock.now_ns += SECOND_NS // 100
        self.reap(self.alive)
        return len(self.alive)

    def pressure_percent(self) -> float:
        return self.pressure

    def processor_wait(self, pid: int) -> Wait:
        assert pid in self.alive
        return Wait(0, is_now=self.wants_processor)

    def memory_kills(self) -> int | None:
        return self.kills_for_memory

    def of(self, name: str) -> list[Process]:
        return [process for process in self.history if process.spec.name == name]


@dataclass
class SimulatedParent:
    """A parent on a fake kernel, and everything it said."""

    kernel: FakeKernel
    parent: Parent
    board: Board
    clock: FakeClock
    events: list[tuple[str, dict[str, object]]]

    def run(self) -> int:
        return self.parent.run()

    def said(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.events if name == event]

    def at(self, after_s: float, number: Signals, *, is_from_kernel: bool = False) -> None:
        self.kernel.signals.append((START_NS + int(after_s * SECOND_NS), number))
        if is_from_kernel:
            self.kernel.kernels_own.append(self.kernel.signals[-1])

    def row(self, name: str) -> Row:
        return self.board.rows[self.index(name)]

    def index(self, name: str) -> int:
        return [live.spec.name for live in self.parent._tree.slots].index(name)

    def running(self) -> list[str]:
        """Return the slots whose process runs now, as the board says."""
        slots = self.parent._tree.slots
        return [live.spec.name for live in slots if live.row.state == SlotState.RUNNING]

    def when(self, after_s: float, act: Callable[[], object]) -> None:
        """Do something once so much time has passed, while the parent waits."""
        self.kernel.plans.append((START_NS + int(after_s * SECOND_NS), act))

    def ask(self, after_s: float, asker: str, verb: int, slot: int | str, generation: int) -> None:
        """Let a child ask the parent for something."""

        def write() -> None:
            row = self.row(asker)
            row.request_verb, row.request_generation = verb, generation
            row.request_slot = slot if isinstance(slot, int) else self.index(slot)
            row.request_number += 1

        self.when(after_s, write)

    @property
    def elapsed_s(self) -> float:
        return (self.clock.now_ns - START_NS) / SECOND_NS


SLOTS = (
    ("agent", Group.AGENT),
    ("scheduler", Group.SCHEDULER),
    ("web", Group.WEB),
    ("io", Group.WORKER),
    ("cpu", Group.WORKER),
)


def make_world(
    manners: Callable[[str, int], Manner] = lambda _name, _generation: GOOD,
    *,
    slots: tuple[tuple[str, Group], ...] = SLOTS,
    pools: dict[str, int] | None = None,
    reloading: Reloading | None = None,
    has_server: bool = False,
    limits: ParentLimits | None = None,
    hang_timeout_s: float = 15.0,
    boot_timeout_s: float = 30.0,
    log_fails: bool = False,
) -> SimulatedParent:
    clock = FakeClock()
    pools = pools or {}
    rows = {f"worker-{pool}-{n}": pool for pool, count in pools.items() for n in range(2 * count + 2)}
    names = ((("server", Group.EMBEDDED),) if has_server else ()) + slots
    names += tuple((name, Group.WORKER) for name in rows)
    words = memoryview(bytearray(8 * board_words(slots=len(names), inflight=2))).cast("Q")
    board = Board(words, slots=len(names), inflight=2)
    kernel = FakeKernel(clock, board, manners)

    def answers() -> bool:
        return any(process.spec.name == "server" and process.is_ready for process in kernel.alive.values())

    def never_here(_: ChildIdentity) -> int:
        raise AssertionError("the fake kernel runs no code")

    specs = [
        SlotSpec(
            name=name,
            run=never_here,
            group=group,
            pool=rows.get(name),
            boot_timeout_s=boot_timeout_s,
            hang_timeout_s=None if group is Group.EMBEDDED else hang_timeout_s,
            is_ready=answers if group is Group.EMBEDDED else None,
        )
        for name, group in names
    ]
    events: list[tuple[str, dict[str, object]]] = []

    def log(event: str, /, *, level: str = "info", **fields: object) -> None:
        if log_fails:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        events.append((event, {"level": level, **fields}))

    parent = Parent(
        specs,
        board,
        clock,
        limits=limits or ParentLimits(),
        notify=Notifier(),
        log=log,
        processes=pools,
        reloading=reloading,
        kernel=kernel,
        jitter=lambda: 1.0,
    )
    return SimulatedParent(kernel, parent, board, clock, events)


def only(name: str, *manners: Manner, then: Manner = GOOD) -> SimulatedParent:
    """Return a world in which one slot behaves as told, generation by generation."""

    def choose(slot: str, generation: int) -> Manner:
        return (
            manners[generation - 1] if slot == name and generation <= len(manners) else then if slot == name else GOOD
        )

    return make_world(choose)
