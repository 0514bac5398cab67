"""Enqueueing of runs by any program."""
