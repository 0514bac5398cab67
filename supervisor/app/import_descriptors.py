"""Files and sockets that job modules opened while they were imported, before the processes of the tree were forked.

Guarantees
    Files opened for appending and devices stay as they are in the workers: appends of several processes do not mix
    within a line, and a device has no place to lose.
    Anything else is /dev/null there, and is logged once at start by module and path: a connection, a position in a file
    or a lock of SQLite cannot be shared by processes.
"""

from __future__ import annotations

import fcntl
import os
import stat

from supervisor.process.slots import Log
from supervisor.process.system.linux import open_descriptors

TOLD_MAX = 5
REMEDY = "in workers they are /dev/null; open them in a Resource, or when a job first runs"


class OpenedByImports:
    """Descriptors that the import of each module opened."""

    def __init__(self) -> None:
        self._known = set(open_descriptors())
        self._lost: dict[str, list[str]] = {}
        self.shared: tuple[int, ...] = ()
        """Descriptors that workers keep."""

    def note(self, module: str) -> None:
        """Look for descriptors that ``module``, which was imported just now, has opened."""
        for descriptor, target in sorted(open_descriptors().items()):
            if descriptor in self._known:
                continue
            self._known.add(descriptor)
            if _can_be_shared(descriptor):
                self.shared += (descriptor,)
            else:
                self._lost.setdefault(module, []).append(target)

    def tell(self, log: Log) -> None:
        """Write a warning for each module whose files do not reach the workers."""
        for module, targets in self._lost.items():
            log(
                "module_opened_files",
                level="warning",
                module=module,
                files=targets[:TOLD_MAX],
                count=len(targets),
                remedy=REMEDY,
            )


def _can_be_shared(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    is_appending = bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND)
    return stat.S_ISCHR(mode) or (stat.S_ISREG(mode) and is_appending)
