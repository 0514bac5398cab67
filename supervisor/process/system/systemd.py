"""Sends the state of the tree to systemd, or whoever listens on NOTIFY_SOCKET (sd_notify(3)).

Only the parent speaks; children drop the variables (NotifyAccess=main would refuse them).
Without a socket every call does nothing, and no call ever blocks or raises: a service
manager that does not listen is its own problem.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, MutableMapping

from supervisor.core.units import SECOND_NS

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
EXTEND_PERIOD_NS = 1 * SECOND_NS
EXTEND_BY_S = 10
STATUS_CHARACTERS_MAX = 200


class Notifier:
    """The sender. ``watchdog_ns`` 0: nobody watches."""

    def __init__(self, address: str | None = None, *, watchdog_ns: int = 0) -> None:
        self._address = _socket_address(address)
        self.watchdog_period_ns = watchdog_ns // 3
        self._watchdog_due_ns = 0
        self._extend_due_ns = 0
        self._status = ""
        self._note = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], *, pid: int) -> Notifier:
        """Build it from the variables that systemd sets; a watchdog meant for another process is not ours."""
        usec = environment.get("WATCHDOG_USEC", "")
        watched = environment.get("WATCHDOG_PID", "")
        is_watched = usec.isdecimal() and watched in {"", str(pid)}
        return cls(environment.get("NOTIFY_SOCKET"), watchdog_ns=int(usec) * 1000 if is_watched else 0)

    def ready(self, status: str) -> None:
        """Report that the tree is up."""
        self._tell("READY=1", status)

    def status(self, status: str) -> None:
        """Report the tree's activity in one line, if that changed."""
        noted = f"{status}; {self._note}" if self._note else status
        if noted != self._status:
            self._tell("", noted)

    def reloading(self) -> None:
        """Report that a reload began, and when: without the moment, systemd waits for another message."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}", "reloading")

    def reloaded(self, note: str) -> None:
        """Report that a reload ended, with its fault in ``note``; the status shows that until the next one."""
        self._note = note
        self._tell("READY=1", note or "reloaded")

    def stopping(self, status: str) -> None:
        """Report that the stop began."""
        self._tell("STOPPING=1", status)

    def tick(self, now_ns: int, *, is_ready: bool, is_stopping: bool) -> None:
        """Send due messages: the watchdog's ping once ready, and more time while stopping."""
        if self._address is None:
            return
        if is_ready and self.watchdog_period_ns and now_ns >= self._watchdog_due_ns:
            self._watchdog_due_ns = now_ns + self.watchdog_period_ns
            self._send("WATCHDOG=1")
        if is_stopping and now_ns >= self._extend_due_ns:
            self._extend_due_ns = now_ns + EXTEND_PERIOD_NS
            self._send(f"EXTEND_TIMEOUT_USEC={EXTEND_BY_S * 1_000_000}")

    @property
    def deadline_ns(self) -> int:
        """Time at which ``tick`` has something to send again; 0 if nothing is planned."""
        return self._watchdog_due_ns

    def _tell(self, state: str, status: str) -> None:
        self._status = status
        shown = " ".join(status.split())[:STATUS_CHARACTERS_MAX]
        self._send(f"{state}\nSTATUS={shown}".lstrip())

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(0)
                sender.sendto(message.encode(), self._address)
        except OSError:
            return  # a full or vanished socket must not stop supervision


def forget(environment: MutableMapping[str, str]) -> None:
    """Drop the variables, so that nothing below this process speaks for it."""
    for name in VARIABLES:
        environment.pop(name, None)


def _socket_address(address: str | None) -> bytes | None:
    """Return a path or an abstract name as the kernel wants it; other families are not served."""
    if not address or address[0] not in "/@":
        return None
    return b"\0" + os.fsencode(address[1:]) if address[0] == "@" else os.fsencode(address)
