"""What a command or a plugin's program is given of the tree that starts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR")
"""Variables that a command has of the tree's environment unless the configuration lists others, by name or pattern."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What ``shell.command`` starts its commands with."""

    env: Sequence[str] = INHERITED


_current = Confinement()


def use_confinement(confinement: Confinement) -> None:
    """Make ``confinement`` the one of the commands of this process."""
    global _current  # noqa: PLW0603 - one for all jobs of a process, as its settings say
    _current = confinement


def current_confinement() -> Confinement:
    """Return the one of this process."""
    return _current
