"""Calls of the election and of commands to replicas."""
