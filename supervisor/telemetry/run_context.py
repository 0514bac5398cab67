"""Run context: the run that the current code belongs to, for each log line and for crash blame, and its output.

One context variable for all of a run's fields, because a worker sets it for each run: code that a
job starts, tasks included, inherits it. The output of an attempt is the start and the end of what its code printed and
logged, masked when it is read.

Guarantees
    An attempt that prints and logs nothing costs nothing here: its output is made with its first text.
    Text belongs to the attempt in whose context it is written, tasks and ``asyncio.to_thread`` included, and only until
    that attempt ends. A process that a job forks writes to the streams as before, and to no output.
    Memory is bounded, whatever is written. Writing logs nothing, waits for nobody, and raises nothing of its own.
    Text is masked where it is joined, so a secret in two pieces is one; nothing is shown of one that the cut divides.

Does not guarantee
    Bytes written to ``sys.stdout.buffer``, to a descriptor, or by another program.
    Text of plain threads: they do not inherit the context, unless they are given it (``contextvars.copy_context``).
    That a secret of more than 1,024 characters is masked where the cut divides it.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from supervisor.core.jobs.trace_context import trace_id_of
from supervisor.telemetry.masking import hidden_texts, mask_text


class Attempt(Protocol):
    """Attempt that code runs in."""

    ended_ns: int
    """When it ended; 0 while it goes on."""


class Keeper(Protocol):
    """Keeper of the outputs of attempts."""

    def of(self, attempt: Any) -> Any:
        """Return the output of an attempt that goes on."""
        ...


_RUN: ContextVar[Mapping[str, Any] | None] = ContextVar("tenure_run", default=None)
_SPEAKER: ContextVar[tuple[Keeper, Attempt] | None] = ContextVar("tenure_speaker", default=None)


def run_fields(
    *, run: str, job: str, schedule: str | None = None, attempt: int = 1, traceparent: str = ""
) -> dict[str, Any]:
    """Return the fields that name a run on a line of the log."""
    fields = {"run": run, "job": job, "attempt": attempt}
    if schedule is not None:
        fields["schedule"] = schedule
    if traceparent and (trace_id := trace_id_of(traceparent)):
        fields["trace_id"] = trace_id
    return fields


def enter_trace(traceparent: str) -> None:
    """Note that the run which is executed right now belongs to this trace."""
    fields = _RUN.get()
    if fields is not None:
        _RUN.set({**fields, "trace_id": trace_id_of(traceparent)})


def enter_run(fields: Mapping[str, Any] | None, speaker: tuple[Keeper, Attempt] | None = None) -> None:
    """Note that the code of this task, from now on, belongs to the run that ``fields`` name; None: to none.

    Its output belongs to the attempt of ``speaker``, whose keeper keeps it; None: nobody does.
    """
    _RUN.set(fields)
    _SPEAKER.set(speaker)


def current_run() -> Mapping[str, Any] | None:
    """Return the fields of the run that is executed right now; None outside of runs."""
    return _RUN.get()


@contextmanager
def bind_run(*, run: str, job: str, schedule: str | None = None, attempt: int = 1) -> Iterator[None]:
    """Put the run's identity on every line that is logged inside, by this task or those it starts."""
    token = _RUN.set(run_fields(run=run, job=job, schedule=schedule, attempt=attempt))
    try:
        yield
    finally:
        _RUN.reset(token)


def merge_run(_logger: Any, _level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the fields of the current run to an event, behind its own; a processor of structlog."""
    fields = _RUN.get()
    if fields is not None:
        for name, value in fields.items():
            event.setdefault(name, value)
    return event


HALF_BYTES = 32 * 1024
"""The most that is kept of the start, and of the end."""

_OVERLAP = 1024  # kept beyond each cut, so that it is known what the cut divides
_HALF_CHARS = HALF_BYTES + _OVERLAP
_PIECES_MAX = 500
_LINE_CHARS = 2048  # a cut is moved to the end of a line that is so near
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]{0,64}[ -/]{0,8}[@-~]|[@-Z\\-_])")
_CONTROLS = {
    code: "\ufffd"  # what a terminal obeys, and what turns the direction of text
    for first, end in ((0, 9), (11, 32), (127, 160), (0x200E, 0x2010), (0x2028, 0x202F), (0x2066, 0x206A))
    for code in range(first, end)
}


class Excerpt(NamedTuple):
    """Output as it is kept: all of it in ``head``, or its start and its end with the size of what lies between."""

    head: str
    tail: str = ""
    cut_chars: int = 0
    cut_lines: int = 0


class RunOutput:
    """Text of one attempt, within bounds."""

    def __init__(self) -> None:
        self.chars = 0
        """How many characters were written."""

        self.is_sent = False
        """Whether Redis may have some of it already."""

        self.sent_chars = 0
        self._lines = 0
        self._is_after_return = False
        self._head: list[str] = []
        self._tail: list[str] = []
        self._head_chars = self._tail_chars = 0
        self._hidden: tuple[str, ...] = ()
        self._lock = threading.RLock()  # a signal handler may write while its thread does

    def add(self, text: str) -> None:
        """Append ``text``; of a longer one than fits the start and the end stay."""
        with self._lock:
            self._hidden = hidden_texts() or self._hidden
            if text and ("\r" in text or self._is_after_return):
                text = self._line_ends(text)
            self.chars += len(text)
            self._lines += text.count("\n")
            room = _HALF_CHARS - self._head_chars
            if room > 0:
                first, text = text[:room], text[room:]
                self._head.append(first)
                self._head_chars += len(first)
                if len(self._head) > _PIECES_MAX:
                    self._head = ["".join(self._head)]
            if text:
                self._tail.append(text[-_HALF_CHARS:])
                self._tail_chars += len(self._tail[-1])
                if self._tail_chars > 2 * _HALF_CHARS or len(self._tail) > _PIECES_MAX:
                    self._tail = ["".join(self._tail)[-_HALF_CHARS:]]
                    self._tail_chars = len(self._tail[0])

    def _line_ends(self, text: str) -> str:
        """Return ``text`` with the line ends that are shown, also where two writes divide a pair of them."""
        if self._is_after_return:
            text = text.removeprefix("\n")
        self._is_after_return = text.endswith("\r")
        return _newlines(text)

    def excerpt(self, *, is_over: bool) -> Excerpt:
        """Return what is kept of it, masked.

        Args:
            is_over: whether nothing follows; else a line without its end is left out: it may hold half a secret.
        """
        with self._lock:
            chars, lines, hidden = self.chars, self._lines, self._hidden
            head, tail = "".join(self._head), "".join(self._tail)[-_HALF_CHARS:]
        is_whole = chars == len(head) + len(tail)
        if not is_over:
            chars -= len(head) + len(tail)
            if lines == head.count("\n"):  # the line without its end begins in the head: all before it is there
                head, tail, chars, is_whole = _whole_lines(head), "", 0, True
            tail = _whole_lines(tail)
            chars += len(head) + len(tail)

        hidden = tuple(filter(None, map(_clean, hidden)))

        def shown(text: str) -> str:
            clean = _clean(text)
            return mask_text(clean, max(1, len(clean)), hidden=hidden)

        if is_whole:
            whole = shown(head + tail)
            if len(_bytes(whole)) <= 2 * HALF_BYTES:
                return Excerpt(_bytes(whole).decode())
            start, end = whole, whole
        else:
            start, end = shown(head)[:-_OVERLAP], shown(tail)[_OVERLAP:]
        start = _start(_bytes(start)[:HALF_BYTES].decode(errors="ignore"))
        end = _end(_bytes(end)[-HALF_BYTES:].decode(errors="ignore"))
        return Excerpt(
            start, end, max(0, chars - len(start) - len(end)), max(0, lines - start.count("\n") - end.count("\n"))
        )


_is_child = False


def _forked() -> None:
    global _is_child  # noqa: PLW0603 - of this process
    _is_child = True


os.register_at_fork(after_in_child=_forked)


def heard() -> RunOutput | None:
    """Return the output that text of this moment belongs to; None if it is nobody's, or is not kept."""
    speaker = _SPEAKER.get()
    if speaker is None or _is_child:
        return None
    keeper, attempt = speaker
    return None if attempt.ended_ns else keeper.of(attempt)


def add_output(text: str) -> None:
    """Add text of a program that the current attempt ran to its output, as lines of their own."""
    if text and (output := heard()) is not None:
        output.add(f"{text.rstrip()}\n")


@contextmanager
def streams_heard() -> Iterator[None]:
    """Add to the outputs of attempts what Python prints from now on, in this process; the streams get it as before."""
    global _is_child  # noqa: PLW0603 - of this process
    _is_child = False
    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    for stream in streams:
        stream.write = _tee(stream.write)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for stream in streams:
            with suppress(AttributeError):  # a job took it away
                del stream.write


def _tee(write: Callable[[str], int]) -> Callable[[str], int]:
    def write_both(text: Any) -> int:
        if isinstance(text, str) and text and (output := heard()) is not None:
            output.add(text)
        return write(text)

    return write_both


def _clean(text: str) -> str:
    return _ESCAPE.sub("", _newlines(text)).translate(_CONTROLS)


def _newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # lone surrogates


def _whole_lines(text: str) -> str:
    return text[: text.rfind("\n") + 1]


def _start(text: str) -> str:
    at = text.rfind("\n", max(0, len(text) - _LINE_CHARS))
    return text[: at + 1] if at >= 0 else text


def _end(text: str) -> str:
    at = text.find("\n", 0, _LINE_CHARS)
    return text[at + 1 :] if at >= 0 else text
