"""Landlock: a process gives up files and signals for itself and all that it starts (landlock(7)).

Guarantees
    After ``restrict`` nothing but listed paths can be opened, made, renamed or removed, whatever user it is.
    From Linux 6.12 nobody outside can be signalled, nor reached by an abstract socket.

Does not guarantee
    Anything about the network, about descriptors opened before, about sockets that have a path, or about modes, owners
    and times of files: chmod(2), chown(2) and utimensat(2) are left to the rights of the user.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same numbers on all machines
_GET_VERSION = 1
_PATH_BENEATH = 1
_READ = 0b1101  # execute, read file, read directory
_WRITE_FILE, _TRUNCATE, _IOCTL = 1 << 1, 1 << 14, 1 << 15
_OF_FILES = 0b111 | _TRUNCATE | _IOCTL
_HANDLED = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_SCOPES = 0b11  # abstract sockets and signals
_SCOPES_FROM = 6
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_syscall = ctypes.CDLL(None, use_errno=True).syscall  # looked up before any fork


def version() -> int:
    """Return which version of it the kernel has; 0: none, or it is switched off."""
    answer: int = _syscall(_CREATE, None, ctypes.c_size_t(0), _GET_VERSION)
    return max(0, answer)


def restrict(read: Sequence[str], write: Sequence[str]) -> None:
    """Give up all other files. Paths that do not exist are left out.

    Raises:
        OSError: the kernel refuses; nothing was given up.
    """
    known = version()
    handled = _HANDLED[min(max(known, 1), max(_HANDLED))]
    rules = struct.pack("=QQQ", handled, 0, _SCOPES) if known >= _SCOPES_FROM else struct.pack("=Q", handled)
    ruleset = _call(_CREATE, ctypes.c_char_p(rules), ctypes.c_size_t(len(rules)), 0)
    for path in read:
        _allow(ruleset, path, _READ & handled)
    for path in write:
        _allow(ruleset, path, handled)
    for path in _DEVICES:
        _allow(ruleset, path, (_READ | _WRITE_FILE) & handled)
    _call(_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not os.path.isdir(path):  # noqa: PTH112 - between fork and exec
        access &= _OF_FILES
    _call(_ADD, ruleset, _PATH_BENEATH, ctypes.c_char_p(struct.pack("=Qi", access, place)), 0)
    os.close(place)


def _call(number: int, *arguments: object) -> int:
    answer: int = _syscall(number, *arguments)
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer
