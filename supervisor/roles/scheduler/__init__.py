"""The scheduler: plans and fires, only while the term on the board is trusted."""

from supervisor.roles.scheduler.main import main

__all__ = ["main"]
