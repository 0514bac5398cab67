"""A broken rule, before it is known where its settings were written."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.settings.base import Path


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule. The first path is the one a person is sent to, unless only others were written."""

    paths: tuple[Path, ...]
    message: str
    remedy: str = ""


def split(message: str) -> tuple[str, str]:
    """Return the message and the remedy of an error of the core, which separates them by a semicolon."""
    text, _, remedy = message.rpartition("; ")
    return (text, remedy) if text else (message, "")
