"""The command `tenure schedule`."""
