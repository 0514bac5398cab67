"""Calls on queues, runs and worker sessions."""
