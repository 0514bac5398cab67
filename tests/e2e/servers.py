"""A real Redis-compatible server, as a process of the test."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from supervisor.embedded.valkey import bundled_server, find_server
from tests.e2e.trees import wait_until
from tests.kit.isolation import share_process


class Server:
    """A real server on a unix socket, with its data on disk, that can be killed and started again."""

    def __init__(self, directory: Path, *options: str, environ: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.environ = {**os.environ, **(environ or {})}
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
        command = [binary, *options, *durable, *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=self.environ)
        share_process(self.process.pid)  # a module's tests may share it, and restart it
        wait_until(self.is_loaded, what="the server to have read its data")

    def is_loaded(self) -> bool:
        """Whether it answers, and with anything but that it still reads its data."""
        with socket.socket(socket.AF_UNIX) as asked, suppress(OSError):
            asked.settimeout(1)
            asked.connect(str(self.socket))
            asked.sendall(b"PING\r\n")
            answer = asked.recv(64)
            return bool(answer) and not answer.startswith(b"-LOADING")
        return False

    def copy(self) -> None:
        """Copy its data while it works, as a backup does."""
        shutil.rmtree(self.directory / "copy", ignore_errors=True)
        shutil.copytree(self.directory / "appendonlydir", self.directory / "copy")

    def go_back(self) -> None:
        """End it, and start it on the copy of its data."""
        self.kill()
        shutil.rmtree(self.directory / "appendonlydir")
        shutil.move(self.directory / "copy", self.directory / "appendonlydir")
        self.start()

    def kill(self) -> None:
        """End it without a warning."""
        self.process.kill()
        self.process.wait()
