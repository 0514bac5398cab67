"""A program under guard that answers lines with lines.

Guarantees
    Memory is bounded, whatever it writes: one line up to its limit, 64 KiB more, the end of its standard error.
    A result is read when it is wanted: until then the pipe is full, and the program waits.
    ``close`` leaves no process of its group, no zombie and no descriptor, at whatever point an exception (a soft
    timeout arrives as one) cut the rest off. When the process that started it dies, so does its group.
    Every wait has a bound, given by ``until_ns``.

Does not guarantee
    That it read the sent data: that shows when it answers.
"""

from __future__ import annotations

import os
import select
from collections import deque
from contextlib import suppress

from supervisor.clock import Clock
from supervisor.core.errors import TenureError
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.plugins.protocol import HELD_CHARS_MAX, ProtocolError, shown
from supervisor.plugins.redaction import Masker
from supervisor.process.command.guard import AT_CWD, AT_EXEC, AT_LIMIT, PLACES
from supervisor.process.command.handle import WAIT_MS_MAX, CommandEnd, CommandGuard, signals_held
from supervisor.process.command.spec import Launch

CHUNK_BYTES = 64 * 1024
ERRORS_KEPT = HELD_CHARS_MAX
ERRORS_SHOWN = 2048
ENDING_S = 1.0  # how long after the end of its output a program may take to be gone


class ProgramEndedError(TenureError):
    """It ended, or never started; the message has the way it ended, with its last words."""


class ProgramTimeoutError(TenureError):
    """It did not answer in time."""


class Program:
    """One running program. Always ``close`` it."""

    def __init__(self, clock: Clock, *, line_bytes_max: int, mask: Masker | None = None) -> None:
        self._mask = mask or Masker()
        self._clock = clock
        self._line_bytes_max = line_bytes_max
        self._guard = CommandGuard()
        self._input = self._output = self._errors = -1
        self._lines: deque[bytes] = deque()
        self._rest = bytearray()  # the beginning of a line whose end is not here
        self._said = bytearray()  # the end of its standard error
        self._ending: CommandEnd | None = None
        self._owner = os.getpid()

    def __del__(self) -> None:
        # A soft timeout can arrive between the start of a program and the moment at which somebody holds it.
        if os.getpid() == self._owner:
            self.close()

    def start(self, launch: Launch) -> None:
        """Start it."""
        with signals_held():
            theirs: list[int] = []
            try:
                stdin, self._input = os.pipe()
                theirs.append(stdin)
                self._output, output = os.pipe()
                theirs.append(output)
                self._errors, errors = os.pipe()
                theirs.append(errors)
                for number in (self._input, self._output, self._errors):
                    os.set_blocking(number, False)
                self._guard.fork(launch, stdin=stdin, output=output, errors=errors)
            finally:
                for number in theirs:
                    os.close(number)

    @property
    def is_running(self) -> bool:
        """True if it is there, as far as its guard has reported."""
        if self._guard.is_running and self._ending is None and _is_ready(self._guard.status):
            self._ending = self._guard.take_report()
        return self._guard.is_running and self._ending is None

    @property
    def last_words(self) -> str:
        """The end of its standard error, without secrets."""
        self._read_errors()
        text = bytes(self._said).decode(errors="replace")
        text = self._mask(text) if len(self._said) < ERRORS_KEPT else self._mask.end_of(text)
        text = text.strip()
        if len(text) <= ERRORS_SHOWN:
            return text
        return text[-ERRORS_SHOWN:].partition("\n")[2] or text[-ERRORS_SHOWN:]

    def unread_line(self) -> bytes | None:
        """Return a line that it wrote although nobody asked, if there is one."""
        if not self._lines and self._output >= 0:
            self._read_output()
        return self._lines[0] if self._lines else (bytes(self._rest) or None)

    def send(self, line: bytes, *, until_ns: int) -> None:
        """Write all of ``line``.

        Raises:
            ProgramEndedError: it reads no more.
            ProgramTimeoutError: it does not read.
        """
        view = memoryview(line)
        while view:
            self._wait(self._input, select.POLLOUT, until_ns, "did not read what it was sent")
            try:
                view = view[os.write(self._input, view) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise ProgramEndedError(self._how_it_ended()) from None

    def read_line(self, *, until_ns: int) -> bytes:
        """Return the next line, without its end.

        Raises:
            ProtocolError: it is too long.
            ProgramEndedError: there is none any more.
            ProgramTimeoutError: there is none yet.
        """
        while not self._lines:
            self._wait(self._output, select.POLLIN, until_ns, "did not answer")  # ended, and all read: raises
            if self._read_output() == 0:
                raise ProgramEndedError(self._how_it_ended())
        return self._lines.popleft()

    def stop(self, *, patience_s: float) -> None:
        """End it: by the end of its input, then SIGTERM, each with ``patience_s``, then SIGKILL."""
        with signals_held():
            if self._input >= 0:
                os.close(self._input)
                self._input = -1
            if not self._gone_within(patience_s):
                self._guard.ask_to_end()
                self._gone_within(patience_s)
            self.close()

    def interrupt(self, *, patience_s: float) -> None:
        """End it in the middle of a call: by SIGTERM, after ``patience_s`` SIGKILL."""
        with signals_held():
            self._guard.ask_to_end()
            self._gone_within(patience_s)
            self.close()

    def close(self) -> None:
        """Kill remaining processes, reap the guard, close the pipes. Safe to call at any point, and twice."""
        with signals_held():
            self._guard.close()
            for number in (self._input, self._output, self._errors):
                if number >= 0:
                    os.close(number)
            self._input = self._output = self._errors = -1

    def _wait(self, descriptor: int, event: int, until_ns: int, what: str) -> None:
        """Wait until ``descriptor`` is ready; its standard error is read meanwhile.

        Its end ends the wait too, because processes that left its group may keep the pipes open for ever.
        """
        poller = select.poll()
        poller.register(descriptor, event)
        if self._guard.status >= 0:
            poller.register(self._guard.status, select.POLLIN)
        if self._errors >= 0:
            poller.register(self._errors, select.POLLIN)
        while True:
            left_ns = until_ns - self._clock.elapsed_ns()
            if left_ns <= 0:
                raise ProgramTimeoutError(f"{what} in time")
            has_ended = not self.is_running  # asked first: what it wrote before is in the pipe by now
            ready = dict(poller.poll(0 if has_ended else min(WAIT_MS_MAX, left_ns // MILLISECOND_NS + 1)))
            if self._errors in ready and not self._read_errors():
                poller.unregister(self._errors)
                os.close(self._errors)
                self._errors = -1
            if descriptor in ready:
                return
            if has_ended:
                raise ProgramEndedError(self._how_it_ended())

    def _read_output(self) -> int | None:
        """Read the available output: the number of bytes, 0 at the end, None when there are none now."""
        try:
            chunk = os.read(self._output, CHUNK_BYTES)
        except BlockingIOError:
            return None
        first, *others = chunk.split(b"\n")
        self._rest += first
        self._refuse_long(self._rest)
        if others:
            if self._line_bytes_max < CHUNK_BYTES:
                for line in others:
                    self._refuse_long(line)
            self._lines.append(bytes(self._rest))
            self._lines.extend(others[:-1])
            self._rest = bytearray(others[-1])
        return len(chunk)

    def _refuse_long(self, line: bytes | bytearray) -> None:
        if len(line) > self._line_bytes_max:
            limit = self._line_bytes_max // 1024
            beginning = shown(bytes(line[:HELD_CHARS_MAX]), self._mask)
            raise ProtocolError(f"wrote a line longer than {limit} KiB (line_kib_max): {beginning}")

    def _read_errors(self) -> bool:
        """Read the available standard error; false once it is closed."""
        if self._errors < 0:
            return False
        try:
            chunk = os.read(self._errors, CHUNK_BYTES)
        except BlockingIOError:
            return True
        self._said += chunk[-ERRORS_KEPT:]
        del self._said[:-ERRORS_KEPT]
        return bool(chunk)

    def _gone_within(self, seconds: float) -> bool:
        """Wait until it is gone; its further output is read and dropped, so that it can end."""
        until_ns = self._clock.elapsed_ns() + round(seconds * SECOND_NS)
        poller = select.poll()
        if self._guard.status < 0:
            return True
        poller.register(self._guard.status, select.POLLIN)
        for number in (self._output, self._errors):
            if number >= 0:
                poller.register(number, select.POLLIN)
        while self._ending is None and (left_ns := until_ns - self._clock.elapsed_ns()) > 0:
            for number, _ in poller.poll(left_ns // MILLISECOND_NS + 1):
                if number == self._guard.status:
                    self._ending = self._guard.take_report()
                elif self._drop(number) == 0:
                    poller.unregister(number)
        return self._ending is not None

    def _drop(self, number: int) -> int | None:
        if number == self._errors:
            return int(self._read_errors())
        with suppress(BlockingIOError):
            return len(os.read(number, CHUNK_BYTES))
        return None

    def _how_it_ended(self) -> str:
        with signals_held():
            self._gone_within(ENDING_S)
        how = "closed its output, and did not end" if self._ending is None else describe(self._ending)
        said = self.last_words
        return f"{how}; its last words: {said}" if said else how


def describe(ending: CommandEnd) -> str:
    """Return how a program ended, for people."""
    if ending.failed_at is not None:
        where, number = ending.failed_at
        reasons = {AT_CWD: "its cwd", AT_EXEC: "its command", AT_LIMIT: "one of its limits", **PLACES}
        return f"could not be started: {reasons.get(where, 'its guard')}: {os.strerror(number)}"
    if ending.wait_status is None:
        return "was killed with its guard"
    code = os.waitstatus_to_exitcode(ending.wait_status)
    return f"exited with {code}" if code >= 0 else f"was killed by signal {-code}"


def _is_ready(descriptor: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
