"""Another user for a while, so that modes of files count also where the tests run as root."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_NOBODY = 65534
_PR_SET_DUMPABLE, _PR_GET_DUMPABLE = 4, 3
_prctl = ctypes.CDLL(None).prctl


@contextmanager
def as_nobody() -> Iterator[None]:
    """Be an unprivileged user to the file system; whoever is not root stays who they are."""
    if os.geteuid() != 0:
        yield
        return
    dumpable = _prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        _prctl(_PR_SET_DUMPABLE, dumpable, 0, 0, 0)  # a change of the user clears it
