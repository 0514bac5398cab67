"""A command's guard, as the worker holds it: start, follow, stop, and leave nothing behind.

Guarantees
    ``close`` leaves no process of the group, no zombie and no descriptor, at whatever point
    an exception (the soft timeout arrives as one, at any instruction) cut the rest off.
    ``follow`` ends when the command ends, not when the last holder of its output does.
    ``Tail.text()`` is valid text and takes at most ``JSON_BYTES_MAX`` bytes as JSON, so that it
    fits into the run's record beside everything else. Control characters take six bytes each
    there, which is why the bound on bytes kept is not enough.

Does not guarantee
    To come back from a soft timeout while the guard is in uninterruptible sleep; the hard
    timeout, which kills the worker, bounds that.
"""

from __future__ import annotations

import os
import select

import msgspec

from supervisor.clock import Clock
from supervisor.process.command import handle
from supervisor.process.command.handle import WAIT_MS_MAX, CommandEnd, signals_held
from supervisor.process.command.spec import Launch

__all__ = ["CommandEnd", "Guard", "signals_held"]

CHUNK_BYTES = 64 * 1024
DRAIN_BYTES_MAX = 1024 * 1024  # what a pipe can hold; an escaped writer cannot keep us here


class Guard:
    """One command under guard. Always ``close`` it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guard = handle.CommandGuard()
        self._output = -1

    def start(self, launch: Launch) -> None:
        """Fork the guard, which forks the command."""
        with signals_held():
            theirs: list[int] = []
            try:
                theirs.append(_stdin(launch.stdin))
                self._output, output = os.pipe()
                theirs.append(output)
                os.set_blocking(self._output, False)
                self._guard.fork(launch, stdin=theirs[0], output=output)
            finally:
                for number in theirs:
                    os.close(number)

    def follow(self, tail: Tail, *, until_ns: int | None = None) -> CommandEnd | None:
        """Feed the output to ``tail`` until the command ends; None when ``until_ns`` came first."""
        poller = select.poll()
        poller.register(self._guard.status, select.POLLIN)
        poller.register(self._output, select.POLLIN)
        while True:
            ready = dict(poller.poll(self._wait_ms(until_ns)))
            if self._output in ready and self._read(tail) == 0:
                poller.unregister(self._output)  # the command closed it, and may live on
            if self._guard.status in ready:
                ending = self._guard.take_report()
                if ending is not None:
                    self._guard.kill()
                    self._drain(tail)
                    return ending
            if until_ns is not None and self._clock.elapsed_ns() >= until_ns:
                return None

    def stop(self, tail: Tail, *, patience_s: float) -> None:
        """Ask the group to end, wait at most ``patience_s``, then kill it. No signal interrupts this."""
        with signals_held():
            if not self._guard.is_running:
                return
            until_ns = self._clock.elapsed_ns() + int(patience_s * 1e9)
            self._guard.ask_to_end()
            if self.follow(tail, until_ns=until_ns) is None:
                self._guard.kill()
                self._drain(tail)

    def close(self) -> None:
        """Kill remaining processes, reap the guard, close the pipes. Safe to call at any point, and twice."""
        with signals_held():
            self._guard.close()
            if self._output >= 0:
                os.close(self._output)
            self._output = -1

    def _wait_ms(self, until_ns: int | None) -> int:
        if until_ns is None:
            return WAIT_MS_MAX
        return min(WAIT_MS_MAX, max(0, (until_ns - self._clock.elapsed_ns()) // 1_000_000 + 1))

    def _read(self, tail: Tail) -> int | None:
        """Return how many bytes came: 0 at the end of the file, None when there are none now."""
        try:
            chunk = os.read(self._output, CHUNK_BYTES)
        except BlockingIOError:
            return None
        tail.feed(chunk)
        return len(chunk)

    def _drain(self, tail: Tail) -> None:
        """Read the rest of the pipe. The group is dead, so this ends."""
        drained = 0
        while drained < DRAIN_BYTES_MAX and (count := self._read(tail)):
            drained += count


def _stdin(data: bytes | None) -> int:
    """Return a descriptor to read ``data`` from: a file, so that no command can block us by not reading."""
    if data is None:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    number = os.memfd_create("stdin", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(number, view) :]
    os.lseek(number, 0, os.SEEK_SET)
    return number


JSON_BYTES_MAX = 48 * 1024


class Tail:
    """Keeps the last ``limit`` bytes of a command's output: however much it writes, memory stays bounded."""

    def __init__(self, limit: int) -> None:
        assert limit >= 0
        self._limit = limit
        self._kept = bytearray()
        self._fed = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next piece of output."""
        self._fed += len(chunk)
        self._kept += chunk[-self._limit :] if self._limit else b""
        if len(self._kept) > self._limit:
            del self._kept[: -self._limit]

    def text(self) -> str:
        """Return the kept bytes as text; bytes that are not UTF-8 become U+FFFD."""
        kept = bytes(self._kept)
        if self._fed > len(kept):
            kept = _from_a_character_on(kept)
        text = kept.decode(errors="replace")
        while (excess := len(msgspec.json.encode(text)) - JSON_BYTES_MAX) > 0:
            text = text[max(1, excess // 6) :]
        return text

    @property
    def is_truncated(self) -> bool:
        """True if ``text()`` is less than all there was."""
        return self._fed > len(self._kept) or len(self.text()) < len(self._kept.decode(errors="replace"))


def _from_a_character_on(cut: bytes) -> bytes:
    """Drop the rest of a UTF-8 character that the limit cut in two: at most three continuation bytes."""
    start = 0
    while start < min(3, len(cut)) and cut[start] & 0xC0 == 0x80:
        start += 1
    return cut[start:]
