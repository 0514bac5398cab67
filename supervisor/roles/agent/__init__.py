"""The agent: election, sessions of this replica's workers, reclaiming what dead ones held."""

from supervisor.roles.agent.main import main

__all__ = ["main"]
