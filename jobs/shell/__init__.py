"""Commands as jobs, each under a guard that takes its process group along when it goes.

``command`` is the job; ``guard`` forks and ends the processes (their own steps are in
supervisor/process/command/guard.py), and keeps the end of the output.
"""

from __future__ import annotations

from supervisor.process.command.spec import CommandRefusedError
from tenure.jobs.shell.command import CommandFailedError, command

__all__ = ["CommandFailedError", "CommandRefusedError", "command"]
