"""Binds the unix socket of the web child in the parent: private from its first moment, and never over a living server.

Guarantees
    The socket is made with its final mode, in a directory to which nobody but this user or root may write.
    What lies at the path is removed only if it is a socket at which nobody listens, while a lock keeps other starts
    away. ``PATH.lock`` stays: a lock file that is removed protects nothing.
    At the end the path is removed only if it is still the socket that was made here.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from supervisor.core.errors import CannotBindError
from supervisor.trust import distrust, distrust_path

_PRIVATE_UMASK, _SHARED_UMASK = 0o177, 0o111
_REMEDY = "stop what uses it, or set web.host (TENURE_WEB__HOST) to another unix:/path"


@contextmanager
def bound(path: Path, *, is_shared: bool = False) -> Iterator[socket.socket]:
    """Listen at ``path``, absolute and of at most 107 bytes, until the end of the block, then remove it.

    ``is_shared``: every user may connect, and is judged by the kernel's word on who it is; else this user alone.

    Raises:
        CannotBindError: somebody listens there, or something else is there, or the directory is not trusted.
    """
    with _sole_start(path):
        if is_stale(path):
            path.unlink()
        listener = _bind(path, _SHARED_UMASK if is_shared else _PRIVATE_UMASK)
        made = path.lstat()
    with closing(listener):
        try:
            yield listener
        finally:
            with suppress(OSError):
                if os.path.samestat(made, path.lstat()):
                    path.unlink()


def is_stale(path: Path) -> bool:
    """Return whether a socket lies at ``path`` that nobody listens at; False where nothing lies there.

    Raises:
        CannotBindError: a server could not be started there.
    """
    try:
        why = distrust_path(path.parent)
    except OSError as error:
        raise _refusal(path, f"its directory: {error.strerror}", "make the directory, private to this user") from error
    if why:
        remedy = f"run `chown {os.geteuid()} {path.parent}` and `chmod go-w {path.parent}`, or choose another directory"
        raise _refusal(path, f"its directory is not trusted: {why}", remedy)
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(found.st_mode):
        raise _refusal(path, "something that is no socket lies there", "remove it, or choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(0)
        seen = probe.connect_ex(str(path))
    if seen != errno.ECONNREFUSED:
        answer = "somebody listens there" if seen in {0, errno.EAGAIN} else os.strerror(seen)
        raise _refusal(path, answer, _REMEDY)
    return True


@contextmanager
def _sole_start(path: Path) -> Iterator[None]:
    """Keep other starts away from ``path``: two that find a stale socket would remove each other's new one."""
    lock_path = path.with_name(f"{path.name}.lock")
    try:
        lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        is_stale(path)  # says better what is wrong with the directory
        raise _refusal(path, f"{lock_path}: {error.strerror}", "remove it, or choose another path") from error
    try:
        if why := distrust(os.fstat(lock)):
            raise _refusal(path, f"{lock_path} is not trusted: {why}", "remove it")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise _refusal(path, "another start is using it", _REMEDY) from error
    finally:
        os.close(lock)


def _bind(path: Path, umask: int) -> socket.socket:
    """Return a socket that listens at ``path``; by ``umask`` its mode is never wider than in the end."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(umask)
    try:
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _refusal(path, error.strerror or str(error), _REMEDY) from error
    finally:
        os.umask(before)
    return listener


def _refusal(path: Path, reason: str, remedy: str) -> CannotBindError:
    return CannotBindError(f"cannot listen on unix:{path}: {reason}; {remedy}")


BACKLOG = 4096
"""Connections that the kernel keeps until they are accepted, as far as `net.core.somaxconn` allows; beyond it a client
tries again after a second, which is too late for a probe. As many as a flood brings while the loop is held up for most
of a second."""


def bind(host: str, port: int, *, setting: str = "web.port") -> socket.socket:
    """Return a socket that listens; ``setting`` is the one that chose the port.

    Raises:
        CannotBindError: the address is taken, or not ours.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise CannotBindError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; stop what uses it, or choose another with "
            f"{setting} (TENURE_{setting.replace('.', '__').upper()}; 0 lets the kernel choose)"
        ) from error
