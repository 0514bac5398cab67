"""Whole trees, started by the command as a user would, against a server of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.kit.canary import show_nothing_secret
from tests.kit.launcher import launch, run
from tests.kit.log_lines import follow_the_schema
from tests.kit.waiting import WAIT_S_MAX, wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = (sys.executable, "-m", "supervisor")


class Tree:
    """One replica: the command, its log, its processes."""

    def __init__(
        self,
        directory: Path,
        name: str,
        *arguments: str,
        environ: dict[str, str] | None = None,
        wrapper: Sequence[str] = (),
        is_fresh: bool = False,
    ) -> None:
        """Start it; ``wrapper`` is a command that executes the rest of its line, ``is_fresh`` a new interpreter's start."""
        self.name = name
        self.log_path = directory / f"{name}.log"
        self.environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{directory}", **(environ or {})}
        with self.log_path.open("ab") as log:
            self.process = launch(
                ["run", *arguments],
                cwd=directory,
                environ=self.environ,
                stdout=log,
                stderr=log,
                wrapper=wrapper,
                is_fresh=is_fresh,
            )
        self.pid = self.process.pid
        self._left: list[psutil.Process] = []  # of its family, when it was killed
        self._events: list[dict[str, Any]] = []
        self._events_by_name: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._read_bytes = 0  # of the log, so far

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return the log's lines, or those of one event."""
        with self.log_path.open("rb") as log:
            log.seek(self._read_bytes)
            for line in log:
                if not line.endswith(b"\n"):
                    break  # being written
                self._read_bytes += len(line)
                _, start, rest = line.partition(b'{"ts":')  # which the trace of a crash may stand before
                if start:
                    entry = json.loads((start + rest).decode(errors="replace"))
                    self._events.append(entry)
                    self._events_by_name[entry["event"]].append(entry)
        return list(self._events if name is None else self._events_by_name[name])

    def wait_for(self, name: str, bound_s: float = WAIT_S_MAX, **fields: Any) -> dict[str, Any]:
        """Return the first event ``name`` with these fields, once it is there."""

        def look() -> dict[str, Any] | None:
            matching = (each for each in self.events(name) if fields.items() <= each.items())
            return next(matching, None)

        try:
            found: dict[str, Any] = wait_until(look, what=f"{self.name} to log {name} {fields}", bound_s=bound_s)
        except AssertionError:
            self.show_log()
            raise
        return found

    def show_log(self) -> None:
        """Put the end of the log into the test's report."""
        sys.stderr.write(self.log_path.read_text(errors="replace")[-6000:])

    def slot_pid(self, slot: str) -> int:
        """Return the process of a slot's newest generation."""
        started = [each for each in self.events("child_started") if each["slot"] == slot]
        return int(started[-1]["child_pid"])

    def kill(self, slot: str | None = None) -> int:
        """Kill -9 the parent or the process of a slot; return its pid."""
        pid = self.pid if slot is None else self.slot_pid(slot)
        os.kill(pid, signal.SIGKILL)
        return pid

    def terminate(self) -> None:
        """Send SIGTERM to the parent."""
        os.kill(self.pid, signal.SIGTERM)

    def wait(self, bound_s: float = WAIT_S_MAX) -> int:
        """Return the exit code of the tree."""
        try:
            return self.process.wait(bound_s)
        except subprocess.TimeoutExpired:
            self.show_log()
            raise

    def descendants(self) -> list[psutil.Process]:
        """Return every process below the parent, as of now."""
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def named(self, word: str) -> list[psutil.Process]:
        """Return the processes below the parent with ``word`` in their command line, without those that end meanwhile."""
        found = []
        for each in self.descendants():
            with suppress(psutil.NoSuchProcess):
                if word in " ".join(each.cmdline()):
                    found.append(each)
        return found

    def address(self) -> str:
        """Return where its HTTP endpoint listens."""
        return str(self.wait_for("http_listening")["address"])

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of one GET."""
        try:
            with urllib.request.urlopen(f"http://{self.address()}{path}", timeout=10) as reply:
                status, body = reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read().decode()
        show_nothing_secret(body, where=f"{path} of {self.name}")
        return status, body

    def end(self) -> None:
        """Kill it, without waiting for its family."""
        self._left += self.descendants()
        if self.process.poll() is None:
            self.process.kill()

    def close(self) -> None:
        """Leave nothing behind, whatever the test did."""
        self.end()
        self.process.wait(30)
        psutil.wait_procs(self._left, timeout=10)
        if self.log_path.exists():  # a test may end it twice
            written = self.log_path.read_bytes()
            show_nothing_secret(written, where=f"the log of {self.name}")
            follow_the_schema(written, where=f"the log of {self.name}")


def end_all(trees: Sequence[Tree]) -> None:
    """Leave nothing of any tree behind. All are killed at once: their families go in the time of one."""
    for tree in trees:
        tree.end()
    for tree in trees:
        tree.close()


def tenure(directory: Path, *arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{directory}", **(environ or {})}
    done = run(arguments, cwd=directory, environ=environ)
    show_nothing_secret(done.stdout + done.stderr, where=f"tenure {' '.join(arguments[:2])}")
    return done
