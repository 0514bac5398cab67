"""Runs toy trees as programs of their own, and sees what is left of them."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import psutil

from tests.kit.launcher import Process, launch
from tests.kit.waiting import wait_until

BOUND_S = 30.0  # generous: the machine may be busy with other tests
SCRIPT = Path(__file__).parent / "toy_tree.py"
ROOT = Path(__file__).parents[3]
Event = dict[str, Any]


def pause(seconds: float) -> None:
    """Let time pass, where time passing is what the test does."""
    threading.Event().wait(seconds)


class ToyTree:
    """One running tree."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.directory = directory
        self.mark = uuid.uuid4().hex
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "TENURE_TEST_MARK": self.mark, **environment}
        self.process: Process

    def start(self, slots: list[list[Any]], *, pipe: int | None = None, **plan: Any) -> ToyTree:
        plan = {"directory": str(self.directory), "slots": slots, **plan}
        with (self.directory / "out").open("wb") as out, (self.directory / "err").open("wb") as err:
            self.process = launch(
                [json.dumps(plan)],
                program=SCRIPT,
                stdout=out if pipe is None else pipe,
                stderr=err,
                environ=self.environment,
                cwd=self.directory,
            )
        return self

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def errors(self) -> str:
        return (self.directory / "err").read_text()

    def events(self, name: str = "", **fields: Any) -> list[Event]:
        lines = (self.directory / "out").read_text().splitlines(keepends=True)
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in found if (not name or event["event"] == name) and fields.items() <= event.items()]

    def wait_for(self, name: str, *, count: int = 1, **fields: Any) -> list[Event]:
        def seen() -> list[Event]:
            found = self.events(name, **fields)
            assert len(found) >= count or self.process.poll() is None, f"the tree ended without {name}: {self.events()}"
            return found if len(found) >= count else []

        found: list[Event] = wait_until(seen, f"{name} {fields} in {self.directory / 'out'}")
        return found

    def pid_of(self, slot: str, generation: int = 1) -> int:
        return int(self.wait_for("child_started", slot=slot, generation=generation)[0]["child_pid"])

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def ended(self) -> int:
        code = self.process.wait(BOUND_S)
        sys.stdout.write((self.directory / "out").read_text())  # pytest shows it when the test fails
        return code

    def stop(self) -> int:
        self.send(signal.SIGTERM)
        return self.ended()

    def left(self) -> list[int]:
        """Return every living process that descends from the tree, wherever it hides."""
        return [process.pid for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            # programs have the variable; what was forked has the environment of the launcher, and the directory
            is_here = process.cwd() == str(self.directory) or process.environ().get("TENURE_TEST_MARK") == self.mark
            return is_here and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            return False

    def nobody_is_left(self) -> None:
        wait_until(lambda: not self.left(), f"still there: {self.left()}")
