"""Where log lines go: one ``write`` for each, no lock, no thread, no buffer.

Guarantees
    Lines of several processes on one pipe never tear: each is one ``write`` of at most
    PIPE_BUF bytes, which POSIX makes atomic.
    A reader that hangs cannot hang a process of the tree: one line waits a second for room,
    then lines are dropped until there is some, and the first that gets through says how many were.
    A second is less than the strictest hang limit, which is the scheduler's two.
    A fork can happen at any moment, since nothing is held.

Does not guarantee
    That every line is written: the log is for people, the record is in Redis.
"""

from __future__ import annotations

import os
import select
from typing import IO, Any

LINE_BYTES_MAX = 4096
"""PIPE_BUF of Linux, newline included."""

_WAIT_MS = 1000


class LineSink:
    """A file descriptor that takes whole lines."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self.dropped = 0
        """Lines lost since the last one that got through."""

    def write(self, line: bytes) -> None:
        """Write ``line``, which ends in a newline, or drop it."""
        # After a drop no line waits again until one got through: the stall is bounded in all.
        if not self._poll.poll(0 if self.dropped else _WAIT_MS):
            self.dropped += 1
            return
        try:
            written = os.write(self._fd, line)
            while written < len(line):  # only on files and terminals, or above PIPE_BUF
                written += os.write(self._fd, line[written:])
        except OSError:  # the reader is gone, or the disk is full: there is nowhere left to say so
            self.dropped += 1
        else:
            self.dropped = 0


class StreamSink:
    """A stream without a descriptor, such as a test's ``StringIO``."""

    dropped = 0

    def __init__(self, stream: IO[Any]) -> None:
        self._stream = stream

    def write(self, line: bytes) -> None:
        """Write ``line`` as text, or as bytes if the stream takes nothing else."""
        try:
            self._stream.write(line.decode(errors="replace"))
        except TypeError:
            self._stream.write(line)


Sink = LineSink | StreamSink


def open_sink(stream: IO[Any] | int) -> tuple[Sink, bool]:
    """Return the sink for ``stream``, and whether it is a terminal."""
    if isinstance(stream, int):
        return LineSink(stream), os.isatty(stream)
    try:
        fd = stream.fileno()
    except (OSError, AttributeError, ValueError):
        return StreamSink(stream), False
    return LineSink(fd), os.isatty(fd)
