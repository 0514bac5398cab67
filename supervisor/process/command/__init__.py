"""Guarded commands: specification, handle, guard process."""
