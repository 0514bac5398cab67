"""Trust in files, by their owner and mode: the rule of ssh and of git's safe.directory.

Guarantees
    A file or directory is trusted when it belongs to this user or to root, and nobody else may write to it.
    The file that was looked at is the one that is read: both happen through one descriptor.

Does not guarantee
    Anything about the directories above it.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path

from supervisor.core.errors import CannotCreateError

_PEER = struct.Struct("3i")  # pid, uid and gid, see unix(7)
_GROUP_WRITES, _OTHERS_WRITE = 0o020, 0o002


def distrust(status: os.stat_result) -> str:
    """Return why a file or peer with this ``status`` is not trusted; empty when it is."""
    if status.st_uid not in {os.geteuid(), 0}:
        return f"it belongs to uid {status.st_uid}, and neither to uid {os.geteuid()} nor to root"
    if status.st_mode & _OTHERS_WRITE:
        return f"everybody may write to it (mode {stat.S_IMODE(status.st_mode):04o})"
    if status.st_mode & _GROUP_WRITES and not _is_private_group(status):
        return f"its group may write to it (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""


def _is_private_group(status: os.stat_result) -> bool:
    """Return whether the group is its owner's alone, as many systems make one for each user."""
    try:
        group = grp.getgrgid(status.st_gid)
        return not group.gr_mem and group.gr_name == pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        return False


def distrust_path(path: Path) -> str:
    """Return why nothing should be done by the file or directory ``path``; a link must be trusted with its target.

    Raises:
        OSError: there is no such file.
    """
    return distrust(path.lstat()) if not path.is_symlink() else _distrust_link(path)


def _distrust_link(path: Path) -> str:
    if path.lstat().st_uid not in {os.geteuid(), 0}:  # the mode of a link says nothing
        return f"it is a link of uid {path.lstat().st_uid}"
    return distrust(path.stat())


def distrust_neighbour(path: Path, beside: Path) -> str:
    """Return why ``path`` may have been put where it lies by somebody else than who put what was named there.

    Where others may make files, as in /tmp, it must be of this user, of root, or of whom ``beside`` is.

    Raises:
        OSError: there is no such file.
    """
    known = {os.geteuid(), 0}
    with suppress(OSError):  # it is told by whoever reads it
        known.add(beside.stat().st_uid)
    strangers = {path.lstat().st_uid, path.stat().st_uid} - known
    where = distrust(path.parent.stat()) if strangers else ""
    return f"it belongs to uid {min(strangers)}, and {path.parent} is open to others: {where}" if where else ""


def open_regular(path: Path | str, *, follows: bool = False) -> int:
    """Open ``path`` for reading if it is a regular file; nothing can make this wait.

    Args:
        path: which file.
        follows: take the file that a link leads to; else a link is no regular file.

    Raises:
        OSError: it is none, or cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return descriptor


def is_directory(path: Path) -> bool:
    """Return whether ``path`` is a directory; False where nobody lets us look: whoever opens it is told why."""
    try:
        return path.is_dir()
    except OSError:  # a directory above that may not be entered, a name too long
        return False


def make_private_directory(path: Path) -> None:
    """Make ``path`` a directory that only this user may enter, with its parents.

    Raises:
        CannotCreateError: it is there, and somebody else may have put something into it.
        OSError: it cannot be made.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    why = distrust_path(path)
    if why:
        raise CannotCreateError(
            f"data_dir {path} is not trusted: {why}; look at what lies in it, then run `chown {os.geteuid()} {path}` "
            f"and `chmod 700 {path}`, or set data_dir (TENURE_DATA_DIR) to another directory"
        )
    status = path.stat()
    if status.st_uid == os.geteuid() and status.st_mode & 0o077:
        path.chmod(0o700)


def peer_uid(link: socket.socket) -> int:
    """Return the user at the other end of a connection by unix socket, as the kernel noted it at connect or listen."""
    uid: int = _PEER.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]
    return uid


def uid_of(user: str) -> int:
    """Return the number of a user, given by name or number.

    Raises:
        LookupError: this machine has no such user.
    """
    return int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
