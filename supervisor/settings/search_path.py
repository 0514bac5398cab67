"""Where modules that a configuration names are looked for."""

from __future__ import annotations

import os
import sys


def search_here() -> None:
    """Look in the current directory too: a command installed as a script does not, where users keep their jobs.

    Last, so that nothing in it replaces an installed module.
    """
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path holds texts
        sys.path.append(os.getcwd())  # noqa: PTH109
