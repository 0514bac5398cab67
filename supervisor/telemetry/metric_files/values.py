"""The values behind prometheus-client's metrics: in memory, or in files that belong to a slot.

The client's own multi-process values are keyed by process id, and keep descriptors of the
parent's files open across a fork. A child of this tree closes inherited descriptors, so
closing such a file later would fail, or hit a descriptor that means something else by then.
Here the parent opens nothing, and a process opens files only once it has claimed a slot.

Guarantees
    A file has one writer: a process forked from the claiming one counts in memory.
    Nothing here stops a role: values that cannot be written are counted in memory.
"""
# mypy: disable-error-code="no-untyped-call"
# The client's file format has no annotations.

from __future__ import annotations

import errno
import mmap
import os
import re
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from prometheus_client.mmap_dict import MmapedDict, mmap_key

_NOT_OFFERED = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})  # by the file system; then holes it is
SIZE_MIN = 1 << 16  # what the client makes a new file
_ENTRY_OVERHEAD = 4 + 8 + 16  # length, padding at most, value and timestamp


class _Files:
    """The files of this process's slot, and every value that may live in them."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.values: list[SlotValue] = []
        self.problem = ""  # why a value is not in its file, the last time that one was not
        self._place: tuple[str, str] | None = None  # what stands before and behind the kind in a file's name
        self._open: dict[str, SlotFile] = {}

    def claim(self, directory: Path, slot: str) -> str:
        """Move every value into the files of ``slot``, and go on from their contents; return why some cannot."""
        with self.lock:
            self._close()
            self.problem = ""
            self._place = f"{directory}/", f"_{file_key(slot)}.db"
            for value in self.values:
                value.bind()
            return self.problem

    def release(self) -> None:
        """Go on in memory."""
        with self.lock:
            self._close()
            self._place = None
            for value in self.values:
                value.bind()

    def drop(self) -> None:
        """Forget all values."""
        self.release()
        self.values.clear()

    def after_fork(self) -> None:
        """In a forked process: leave the files to the one that claimed them. A lock may be held by a lost thread."""
        self.lock = Lock()
        if self._place is not None:
            self.release()

    def get(self, prefix: str) -> SlotFile | None:
        """Return the file for metrics of this kind; None: count in memory."""
        if self._place is None:
            return None
        if prefix not in self._open:
            try:
                self._open[prefix] = SlotFile(prefix.join(self._place))
            except OSError as error:
                self.problem = error.strerror or repr(error)
                return None
        return self._open[prefix]

    def _close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()


FILES = _Files()
os.register_at_fork(after_in_child=FILES.after_fork)


class SlotValue:
    """One number of one series. The signature is that of the client's calls."""

    _multiprocess = True

    def __init__(  # noqa: PLR0917 - called by the client, by position
        self,
        typ: str,
        metric_name: str,
        name: str,
        labelnames: Sequence[str],
        labelvalues: Sequence[str],
        help_text: str,
        multiprocess_mode: str = "",
        **_kwargs: object,
    ) -> None:
        self._prefix = f"gauge_{multiprocess_mode}" if typ == "gauge" else typ
        self._key: str = mmap_key(metric_name, name, list(labelnames), list(labelvalues), help_text)
        self._value, self._timestamp = 0.0, 0.0
        with FILES.lock:
            FILES.values.append(self)
            self.bind()

    def bind(self) -> None:
        """Take up the value in the slot's file, if there is one. With the lock held."""
        self._file = FILES.get(self._prefix)
        if self._file is None:
            return
        try:
            self._value, self._timestamp = self._file.read_value(self._key)
        except OSError as error:  # the file is full, and so is the disk
            self._file = None
            FILES.problem = error.strerror or repr(error)

    def inc(self, amount: float) -> None:
        """Add ``amount``."""
        with FILES.lock:
            self._write(self._value + amount, 0.0)

    def set(self, value: float, timestamp: float | None = None) -> None:
        """Replace the number."""
        with FILES.lock:
            self._write(value, timestamp or 0.0)

    def get(self) -> float:
        """Return the number as this process counted it."""
        return self._value

    def set_exemplar(self, exemplar: object) -> None:
        """Do nothing: the files have no place for exemplars."""

    def get_exemplar(self) -> None:
        """Return None: the files have no place for exemplars."""

    def _write(self, value: float, timestamp: float) -> None:
        self._value, self._timestamp = value, timestamp
        if self._file is not None:
            self._file.write_value(self._key, value, timestamp)


def file_key(slot: str) -> str:
    """Return ``slot`` as a part of a file name; the client splits names at underscores."""
    return re.sub(r"[^A-Za-z0-9-]", lambda match: f".{ord(match[0]):x}.", slot)


class SlotFile(MmapedDict):
    """The client's file without holes. Raises OSError when there is no room, and stores nothing then.

    The client's own leaves holes that the file system fills when a value is stored. On a full disk it cannot,
    and answers by SIGBUS: the process dies in the middle of counting something.
    """

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
