"""The agent: election, sessions of this replica's workers, reclaiming the runs of dead ones."""

from supervisor.roles.agent.main import main

__all__ = ["main"]
