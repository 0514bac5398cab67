"""The environment of a tree without its secrets, which its checks of a changed configuration still need.

Guarantees
    A variable that was taken is gone from the environment of this process and of all that it forks or executes,
    and its value is overwritten where the kernel shows it (``/proc/<pid>/environ``).
    The values lie in sealed memory that only the parent keeps; a child that is no check loses it in its prologue.

Does not guarantee
    That no copy is left in memory that was freed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

import msgspec

from supervisor.process.system import linux

_decode = msgspec.msgpack.Decoder(dict[bytes, bytes]).decode


class Withheld:
    """Variables that were taken out of the environment."""

    def __init__(self, names: Iterable[str]) -> None:
        """Take them. Those that are not set are left out. Raises OSError when there is no memory for them."""
        wanted = {os.fsencode(name) for name in names}
        taken = {name: os.environb[name] for name in sorted(wanted & os.environb.keys())}
        self._descriptor = linux.sealed_memory("tenure-environment", msgspec.msgpack.encode(taken))
        _overwrite(taken.keys())
        for name in taken:
            del os.environb[name]

    def restore(self) -> None:
        """Put them back, in a process that is thrown away."""
        size = os.fstat(self._descriptor).st_size
        os.environb.update(_decode(os.pread(self._descriptor, size, 0)))

    def close(self) -> None:
        """Forget them."""
        os.close(self._descriptor)


def _overwrite(names: Iterable[bytes]) -> None:
    """Overwrite the values in place, before the C library lets go of them."""
    wanted = set(names)
    entries = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    index = 0
    while address := entries[index]:
        text = ctypes.string_at(address)
        name, mark, value = text.partition(b"=")
        if mark and name in wanted:
            ctypes.memset(address + len(name) + 1, ord("*"), len(value))
        index += 1
