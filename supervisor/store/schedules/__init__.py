"""Calls that read, define, control and fire schedules."""
