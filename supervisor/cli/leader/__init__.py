"""The command `tenure leader`."""
