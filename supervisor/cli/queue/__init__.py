"""The commands `tenure queue` and `tenure dead`."""
