"""A role in a process of its own, on a scoreboard that the test shares through a file.

Run as a program, it becomes the role that the JSON of its argument says.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
from pathlib import Path
from typing import Any

from supervisor.clock import SystemClock
from supervisor.core.model import ScheduleDef, Template
from supervisor.core.supervision.scoreboard import Board, board_words
from supervisor.core.supervision.states import Phase, SlotState
from supervisor.roles.child import ChildContext
from supervisor.settings.sections.models import ElectionSettings, Settings
from supervisor.settings.sections.queues import QueueSettings
from supervisor.settings.sections.telemetry import LogSettings
from tests.kit.launcher import Process, launch
from tests.kit.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
SLOTS = ("agent", "scheduler", "worker-io-0")
INFLIGHT = 8


def open_board(path: Path) -> Board:
    """Map the scoreboard in ``path``, made if absent."""
    size = 8 * board_words(slots=len(SLOTS), inflight=INFLIGHT)
    with path.open("a+b") as file:
        file.truncate(size)
        words = memoryview(mmap.mmap(file.fileno(), size)).cast("Q")
    return Board(words, slots=len(SLOTS), inflight=INFLIGHT)


class Replica:
    """One replica's board, and processes for the roles that a test wants of it."""

    def __init__(self, directory: Path, name: str, *, url: str, cluster: str, **spec: Any) -> None:
        self.name = name
        self.path = directory / f"{name}.board"
        self.board = open_board(self.path)
        self.board.header.phase = Phase.READY
        self._log = directory / f"{name}.log"
        self._spec = {"replica": name, "url": url, "cluster": cluster, "board": str(self.path), **spec}
        self.processes: dict[str, Process] = {}

    def start(self, role: str) -> None:
        """Fork the role, as the parent would: the row first, then the process."""
        row = self.board.rows[SLOTS.index(role)]
        row.generation += 1
        row.state = SlotState.STARTING
        spec = {**self._spec, "role": role, "generation": row.generation}
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        with self._log.open("ab") as log:
            process = launch(
                [json.dumps(spec)], program=Path(__file__), environ=environ, stderr=log, stdout=log, cwd=ROOT
            )
        row.pid, row.state = process.pid, SlotState.RUNNING
        self.processes[role] = process
        wait_until(lambda: row.child_generation == row.generation, what=f"{role} of {self.name} to be ready")

    def kill(self, role: str) -> None:
        """Kill the role and reap it."""
        self.processes[role].kill()
        self.reap(role)

    def reap(self, role: str) -> int:
        """Wait for the role's end, mirror it on the board, and return its exit code."""
        code = self.processes.pop(role).wait(30)
        row = self.board.rows[SLOTS.index(role)]
        row.state, row.ended_generation = SlotState.STOPPED, row.generation
        return code

    def signal(self, role: str, number: signal.Signals) -> None:
        """Send a signal to the role."""
        self.processes[role].send_signal(number)

    def drain(self) -> None:
        """Stop the tree as the first SIGTERM does: the board says so, and everybody is woken."""
        self.board.header.phase = Phase.DRAINING
        for role in self.processes:
            self.signal(role, signal.SIGURG)

    def end(self) -> None:
        """Leave no process behind."""
        for role in list(self.processes):
            self.kill(role)

    @property
    def log(self) -> str:
        """Everything its processes wrote."""
        return self._log.read_text()


def main() -> int:
    """Become the role that the command line says."""
    spec = json.loads(sys.argv[1])
    signal.signal(signal.SIGURG, signal.SIG_IGN)
    settings = Settings(
        cluster=spec["cluster"],
        election=ElectionSettings(**spec.get("election", {})),
        queues=QueueSettings(**spec.get("queues", {})),
        features=spec.get("features", {}),
        log=LogSettings(level="debug"),
    )
    child = ChildContext(
        settings=settings,
        replica=spec["replica"],
        name=spec["role"],
        slot=SLOTS.index(spec["role"]),
        generation=spec["generation"],
        board=open_board(Path(spec["board"])),
        slot_names=SLOTS,
        parent_pid=os.getpid(),  # the wake-up of the parent goes nowhere
        clock=SystemClock(),
        redis_url=spec["url"],
    )
    definitions = tuple(
        ScheduleDef(id=name, template=Template(job="test.job", kind="sync"), every_ms=every_ms, overlap="allow")
        for name, every_ms in spec.get("schedules", {}).items()
    )
    if spec["role"] == "agent":
        from supervisor.roles.agent import main as agent  # noqa: PLC0415 - one role to a process

        return agent.main(child, definitions)
    from supervisor.roles import scheduler  # noqa: PLC0415

    return scheduler.main(child, definitions)


if __name__ == "__main__":
    sys.exit(main())
