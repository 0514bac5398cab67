"""Processes that run a piece of Python together, and looking at those that are nobody's children here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.kit.launcher import ROOT, launch


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, reaped or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def living(pids: list[int]) -> list[int]:
    """Return those of ``pids`` that have not ended."""
    return [pid for pid in pids if not is_gone(pid)]


def run_together(code: str, directory: Path, arguments: Sequence[Sequence[str]]) -> list[str]:
    """Run ``code`` once for each of ``arguments``, in processes of their own at the same time.

    Returns:
        The output of each process that failed.
    """
    program = directory / "program.py"
    program.write_text(code)
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = []
    for number, words in enumerate(arguments):
        output = directory / f"output-{number}"
        with output.open("wb") as file:
            process = launch(words, cwd=directory, environ=environ, stdout=file, stderr=file, program=program)
        running.append((process, output))
    return [output.read_text() for process, output in running if process.wait(100) != 0]
