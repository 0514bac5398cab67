"""A real Redis-compatible server, as a process of the test."""

from __future__ import annotations

import subprocess
from pathlib import Path

from supervisor.embedded.valkey import bundled_server, find_server
from tests.e2e.trees import wait_until


class Server:
    """A real server on a unix socket, with its data on disk, that can be killed and started again."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.socket = directory / "redis.sock"
        self.options = options
        self.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start it on the data it has."""
        self.socket.unlink(missing_ok=True)
        binary = str(bundled_server() or find_server())
        options = ("--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.directory), "--save", "")
        durable = ("--appendonly", "yes", "--appendfsync", "always")
        self.process = subprocess.Popen([binary, *options, *durable, *self.options], stdout=subprocess.DEVNULL)
        wait_until(self.socket.exists, what="the server's socket")

    def kill(self) -> None:
        """End it without a warning."""
        self.process.kill()
        self.process.wait()
