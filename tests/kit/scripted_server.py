"""A server that says what a test tells it to: for answers that no server at hand gives."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import hiredis

LOOPBACK = "127.0.0.1"


class Addressed:
    """Something that listens on loopback as Redis would."""

    port: int

    @property
    def url(self) -> str:
        """Its address as a URL, with a password that must not appear anywhere."""
        return f"redis://default:s3cret@{LOOPBACK}:{self.port}/0"

    @property
    def where(self) -> str:
        """Its address."""
        return f"{LOOPBACK}:{self.port}"


class ScriptedServer(Addressed):
    """Answers each command with the bytes that ``answer`` returns for it; None closes the connection."""

    def __init__(self, answer: Callable[[list[str]], bytes | None]) -> None:
        self.answer = answer
        self.commands: list[list[str]] = []
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(link,), daemon=True).start()

    def _talk(self, link: socket.socket) -> None:
        reader = hiredis.Reader(encoding="utf-8")
        with link, suppress(OSError):
            while data := link.recv(1 << 16):
                reader.feed(data)
                while (command := reader.gets()) is not False:
                    self.commands.append(command)
                    answer = self.answer([str(part) for part in command])
                    if answer is None:
                        return
                    link.sendall(answer)


def handshake(command: list[str]) -> bytes | None:
    """Return the answer to a command of the handshake, else None."""
    return b"+OK\r\n" if command[0] in {"AUTH", "CLIENT", "SELECT"} else None
