"""The settings of the log."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from supervisor.settings.base import Section

JobPattern = Annotated[str, StringConstraints(pattern=r"^(\*|[^\s*]{1,200})$")]
FieldName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
EventName = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class LogSettings(Section):
    """Level, format, file and masking of the log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is written."""

    format: Literal["auto", "json", "console"] = "auto"
    """``auto``: readable on a terminal, JSON lines otherwise."""

    file: str | None = Field(default=None, min_length=1)
    """Append to this file instead of standard error. SIGUSR1 opens it anew after a rotation."""

    runs: Literal["failures", "all", "none"] = "failures"
    """Attempts whose output (prints and log lines) is kept for a week, for ``tenure runs logs``: up to 64 KiB of each,
    and 32 MiB of a cluster. ``failures``: those that did not succeed."""

    mask: dict[JobPattern, Annotated[tuple[FieldName, ...], Field(max_length=100)]] = Field(
        default_factory=dict, max_length=1000
    )
    """By job, names of fields and of what lies in them whose values are masked on its lines: ``{mail.send: [to]}``;
    ``"*"``: on every line. In addition to secrets, which are always masked."""

    exclude: tuple[EventName, ...] = Field(default=(), max_length=100)
    """Events whose lines are not written, such as ``run_succeeded``. Errors are written in any case."""
