"""Context of a child process: its place in the tree and everything it may use."""

from __future__ import annotations

import encodings.idna  # noqa: F401  # the first look-up of a host would import it, in every child
import gc
import os
import select
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from supervisor.clock import Clock
from supervisor.core.supervision.scoreboard import Board, InflightTable, Row
from supervisor.core.supervision.states import ChildState
from supervisor.core.units import SECOND_NS
from supervisor.reload.config_memfd import Brief, ConfigReader, HandoverError
from supervisor.settings.sections.models import Settings
from supervisor.store.scripts import script, script_names
from supervisor.telemetry import events, logs
from supervisor.telemetry.events import Mailbox
from supervisor.telemetry.logs import LogRules

_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


@dataclass(frozen=True, slots=True)
class Listeners:
    """Sockets of the web child. The parent binds them before it forks, and keeps them while that child is replaced."""

    http: socket.socket
    health: socket.socket | None = None
    grpc: socket.socket | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return those that the web child keeps."""
        return tuple(each.fileno() for each in (self.http, self.health, self.grpc) if each is not None)


@dataclass(frozen=True, slots=True)
class ChildContext:
    """One child's view of the tree. Built by the composition root, in the child, after the fork."""

    settings: Settings
    replica: str  # unique for each start of a tree: "<name>.<6 hex digits>"
    name: str  # of the slot: agent, scheduler, web, worker-io-0
    slot: int
    generation: int
    board: Board
    slot_names: tuple[str, ...]
    parent_pid: int
    clock: Clock
    redis_url: str  # resolved: the embedded server's unix socket stands here as unix://…
    pool: str | None = None
    listeners: Listeners | None = None  # of the web child
    mailbox: Mailbox | None = None  # where events of the tree arrive; the web child empties it
    handover: ConfigReader | None = None  # where configurations come from while the tree runs
    config_epoch: int = 0  # the one that ``settings`` are of
    predecessor: str = (
        ""  # replica of the tree that held this one's place on the data directory before; empty: not known
    )

    @property
    def row(self) -> Row:
        """This child's row on the board."""
        return self.board.rows[self.slot]

    @property
    def inflight(self) -> InflightTable:
        """This child's in-flight table."""
        return self.board.inflight[self.slot]

    def announce(self, state: ChildState) -> None:
        """Write the state of this generation beside a beat, and wake the parent to read it."""
        row = self.row
        row.beat_ns = self.clock.elapsed_ns()
        row.child_state = state
        row.child_generation = self.generation
        self.wake_parent()

    def wake_parent(self) -> None:
        """Make the parent look at the board."""
        # It died, and its death signal is on the way to us; or a job gave up root, and the parent looks by itself soon.
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.parent_pid, signal.SIGURG)

    @property
    def session(self) -> str:
        """The name of this worker process's session: derived, so that the agent knows it too."""
        return session_name(self.replica, self.name, self.generation)


def resident_kib(pid: int | Literal["self"] = "self") -> int:
    """Return the resident memory of a process in KiB; 0 where it is gone, or the system does not report it."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE_KIB
    except (OSError, ValueError, IndexError):
        return 0


def session_name(replica: str, slot_name: str, generation: int) -> str:
    """Return the session of generation ``generation`` of a worker slot."""
    return f"{replica}/{slot_name}/{generation}"


class ConfigFollower:
    """One process's view of which configuration is in effect.

    Guarantees
        A poll costs about a microsecond when nothing changed. The log file is opened anew when that was
        asked for, the log and ``events.runs`` follow the configuration in effect, and counted events are reported.

    Does not guarantee
        That other settings follow, unless their user reads them in ``settings``: for those the parent replaces
        processes. The scheduler and the agent take the schedules besides, through the return value of ``poll``.
    """

    def __init__(self, child: ChildContext) -> None:
        self._header = child.board.header
        self._handover = child.handover
        self._epoch = child.config_epoch
        self.settings = child.settings
        """In effect, as of the last poll; what a reload cannot change in this process is that of its start."""

    def brief(self, number: int) -> Brief | None:
        """Return the summary of configuration ``number``; None: it is gone, and the next poll finds its successor."""
        assert self._handover is not None
        try:
            return self._handover.brief(number)
        except HandoverError:
            return None

    def poll(self) -> int:
        """Follow the configuration in every process; return the number of a configuration that is new here, else 0."""
        logs.look()
        events.flush()
        epoch = self._header.config_epoch
        if epoch == self._epoch or self._handover is None:
            return 0
        self._epoch = epoch
        try:
            settings = self._handover.settings(epoch)
        except HandoverError:
            return 0  # already the one after the next: the word says so at the next poll
        log, former, self.settings = settings.log, self.settings.log, settings
        events.follow(runs=settings.events.runs)
        if log != former:
            rules = LogRules.of(mask=log.mask, exclude=log.exclude)
            logs.retune(level=log.level, format=log.format, rules=rules)
        return epoch


class Wakeup:
    """Installed once in a role's main thread. ``close`` restores the previous handlers, for tests.

    A signal that comes between the check of a flag and the wait ends the wait at once, because
    the interpreter writes its number to a socket that the wait reads (``signal.set_wakeup_fd``).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_draining = False
        self.is_abandoning = False
        self.asked_ns = 0  # when that was asked for; 0: not yet
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)  # noqa: FBT003 - the library's own signature
        self._old_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._old = {
            number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGURG)
        }

    def wait(self, until_ns: int, also: socket.socket | None = None) -> bool:
        """Return at ``until_ns``, or at once after a signal or when ``also`` can be read; whether one of them was."""
        left_s = max(0.0, (until_ns - self._clock.elapsed_ns()) / SECOND_NS)
        readers = [self._reader] if also is None else [self._reader, also]
        is_woken = bool(select.select(readers, [], [], left_s)[0])
        with suppress(BlockingIOError):
            while len(self._reader.recv(4096)) == 4096:
                pass
        return is_woken

    def close(self) -> None:
        """Restore the handlers and close the sockets."""
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self._reader.close()
        self._writer.close()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        is_quit = number == signal.SIGQUIT
        if number != signal.SIGURG and not (self.is_abandoning if is_quit else self.is_draining):
            self.is_draining, self.is_abandoning, self.asked_ns = True, is_quit, self._clock.elapsed_ns()


def preload() -> None:
    """Load it, and take everything that lives now out of the hands of the garbage collector.

    Measured with eight idle workers: 11 MiB of their own each without this, 8.5 with it.

    A collection in a child would touch the page of every object, and so copy it. None here either, right
    before the fork: objects it frees leave holes in shared pages, and children would fill them.
    """
    for name in script_names():
        script(name)
    gc.freeze()
    gc.disable()
