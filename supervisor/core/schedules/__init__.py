"""Triggers, catch-up, jitter, exclusions and templates of schedules."""
