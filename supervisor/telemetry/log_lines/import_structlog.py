"""Imports structlog without rich, for processes that live long.

structlog imports rich if it is installed, for traces in colour that Tenure renders by itself
(telemetry/log_lines/render.py). For a tree that is 5 MiB in every parent, and a twentieth of the time it takes to
start.
"""

from __future__ import annotations

import sys
from importlib import import_module

_UNWANTED = "rich"


def import_structlog() -> None:
    """Import it as if rich were not installed; whoever asks for rich afterwards gets it."""
    if _UNWANTED in sys.modules:
        return
    sys.modules[_UNWANTED] = None  # type: ignore[assignment]  # what the import system takes for "there is none"
    try:
        import_module("structlog")
    finally:
        del sys.modules[_UNWANTED]
