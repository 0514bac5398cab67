"""Confinement of commands and plugin programs: user, environment, control group, readable and writable paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR")
"""Variables that a command has of the tree's environment unless the configuration lists others, by name or pattern."""

SYSTEM_PATHS = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt")
"""What a program whose files are listed may read and execute where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """Identity, control group and file access of started programs."""

    current: ClassVar[Confinement]
    """That of the commands of this process, as its settings say."""

    umask_at_start: ClassVar[int | None] = None
    """That of the tree before it took its own; None: this process still has the one that it was started with."""

    env: Sequence[str] = INHERITED
    user: str | None = None
    """Name or number; None: the tree's."""

    group: str | None = None
    """Name or number; None: the first of ``user``."""

    cgroup: str | None = None
    """Directory of a control group; None: the tree's."""

    read_paths: Sequence[str] = ()
    """What may be read and executed, with all below; with ``write_paths`` empty: everything."""

    write_paths: Sequence[str] = ()
    """What may be changed besides."""

    umask: int | None = None
    """None: ``umask_at_start``."""

    @property
    def has_paths(self) -> bool:
        """True if files are listed, by Landlock."""
        return bool(self.read_paths or self.write_paths)


Confinement.current = Confinement()
