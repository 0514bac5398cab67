"""Name servers that can be broken: what ``socket.getaddrinfo`` says of a few names, and hosts that never answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest


class Names:
    """Stands in for the system's look-up, for the names that it is told of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real = socket.getaddrinfo
        self._found: dict[str, list[str] | socket.gaierror] = {}
        self._answers = threading.Event()
        self._answers.set()
        self._lock = threading.Lock()
        self.pending = self.pending_max = 0
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def say(self, host: str, *addresses: str) -> None:
        """Let ``host`` have these addresses."""
        self._found[host] = list(addresses)

    def fail(self, host: str, code: int) -> None:
        """Let a look-up of ``host`` fail with an error of ``socket.EAI_…``."""
        self._found[host] = socket.gaierror(code, "no answer")

    def hang(self) -> None:
        """Answer nothing from now on."""
        self._answers.clear()

    def mend(self) -> None:
        """Answer again, also what was asked meanwhile."""
        self._answers.set()

    def _look_up(self, host: str, *rest: Any, **more: Any) -> list[Any]:
        if host not in self._found:
            return self._real(host, *rest, **more)
        with self._lock:
            self.pending += 1
            self.pending_max = max(self.pending_max, self.pending)
        self._answers.wait()
        found = self._found[host]
        with self._lock:
            self.pending -= 1  # from here on, what is said anew concerns the next look-up alone
        if isinstance(found, socket.gaierror):
            raise found
        return [each for address in found for each in self._real(address, *rest, **more)]


@contextmanager
def silent(port: int, *addresses: str) -> Iterator[None]:
    """Let ``port`` of these addresses of this machine neither take nor refuse a connection.

    No other test may connect from such an address: the port may be that of its connection.
    """
    with ExitStack() as kept:
        for address in addresses:
            listener = kept.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(0)
            for _ in range(3):  # fills the backlog: what comes now gets no answer
                filler = kept.enter_context(socket.socket())
                filler.setblocking(False)  # noqa: FBT003 - as the library has it
                filler.connect_ex((address, port))
        yield
