"""Polling of queues: calls, notifications, quarantine of suspect runs."""
