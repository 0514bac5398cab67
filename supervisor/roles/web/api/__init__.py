"""The HTTP API: routes, reads, changes."""
