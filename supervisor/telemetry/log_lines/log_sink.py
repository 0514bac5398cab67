"""Log sink: one ``write`` for each line, no lock, no thread, no buffer.

Guarantees
    Lines of several processes on one pipe never tear: each is one ``write`` of at most
    PIPE_BUF bytes, which POSIX makes atomic. Nor do they in one file, whose end is where
    each ``write`` goes, whoever else writes (O_APPEND).
    A reader that hangs cannot hang a process of the tree: one line waits a second for room,
    then lines are dropped until there is some, and the first that gets through has their number.
    A second is less than the strictest hang limit, which is the scheduler's two.
    A file that was renamed gets every line until the new one is open; none falls between the two.
    A fork can happen at any moment, since nothing is held.

Does not guarantee
    That every line is written: the log is for people, the record is in Redis.
    That a line is whole which a disk had no room for; or one in a file on a network file system.
"""

from __future__ import annotations

import os
import select
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

from supervisor.clock import SystemClock
from supervisor.core.errors import CannotCreateError
from supervisor.core.units import MILLISECOND_NS

LINE_BYTES_MAX = 4096
"""PIPE_BUF of Linux, newline included."""

_WAIT_MS = 1000
_CLOCK = SystemClock()
STDERR = 2
_FILE_MODE = 0o640


class Sink:
    """Nowhere, for a process that was started without a standard error; and the base of those that write."""

    dropped = 0
    """Lines lost since the last one that got through."""

    problem = ""
    """Why a file could not be opened anew; the old one is still written to."""

    def write(self, line: bytes) -> None:
        """Write ``line``, which ends in a newline, or drop it."""

    def look(self) -> None:
        """Open the file anew if that was asked for."""

    def close(self) -> None:
        """Close its own descriptor; a given one, or a stream, stays open."""


class LineSink(Sink):
    """A file descriptor that takes whole lines."""

    def __init__(self, fd: int) -> None:
        self._shared_fd = fd
        self._pid = os.getpid()
        self._fd, self._socket = _unblocked(fd)

    def write(self, line: bytes) -> None:
        """Write ``line``, which ends in a newline, or drop it."""
        if self._pid != os.getpid():
            self._forget_own()
        # After a drop no line waits again until one got through: the stall is bounded in all.
        until_ns = _CLOCK.elapsed_ns() + (0 if self.dropped else _WAIT_MS * MILLISECOND_NS)
        room = select.poll()  # one for each line: threads that write at once must not share it
        room.register(self._fd, select.POLLOUT)
        try:
            while line:  # more than once on files and terminals, and above PIPE_BUF
                if not room.poll(max(0, until_ns - _CLOCK.elapsed_ns()) / MILLISECOND_NS):
                    break
                line = line[self._send(line) :]
        except OSError:  # the reader is gone, or the disk is full: there is nowhere left to say so
            pass
        self.dropped = self.dropped + 1 if line else 0

    def close(self) -> None:
        """Close the descriptor it opened for itself; a given one stays open."""
        if self._pid != os.getpid():
            return
        if self._socket is not None:
            self._socket.close()
        elif self._fd != self._shared_fd:
            os.close(self._fd)
        self._fd, self._socket = self._shared_fd, None

    def _send(self, line: bytes) -> int:
        """Return how many bytes were taken: all of a short line or none, on a pipe."""
        try:
            if self._socket is not None:
                return self._socket.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            return os.write(self._fd, line)
        except BlockingIOError:
            return 0  # another process took the room that there was

    def _forget_own(self) -> None:
        """Use the shared descriptor: a child closes those it was not given, and reuses the numbers."""
        if self._socket is not None:
            self._socket.detach()
        self._pid, self._fd, self._socket = os.getpid(), self._shared_fd, None


def unblocked_copy(fd: int) -> int:
    """Return a copy of ``fd``; of a pipe one that never waits for room, whoever else waits on it.

    Raises:
        OSError: it is closed.
    """
    with suppress(OSError):  # no /proc, or another user's: then as it is
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            return _opened_again(fd)
    return os.dup(fd)


def _opened_again(pipe_fd: int) -> int:
    """Return another opening of a pipe: to switch this one would hit everybody who shares it, a shell included."""
    return os.open(f"/proc/self/fd/{pipe_fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _unblocked(fd: int) -> tuple[int, socket.socket | None]:
    """Return a way to write to ``fd`` that never waits, though another process may wait on the same pipe.

    That there was room a moment ago is no promise: somebody else may have filled it.
    """
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISSOCK(mode):  # the journal of systemd
            return fd, socket.socket(fileno=os.dup(fd))
        if stat.S_ISFIFO(mode):
            return _opened_again(fd), None
    except OSError:
        pass  # closed, no /proc, or another user's: then as it is
    return fd, None


class FileSink(Sink):
    """A file that lines are appended to, and that can be rotated: by renaming it, or by copying and truncating.

    A pipe or terminal in its place, such as /dev/stdout, is written to as a stream is: its reader may hang.
    """

    def __init__(
        self,
        path: str,
        *,
        number: Callable[[], int] = lambda: 0,
        on_open: Callable[[int], None] | None = None,
        instead: int | None = None,
    ) -> None:
        """Open or make ``path``, and again when ``number`` gives another one; ``on_open`` gets the descriptor.

        Until it can be opened, lines go to a copy of the descriptor ``instead``.

        Raises:
            OSError: it cannot be opened or made, and there is none.
        """
        self.path = path
        self._pid = os.getpid()
        self._number = number
        self._on_open = on_open
        self._opened = number()
        self._fd = -1
        self._stream: LineSink | None = None  # where it is no regular file
        try:
            self._open()
        except OSError as error:
            if instead is None:
                raise
            self._is_unopened(error)
            with suppress(OSError):  # closed: lines are dropped
                self._fd = os.dup(instead)
                self._look_at_kind()

    def write(self, line: bytes) -> None:
        """Append ``line`` in one piece, or drop it."""
        self.look()
        if self._stream is not None:
            self._stream.write(line)
            self.dropped = self._stream.dropped
            return
        try:
            written = os.write(self._fd, line)
        except OSError:
            written = 0
        if written == len(line):
            self.dropped = 0
        else:  # the disk is full; to write the rest later would put it behind somebody else's line
            self.dropped += 1

    def look(self) -> None:
        """Open the file anew if that was asked for."""
        number = self._number()
        if number == self._opened:
            return
        self._opened = number
        try:
            self._open()
        except OSError as error:
            self._is_unopened(error)

    def close(self) -> None:
        """Close it; lines written from now on are dropped."""
        if self._fd >= 0 and self._pid == os.getpid():
            if self._stream is not None:
                self._stream.close()
                self._stream = None
            os.close(self._fd)
            self._fd = -1

    def _is_unopened(self, error: OSError) -> None:
        self.problem = f"{self.path} cannot be opened anew: {error.strerror or error}"

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        opened = os.open(self.path, flags | os.O_NONBLOCK, _FILE_MODE)  # a pipe without a reader is refused at once
        os.set_blocking(opened, True)
        if self._fd >= 0:
            os.dup2(opened, self._fd, inheritable=False)  # in one step: no line finds it closed
            os.close(opened)
        else:
            self._fd = opened
        self.problem = ""
        self._look_at_kind()
        if self._on_open is not None:
            self._on_open(self._fd)

    def _look_at_kind(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = None if stat.S_ISREG(os.fstat(self._fd).st_mode) else LineSink(self._fd)
        if self._stream is not None:
            self._stream.dropped = self.dropped


def open_log_file(
    path: str | None,
    number: Callable[[], int],
    *,
    on_open: Callable[[int], None] | None = None,
    instead: int | None = None,
) -> FileSink | None:
    """Open the log file, if there is to be one; see ``FileSink``.

    Raises:
        CannotCreateError: it cannot be opened or made, and there is no descriptor ``instead``.
    """
    try:
        return None if path is None else FileSink(path, number=number, on_open=on_open, instead=instead)
    except OSError as error:
        raise CannotCreateError(
            f"log.file {path} cannot be opened: {error.strerror or error}; make its directory, writable for uid "
            f"{os.getuid()}, or set log.file (TENURE_LOG__FILE) to another file"
        ) from error


def take_stderr(fd: int) -> None:
    """Send this process's output to standard error to ``fd``: stacks, warnings of libraries, output of children."""
    os.dup2(fd, STDERR)


class StreamSink(Sink):
    """A stream without a descriptor, such as a test's ``StringIO``."""

    def __init__(self, stream: IO[Any]) -> None:
        self._stream = stream

    def write(self, line: bytes) -> None:
        """Write ``line`` as text, or as bytes if the stream takes nothing else."""
        try:
            self._stream.write(line.decode(errors="replace"))
        except TypeError:
            self._stream.write(line)


def open_sink(stream: IO[Any] | int | None) -> tuple[Sink, bool]:
    """Return the sink for ``stream``, and whether it is a terminal."""
    if stream is None:
        return Sink(), False
    if isinstance(stream, int):
        return LineSink(stream), os.isatty(stream)
    try:
        fd = stream.fileno()
    except (OSError, AttributeError, ValueError):
        return StreamSink(stream), False
    return LineSink(fd), os.isatty(fd)
