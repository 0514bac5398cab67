"""The commands `tenure runs` and `tenure enqueue`."""
