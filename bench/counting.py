"""A unix socket in front of a server that counts what each client asks, by the name the client gave itself.

The server's own counters include the commands that scripts call, so they cannot tell how often a
client waited for a reply. Here each request arrives as one piece, since a client sends the next
one only after the reply to the last.
"""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

NAME = re.compile(rb"\r\ntenure:[^:\r\n]+:([a-z0-9-]+)\r\n")
CHUNK = 1 << 20


class CountingProxy:
    """Passes everything on, and counts."""

    def __init__(self, server: Path, path: Path) -> None:
        self.url = f"unix://{path}"
        self.counts: Counter[str] = Counter()
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._server))
                threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._replies, args=(server, client), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        name = ""
        with suppress(OSError), client, server:
            while data := client.recv(CHUNK):
                found = NAME.search(data)
                name = found[1].decode() if found else name
                self.counts[name] += 1
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)

    def _replies(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(CHUNK):
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Take no more clients."""
        self._listener.close()
