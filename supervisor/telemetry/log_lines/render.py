"""Rendering of log events as lines: JSON for machines, columns for people."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from traceback import TracebackException
from types import TracebackType
from typing import Any

import msgspec

from supervisor.telemetry.controls import escape_controls, without_controls
from supervisor.telemetry.log_lines.log_sink import LINE_BYTES_MAX
from supervisor.telemetry.masking import mask_text, text_of

Event = dict[str, Any]
Render = Callable[[Event], bytes]

FIELD_CHARS_MAX = 1500
SUMMARY_CHARS_MAX = 500
TRACEBACK_CHARS_MAX = 32_000
MESSAGE_CHARS_MAX = 8_000
FRAMES_MAX = 12
_KEPT = ("ts", "level", "event", "cluster", "replica", "role", "pid", "run", "job", "schedule", "attempt")
_COLUMNS = frozenset({"ts", "level", "event", "cluster", "replica", "role", "pid", "traceback"})
_OF_RUN = _COLUMNS | {"run", "job", "schedule", "attempt", "trace_id"}
_COLOURS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "1;31"}
_encoder = msgspec.json.Encoder()


def format_ts(wall_ms: int) -> str:
    """Return ``wall_ms`` as ISO 8601 in UTC with milliseconds."""
    seconds, milliseconds = divmod(wall_ms, 1000)
    return f"{_format_second(seconds)}.{milliseconds:03d}Z"


@lru_cache(maxsize=4)
def _format_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def render_json(event: Event) -> bytes:
    """Return ``event`` as one JSON line of at most PIPE_BUF bytes, so that one write carries it whole."""
    line = _encode(event)
    return line if len(line) <= LINE_BYTES_MAX else _shrink(event)


def cut(text: str, chars: int) -> str:
    """Return the start of ``text``, and how much was left out."""
    return text if len(text) <= chars else f"{text[:chars]}…(+{len(text) - chars})"


def _encode(event: Event) -> bytes:
    try:
        return without_controls(_encoder.encode(event)) + b"\n"
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError):
        texts = {_printable(name): _printable(str(value)) for name, value in event.items()}
        return without_controls(_encoder.encode(texts)) + b"\n"


def _printable(text: str) -> str:
    """Escape lone surrogates, which file names may hold and JSON may not."""
    return text.encode("utf-8", "backslashreplace").decode()


def _shrink(event: Event) -> bytes:
    """Halve the largest field until the line fits; at worst only the identity is left."""
    texts = {name: value if isinstance(value, str) else _encode({"": value}).decode() for name, value in event.items()}
    shrunk = dict(event)
    for _ in range(64):
        name = max(texts, key=lambda key: len(texts[key].encode("utf-8", "backslashreplace")))
        texts[name] = texts[name][: len(texts[name]) // 2]
        shrunk[name] = texts[name] + "…"
        line = _encode({**shrunk, "cut": True})
        if len(line) <= LINE_BYTES_MAX:
            return line
    return _encode({name: cut(str(event[name]), 100) for name in _KEPT if name in event} | {"cut": True})


def exception_fields(exc_info: Any) -> Event:
    """Return an exception as two short fields: the error, and where from, innermost frame first."""
    error = _exception_of(exc_info)
    if error is None:
        return {}
    origin = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    because = f" (from {_summary(origin)})" if origin is not None else ""
    return {"exception": _summary(error) + because, "trace": list(_frames(error.__traceback__))}


def exception_text(exc_info: Any) -> Event:
    """Return an exception as the whole traceback, for a terminal."""
    error = _exception_of(exc_info)
    if error is None:
        return {}
    rendered = traceback.TracebackException.from_exception(error)
    return {"traceback": end_of_traceback(rendered, chars=TRACEBACK_CHARS_MAX, piece_chars=MESSAGE_CHARS_MAX).rstrip()}


def print_traceback(error: BaseException) -> None:
    """Write the traceback to standard error, masked and without controls, as in the log."""
    if sys.stderr is not None:
        sys.stderr.write(escape_controls(exception_text(error)["traceback"]) + "\n")


def _exception_of(exc_info: Any) -> BaseException | None:
    if isinstance(exc_info, BaseException):
        return exc_info
    return exc_info[1] if isinstance(exc_info, tuple) else None


def _summary(error: BaseException) -> str:
    return mask_text(f"{type(error).__name__}: {text_of(error)}".removesuffix(": "), SUMMARY_CHARS_MAX)


def _frames(trace: TracebackType | None) -> Iterator[str]:
    summary = traceback.extract_tb(trace)
    for frame in list(reversed(summary))[:FRAMES_MAX]:
        yield f"{'/'.join(frame.filename.split('/')[-2:])}:{frame.lineno} {frame.name}"


def console_renderer(*, coloured: bool) -> Render:
    """Return a renderer for a terminal: time, level, who, event, fields."""

    def paint(text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if coloured else text

    def render(event: Event) -> bytes:
        level = event["level"]
        who = f"{event['cluster']}/{event['replica']} {event['role']}[{event['pid']}]"
        fields = " ".join(
            f"{paint(_escape(name), '36')}={_field(value)}" for name, value in event.items() if name not in _COLUMNS
        )
        head = f"{paint(event['ts'][11:], '2')} {paint(f'{level:<8}', _COLOURS.get(level, '0'))} {paint(who, '2')}"
        line = f"{head} {paint(_escape(str(event['event'])), '1')} {fields}".rstrip()
        tail = "".join(f"\n{_escape(each)}" for each in event["traceback"].split("\n")) if "traceback" in event else ""
        return f"{line}{tail}\n".encode("utf-8", "backslashreplace")

    return render


def run_line(event: Event) -> str:
    """Return ``event`` as a line in the output of its run: time, level, event, fields but those that name the run."""
    fields = "".join(f" {name}={_field(value)}" for name, value in event.items() if name not in _OF_RUN)
    tail = f"\n{event['traceback']}" if "traceback" in event else ""
    return f"{event['ts'][11:-1]} {event['level']:<8} {event['event']}{fields}{tail}\n"


def _field(value: Any) -> str:
    text = value if isinstance(value, str) else _encode({"": value})[4:-2].decode()
    return cut(text if text.isprintable() and text and " " not in text else repr(text), FIELD_CHARS_MAX)


def _escape(text: str) -> str:
    """Keep control characters of a message away from the terminal that would obey them."""
    return text if text.isprintable() else repr(text)[1:-1]


def end_of_traceback(rendered: TracebackException, *, chars: int, piece_chars: int) -> str:
    """Return the last frames and the message, masked.

    Args:
        rendered: the exception with those that led to it.
        chars: how much is wanted; the result may be longer by one piece.
        piece_chars: how much of one frame or message is shown, so that a long message leaves room for the frames.
    """
    pieces: list[str] = []
    wanted = chars
    for piece in reversed(list(rendered.format())):
        if wanted <= 0:
            pieces.append("…\n")
            break
        pieces.append(mask_text(piece.removesuffix("\n"), piece_chars) + "\n")
        wanted -= len(pieces[-1])
    return "".join(reversed(pieces))
