"""Names of queues, clusters, leases and profiles: short, and safe inside of a key of Redis."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from supervisor.core.errors import OptionError, shown

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def check_name(what: str, name: Any) -> str:
    """Return ``name`` if it may be part of a key.

    Raises:
        OptionError: it is no text, holds braces, a colon or a space, or is empty or too long.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionError(
            f"{what} {shown(name)} must be 1 to 64 characters of A-Z a-z 0-9 . _ - and start with none of ._-"
        )
    return name


def valid_names(names: Iterable[str]) -> list[str]:
    """Return those of ``names`` that may be part of a key, sorted: others were written by somebody else."""
    return sorted(filter(is_valid_name, names))


def is_valid_name(name: str) -> bool:
    """Return whether ``name`` may be part of a key; one that may not was written by somebody else."""
    return _NAME.fullmatch(name) is not None
