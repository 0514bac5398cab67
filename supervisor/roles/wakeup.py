"""Signals as wake-ups of a blocking loop: TERM drains, QUIT abandons, URG announces a change of the board.

A signal that comes between the check of a flag and the wait ends the wait at once, because
the interpreter writes its number to a socket that the wait reads (``signal.set_wakeup_fd``).
"""

from __future__ import annotations

import select
import signal
import socket
from contextlib import suppress
from types import FrameType

from supervisor.clock import Clock
from supervisor.core.units import SECOND_NS


class Wakeup:
    """Installed once in a role's main thread. ``close`` restores the previous handlers, for tests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_draining = False
        self.is_abandoning = False
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)  # noqa: FBT003 - the library's own signature
        self._old_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._old = {
            number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGURG)
        }

    def wait(self, until_ns: int, also: socket.socket | None = None) -> bool:
        """Return at ``until_ns``, or at once after a signal or when ``also`` can be read; whether one of them was."""
        left_s = max(0.0, (until_ns - self._clock.elapsed_ns()) / SECOND_NS)
        readers = [self._reader] if also is None else [self._reader, also]
        is_woken = bool(select.select(readers, [], [], left_s)[0])
        with suppress(BlockingIOError):
            while len(self._reader.recv(4096)) == 4096:
                pass
        return is_woken

    def close(self) -> None:
        """Restore the handlers and close the sockets."""
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self._reader.close()
        self._writer.close()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            self.is_draining = True
        elif number == signal.SIGQUIT:
            self.is_draining = self.is_abandoning = True
