"""Worker processes: they take runs from queues and execute them, in an async or a sync pool.

Loads nothing by itself, so that a program which only declares jobs stays light.
``supervisor.roles.worker.entry`` is the module that the composition root imports before it forks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from supervisor.roles.child import ChildContext


def main(child: ChildContext) -> int:
    """Run one worker process until it is asked to stop; return its exit code."""
    code: int = import_module("supervisor.roles.worker.entry").main(child)
    return code
