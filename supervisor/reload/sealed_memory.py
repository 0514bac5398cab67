"""Memory of one process that others can only read: sealed, so that no descriptor of it can be written through.

Guarantees
    The process that made it writes through a mapping that forked children do not get; write(2), a writable mapping,
    and any other size are refused to all others (memfd_create(2), F_SEAL_FUTURE_WRITE, Linux 5.1).
    Data read are whole, and of the number that was asked for: the header is looked at before and after.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Sequence

_F_SEAL_FUTURE_WRITE = 0x10  # linux/fcntl.h; Python has no name for it
_SHAPE = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
FINAL = _SHAPE | fcntl.F_SEAL_WRITE

_MAGIC = 0x54454E55434F4E46
PARTS_MAX = 10
_HEADER = struct.Struct(f"={PARTS_MAX + 2}Q")  # magic, number, and the bytes of each part
_CHUNK_BYTES = 1 << 24

Range = tuple[int, int]
"""Where a part begins, and its bytes."""


class Sealed:
    """Room for one numbered set of parts, filled again and again by its owner."""

    def __init__(self, name: str, bytes_max: int) -> None:
        """Make it. Raises OSError when the kernel has no memory, or knows no such seal."""
        self.descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, bytes_max)  # pages come when they are written
        self._memory = mmap.mmap(self.descriptor, bytes_max)
        self._memory.madvise(mmap.MADV_DONTFORK)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SHAPE | _F_SEAL_FUTURE_WRITE)
        self._owner = os.getpid()

    def fill(self, number: int, source: int, ranges: Sequence[Range]) -> None:
        """Copy parts out of the file ``source``. The header goes last: until then nothing is there."""
        assert os.getpid() == self._owner, "a forked child has no mapping"
        view = memoryview(self._memory)
        try:
            view[: _HEADER.size] = bytes(_HEADER.size)
            at = _HEADER.size
            for begin, size in ranges:
                _read_into(view[at : at + size], source, begin)
                at += size
            view[: _HEADER.size] = _header(number, [size for _, size in ranges])
        finally:
            view.release()

    def close(self) -> None:
        """Close it, in the process that made it."""
        self._memory.close()
        os.close(self.descriptor)


def write_once(descriptor: int, number: int, parts: Sequence[bytes]) -> None:
    """Write a numbered set of parts into an empty memfd, and seal it for ever."""
    at = _HEADER.size
    for part in parts:
        view = memoryview(part)
        while view:
            written = os.pwrite(descriptor, view[:_CHUNK_BYTES], at)
            view, at = view[written:], at + written
    os.pwrite(descriptor, _header(number, [len(part) for part in parts]), 0)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, FINAL)


def is_final(descriptor: int) -> bool:
    """Return whether a memfd can change no more."""
    seals: int = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    return seals & FINAL == FINAL


def ranges_of(descriptor: int, number: int) -> list[Range] | None:
    """Return where the parts of one number lie; None where that number is not, or not whole."""
    header = os.pread(descriptor, _HEADER.size, 0)
    if len(header) < _HEADER.size:
        return None
    magic, found, *sizes = _HEADER.unpack(header)
    if magic != _MAGIC or found != number:
        return None
    ranges, at = [], _HEADER.size
    for size in sizes:
        ranges.append((at, size))
        at += size
    return ranges if at <= os.fstat(descriptor).st_size else None


def read_part(descriptor: int, number: int, index: int) -> bytes | None:
    """Return one part of one number; None where it is not, or not any more."""
    ranges = ranges_of(descriptor, number)
    if ranges is None:
        return None
    begin, size = ranges[index]
    part = bytearray(size)
    with memoryview(part) as view:
        _read_into(view, descriptor, begin)
    return bytes(part) if ranges_of(descriptor, number) == ranges else None


def _header(number: int, sizes: Sequence[int]) -> bytes:
    return _HEADER.pack(_MAGIC, number, *sizes, *[0] * (PARTS_MAX - len(sizes)))


def _read_into(view: memoryview, descriptor: int, begin: int) -> None:
    """Fill ``view`` from ``begin`` on; one call reads at most 2 GiB, and may read less."""
    at = 0
    while at < len(view):
        read = os.preadv(descriptor, [view[at : at + _CHUNK_BYTES]], begin + at)
        if read == 0:
            raise OSError("the memory of a configuration is shorter than it says")
        at += read
