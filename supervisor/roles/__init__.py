"""What each child does: agent, scheduler, worker, web."""
