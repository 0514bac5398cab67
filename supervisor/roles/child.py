"""Context of a child process: its place in the tree and everything it may use."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from supervisor.clock import Clock
from supervisor.core.supervision.inflight import InflightTable
from supervisor.core.supervision.scoreboard import Board, Row
from supervisor.reload.config_memfd import ConfigReader
from supervisor.settings.sections.models import Settings
from supervisor.telemetry.events import Mailbox


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
class Seat:
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

    @property
    def row(self) -> Row:
        """This child's row on the board."""
        return self.board.rows[self.slot]

    @property
    def inflight(self) -> InflightTable:
        """This child's in-flight table."""
        return self.board.inflight[self.slot]

    @property
    def session(self) -> str:
        """The name of this worker process's session: derived, so that the agent knows it too."""
        return session_name(self.replica, self.name, self.generation)


def session_name(replica: str, slot_name: str, generation: int) -> str:
    """Return the session of generation ``generation`` of a worker slot."""
    return f"{replica}/{slot_name}/{generation}"
