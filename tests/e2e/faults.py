"""Faults inside a replica that no signal can time: the text of a module that its configuration imports.

It is imported by the parent before the first fork, as any module of jobs is, so every role has
it. A test turns a fault on by a file in the replica's own directory, named by E2E_FAULTS.
"""

from __future__ import annotations

from pathlib import Path

VARIABLE = "E2E_FAULTS"

MODULE = '''
"""A process that stops itself between the check of its term and its write, and a wall clock that steps."""

import os
import signal
from pathlib import Path

from supervisor.clock import SystemClock
from supervisor.store.client.sync_client import Store

PLACE = Path(os.environ["E2E_FAULTS"])
real_run, real_wall_ms = Store.run, SystemClock.wall_ms


def run(self, call, **options):
    if call.script == "fire":
        try:
            (PLACE / "stop-before-fire").rename(PLACE / "stopped")
        except FileNotFoundError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGSTOP)
    return real_run(self, call, **options)


def wall_ms(self):
    try:
        return real_wall_ms(self) + int((PLACE / "wall-offset-ms").read_text())
    except FileNotFoundError:
        return real_wall_ms(self)


Store.run = run
SystemClock.wall_ms = wall_ms
'''


class Faults:
    """The faults of one replica."""

    def __init__(self, directory: Path) -> None:
        self._place = directory
        directory.mkdir(exist_ok=True)

    @property
    def environ(self) -> dict[str, str]:
        """What the replica must be started with."""
        return {VARIABLE: str(self._place)}

    def stop_before_fire(self) -> None:
        """Let the scheduler stop itself when it has checked its term and is about to send a fire."""
        (self._place / "stopped").unlink(missing_ok=True)
        (self._place / "stop-before-fire").touch()

    @property
    def is_stopped(self) -> bool:
        """Whether it did."""
        return (self._place / "stopped").exists()

    def step_wall_clock(self, offset_ms: int) -> None:
        """Let the wall clock of every process of the replica be so far off from now on."""
        fresh = self._place / "fresh"
        fresh.write_text(str(offset_ms))
        fresh.rename(self._place / "wall-offset-ms")  # at once: a half-written number would be another step
