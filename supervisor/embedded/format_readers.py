"""The form of the data in a directory, which its server wrote, and the servers that can read it.

Guarantees
    A server that would refuse the data is told from one that reads them, and so is one before 7.0, which looks for them
    in another place and would begin empty.

Does not guarantee
    Anything about forms that are later than those known here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from supervisor.trust import open_regular

Kind = Literal["redis", "valkey"]
Version = tuple[int, ...]
Readers = Mapping[Kind, Version]
"""The oldest version of each kind of server that reads some data; a kind that is missing reads none of them."""

ANY: Readers = {"redis": (6, 2), "valkey": (7, 2)}
_DIRECTORY = "appendonlydir"  # since Redis 7.0
_HEAD = re.compile(rb"(REDIS|VALKEY)(\d{3,4})")
_READERS: tuple[tuple[bytes, int, Readers], ...] = (
    (b"VALKEY", 80, {"valkey": (9, 0)}),
    (b"REDIS", 12, {"redis": (7, 4)}),
    (b"REDIS", 11, {"redis": (7, 2), "valkey": (7, 2)}),
)
"""Name and least number at the head of a file, and who reads it."""


def readers_of(data_dir: Path) -> Readers:
    """Return the servers that read the data in ``data_dir``; any, where there are none."""
    directory = data_dir / _DIRECTORY
    if not directory.is_dir():
        return ANY
    found: Readers = {**ANY, "redis": (7, 0)}
    for file in directory.glob("*.base.*"):
        ours = _readers_of_file(file)
        found = {kind: max(found[kind], ours[kind]) for kind in found.keys() & ours.keys()}
    return found


def _readers_of_file(file: Path) -> Readers:
    try:
        with os.fdopen(open_regular(file), "rb") as opened:
            head = _HEAD.match(opened.read(16))
    except OSError:  # whoever serves it says why
        head = None
    name, number = (head[1], int(head[2])) if head else (b"", 0)
    return next((readers for each, least, readers in _READERS if each == name and number >= least), ANY)


def shown(readers: Readers) -> str:
    """Return the servers for people: ``valkey 9.0 or newer``."""
    return " or ".join(f"{kind} {'.'.join(map(str, least))} or newer" for kind, least in sorted(readers.items()))
