"""Search path of modules that a configuration names."""

from __future__ import annotations

import sys
from pathlib import Path

from supervisor.trust import distrust_path


def search_here() -> None:
    """Look in the current directory too, if it is trusted: a script does not, and users keep their jobs there.

    Last, so that nothing in it replaces an installed module.
    """
    here = str(Path.cwd())
    if here not in sys.path and not distrust_path(Path(here)):
        sys.path.append(here)


def remedy_of_missing() -> str:
    """Return the remedy for a module that was not found."""
    here = Path.cwd()
    why = "" if str(here) in sys.path else distrust_path(here)
    if not why:
        return "install it, or start where it lies; the name is package.module"
    return f"install it; nothing in {here} is imported, since {why}: name it by --module-path if you trust it"
