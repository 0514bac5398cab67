"""A file of values whose room on the disk is taken before anything is stored in it.

The client's own leaves holes that the file system fills when a value is stored. On a full disk it cannot,
and answers by SIGBUS: the process dies in the middle of counting something.
"""
# mypy: disable-error-code="no-untyped-call"
# The client's file format has no annotations.

from __future__ import annotations

import errno
import mmap
import os

from prometheus_client.mmap_dict import MmapedDict

_NOT_OFFERED = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})  # by the file system; then holes it is
SIZE_MIN = 1 << 16  # what the client makes a new file
_ENTRY_OVERHEAD = 4 + 8 + 16  # length, padding at most, value and timestamp


class SlotFile(MmapedDict):
    """The client's file without holes. Raises OSError when there is no room, and stores nothing then."""

    def __init__(self, path: str) -> None:
        """Open or make the file at ``path``."""
        with open(path, "ab") as file:  # noqa: PTH123  # as the client does
            _take_room(file.fileno(), SIZE_MIN)
        super().__init__(path)

    def _init_value(self, key: str) -> None:
        """Add a value; the client's hook."""
        needed, capacity = self._used + len(key.encode()) + _ENTRY_OVERHEAD, self._capacity
        while needed > capacity:
            capacity *= 2
        if capacity > self._capacity:
            _take_room(self._f.fileno(), capacity)
            # Or the client would truncate the file, step by step, and give the room back.
            self._m, self._capacity = mmap.mmap(self._f.fileno(), capacity), capacity
        super()._init_value(key)


def _take_room(descriptor: int, size: int) -> None:
    """Make the file at least ``size`` bytes long and without holes."""
    try:
        os.posix_fallocate(descriptor, 0, max(size, os.fstat(descriptor).st_size))
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise
