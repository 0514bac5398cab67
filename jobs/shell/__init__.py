"""Commands as jobs, each under a guard that takes its process group along when it goes.

``command`` is the job; ``launch`` checks what is asked for; ``guard`` forks and ends the
processes; ``tail`` keeps the end of the output.
"""

from __future__ import annotations

from jobs.shell.command import CommandFailedError, command
from jobs.shell.launch import CommandRefusedError

__all__ = ["CommandFailedError", "CommandRefusedError", "command"]
