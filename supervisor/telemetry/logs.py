"""Logs: events with fields, one line each, that name the process and its replica.

``structlog.get_logger()`` anywhere; ``configure`` once in each process, again after a fork.

Guarantees
    Every line carries ts, level, event, cluster, replica, role, pid, and inside a run also
    run, job, schedule, attempt. A field that an event gives the same name keeps its value
    as ``<name>_``.
    Values under secret names and credentials in URLs are masked (telemetry/masking.py).
    Writing takes no lock and starts no thread, so a fork at any moment is safe.
    Lines that libraries send to ``logging`` and ``warnings`` come out in the same form. So do those of a program that
    configures structlog for itself, as a module is imported or while a job runs: that changes nothing from here on.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import IO, Any, Literal

import structlog
from structlog.contextvars import merge_contextvars

from supervisor.clock import Clock, SystemClock
from supervisor.core.units import SECOND_NS
from supervisor.telemetry.log_lines.log_sink import FileSink, Sink, open_sink
from supervisor.telemetry.log_lines.render import (
    FIELD_CHARS_MAX,
    Event,
    Render,
    console_renderer,
    exception_fields,
    exception_text,
    format_ts,
    render_json,
    run_line,
)
from supervisor.telemetry.masking import NAME_CHARS_MAX, TEXT_CHARS_MAX, mask, mask_entry, mask_text, text_of
from supervisor.telemetry.run_context import bind_run, heard, merge_run

__all__ = ["LEVELS", "bind_run", "configure", "look", "retune"]

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_configure = structlog.configure
_RESERVED = ("ts", "level", "cluster", "replica", "role", "pid")
FOLD_S = 60.0
EVERY_JOB = "*"
"""Stands for all jobs, and for lines outside of runs."""

_NONE: frozenset[str] = frozenset()
_ALWAYS_WRITTEN = frozenset({"error", "exception", "critical", "fatal"})


@dataclass(frozen=True, slots=True)
class LogRules:
    """Rules of the settings, beside those that hold everywhere (masking.py)."""

    hidden: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Job name, or ``EVERY_JOB``, to names whose values are masked on its lines."""

    exclude: frozenset[str] = _NONE
    """Events that are not written below error."""

    @classmethod
    def of(cls, *, mask: Mapping[str, Collection[str]], exclude: Collection[str]) -> LogRules:
        """Return rules as they are set; each job's hold beside those of all."""
        everywhere = frozenset(mask.get(EVERY_JOB, ()))
        return cls({job: everywhere.union(names) for job, names in mask.items()}, frozenset(exclude))

    def names_for(self, job: Any) -> frozenset[str]:
        """Return the names whose values are masked on a line of ``job``; None: outside of runs."""
        if not self.hidden:
            return _NONE
        found = self.hidden.get(job) if isinstance(job, str) else None
        return self.hidden.get(EVERY_JOB, _NONE) if found is None else found

    def drops(self, event: Any, level: str) -> bool:
        """Return whether a line is not written."""
        return bool(self.exclude) and event in self.exclude and level not in _ALWAYS_WRITTEN


NO_RULES = LogRules()


@dataclass(frozen=True, slots=True)
class _Output:
    """Output of this process's log lines: the sink, and the fields common to all lines."""

    sink: Sink
    render: Render
    is_console: bool
    clock: Clock
    cluster: str
    replica: str
    role: str
    rules: LogRules

    def msg(self, line: bytes) -> None:
        """Write a rendered line; structlog calls this under the name of each level."""
        self.sink.write(line)

    debug = info = warning = warn = error = exception = critical = fatal = log = msg

    def process(self, _logger: Any, level: str, event: MutableMapping[str, Any]) -> bytes:
        """Render one event: the last, and but for the context the only, processor."""
        if self.rules.drops(event.get("event"), level):
            raise structlog.DropEvent
        also = self.rules.names_for(event.get("job"))
        self.sink.look()  # before the line is made: what it finds stands in it
        fields: Event = {
            "ts": format_ts(self.clock.wall_ms()),
            "level": "error" if level == "exception" else level,
            "event": event.pop("event", ""),
            "cluster": self.cluster,
            "replica": self.replica,
            "role": self.role,
            "pid": os.getpid(),  # asked each time: a copy would be wrong after a fork
        }
        chars = TEXT_CHARS_MAX if self.is_console else FIELD_CHARS_MAX
        fields["event"] = mask(fields["event"], chars=chars)
        exc_info = event.pop("exc_info", None)
        event.pop("stack_info", None)
        if exc_info:
            shown = exception_text if self.is_console else exception_fields
            event.update(shown(sys.exc_info() if exc_info is True else exc_info))
        for name, value in event.items():
            shown_name = f"{name}_" if name in _RESERVED else mask_text(name, NAME_CHARS_MAX)
            fields[shown_name] = mask_entry(name, value, also=also, chars=chars)
        if self.sink.dropped:
            fields["lines_dropped"] = self.sink.dropped
        if self.sink.problem:
            fields["log_problem"] = self.sink.problem
        if (output := heard()) is not None:
            output.add(run_line(fields))
        return self.render(fields)


class _StdlibHandler(logging.Handler):
    """Writes records of ``logging`` as lines of ours. Holds no lock: one write needs none.

    By a chain of its own: one that a program configured may lead to ``logging``, and so back here, for ever.
    """

    def __init__(self, chain: Any) -> None:
        super().__init__()
        self._chain = chain

    def createLock(self) -> None:  # noqa: N802 - the name is logging's
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        # As the base class does, but without its lock: from Python 3.13 on it no longer copes with None.
        found = self.filter(record)
        if isinstance(found, logging.LogRecord):
            record = found  # 3.12: a filter may replace the record
        if found:
            self.emit(record)
        return bool(found)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - a library's bad format string or repr is not worth its caller's life
            message = _unformatted(record.msg, record.args)
        level = max((known for known in LEVELS.values() if known <= record.levelno), default=10)
        self._chain.log(level, message, logger=record.name, exc_info=record.exc_info)


def _unformatted(message: Any, args: Any) -> str:
    return f"{text_of(message, repr)} {text_of(args, repr)}"


def _bound_logger(level: int) -> type[Any]:
    """Return structlog's logger for ``level`` and above; values its message cannot take are named instead."""
    base = structlog.make_filtering_bound_logger(level)

    def forgiving(method: Callable[..., Any]) -> Callable[..., Any]:
        def write(self: Any, event: str, *args: Any, **fields: Any) -> Any:
            try:
                return method(self, event, *args, **fields)
            except Exception:
                if not args:
                    raise
                return method(self, _unformatted(event, args), **fields)

        return write

    return type(base.__name__, (base,), {name: forgiving(getattr(base, name)) for name in ("msg", "warn", *LEVELS)})


class _Last:
    """The sink that lines of this process go to, so that another one can take its place."""

    def __init__(self) -> None:
        self.sink = Sink()
        self.install: Callable[[str, str, LogRules], None] | None = None

    def replace(self, sink: Sink) -> None:
        before, self.sink = self.sink, sink
        if before is not sink:
            before.close()


_last = _Last()


def look() -> None:
    """Open the log file anew if that was asked for, as each line that is logged does too. Costs next to nothing."""
    _last.sink.look()


def configure(
    *,
    level: str,
    format: Literal["auto", "json", "console"],  # noqa: A002 - the setting's own name
    cluster: str,
    replica: str,
    role: str,
    stream: IO[Any] | int | None = None,
    file: FileSink | None = None,
    clock: Clock | None = None,
    rules: LogRules = NO_RULES,
) -> None:
    """Set up logging for this process. Call it again in a child, with the child's role.

    Args:
        level: least level that is written: debug, info, warning, error.
        format: ``auto`` is ``console`` on a terminal and ``json`` otherwise.
        cluster: name of the cluster, for every line.
        replica: id of the replica, for every line.
        role: role of this process, for every line.
        stream: where to write; a stream, a descriptor, or None for standard error.
        file: where to write instead.
        clock: source of the time; None for the machine's.
        rules: which lines are left out.
    """
    sink, is_terminal = (file, False) if file is not None else open_sink(sys.stderr if stream is None else stream)
    _last.replace(sink)
    coloured = is_terminal and not os.environ.get("NO_COLOR")

    def install(level: str, format_: str, rules: LogRules) -> None:
        is_console = format_ == "console" or (format_ == "auto" and is_terminal)
        output = _Output(
            sink=sink,
            render=console_renderer(coloured=coloured) if is_console else render_json,
            is_console=is_console,
            clock=clock or SystemClock(),
            cluster=cluster,
            replica=replica,
            role=role,
            rules=rules,
        )
        chain: dict[str, Any] = {
            "processors": [merge_contextvars, merge_run, output.process],
            "wrapper_class": _bound_logger(LEVELS[level]),
            # A cached logger would keep the role that was configured before the fork.
            "cache_logger_on_first_use": False,
        }
        _configure(logger_factory=lambda *_: output, **chain)
        structlog.configure = structlog.configure_once = _keep
        _route_stdlib(LEVELS[level], structlog.wrap_logger(output, **chain))

    _last.install = install
    install(level, format, rules)


def retune(*, level: str, format: str, rules: LogRules = NO_RULES) -> None:  # noqa: A002 - the setting's own name
    """Write from now on lines of ``level`` or above, in ``format``, by ``rules``, to where this process writes."""
    if _last.install is not None:
        _last.install(level, format, rules)


def _keep(*_args: Any, **_chain: Any) -> None:
    """Leave structlog as it is, in place of ``structlog.configure``."""


def _route_stdlib(level: int, chain: Any) -> None:
    root = logging.getLogger()
    root.handlers[:] = [_StdlibHandler(chain)]
    # Libraries' debug output is about their insides, and asyncio's alone would drown ours.
    root.setLevel(max(level, logging.INFO))
    logging.captureWarnings(capture=True)


class RepeatedWarning:
    """A warning that every request of a stranger may cause: the first at once, then a line a minute with their number.

    It has the fields of its last occurrence.
    """

    def __init__(self, event: str, clock: Clock) -> None:
        self._event = event
        self._clock = clock
        self._fields: dict[str, object] = {}
        self._count = 0
        self._told_ns: int | None = None

    def add(self, **fields: object) -> None:
        """Count one occurrence."""
        self._count += 1
        self._fields = fields
        self.tell()

    def tell(self) -> None:
        """Log what has come since the last line, if that is a minute ago. Call it now and then."""
        now_ns = self._clock.elapsed_ns()
        if self._count and (self._told_ns is None or now_ns - self._told_ns >= FOLD_S * SECOND_NS):
            structlog.get_logger().warning(self._event, count=self._count, **self._fields)
            self._count, self._told_ns = 0, now_ns
