"""The web role: health, metrics and status over HTTP, on a socket that the parent bound.

The socket outlives this process, so a restart of it refuses no connection.
"""

from supervisor.roles.web.server import main

__all__ = ["main"]
