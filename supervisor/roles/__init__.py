"""Roles of the child processes: agent, scheduler, worker, web."""
