"""Exclusive claim of a tree on its data directory: a lock, and a file beside it that names the process.

Guarantees
    A place is held exactly as long as its tree lives, because the kernel keeps the lock. Whoever signals
    the process of a place has proved that it is that process: the kernel names it as the holder of the lock, lock
    and nameplate belong to its user, it started at the moment on the nameplate, and it is signalled by a
    descriptor, which no other one can inherit. So nothing that a job writes leads a signal to a process of others.
    Where a sandbox hides the process, its user is the one that may signal it, and the lock tells it from a later one.

Does not guarantee
    That the file can be written. A full disk costs its readers the news, and nobody else anything.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from supervisor.core.errors import CannotCreateError
from supervisor.core.json_values import read_json
from supervisor.core.supervision.reload import ReloadRecord
from supervisor.process.slots import Log
from supervisor.trust import make_private_directory, open_regular

TREES_ON_ONE_DIRECTORY_MAX = 100
BYTES_MAX = 1 << 20
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of fcntl(2)
_SIGN = "tenure-{}:"
_LOCK = re.compile(r"metrics-([0-9]{1,2})\.lock")


class Nameplate(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of a running tree."""

    pid: int
    started_ticks: int  # field 22 of proc(5): with the pid it names one process of this boot
    replica: str
    cluster: str
    version: str
    reload: ReloadRecord = ReloadRecord()
    exit_code: int | None = None  # once it is over


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    """One place on a data directory."""

    directory: Path
    number: int

    @property
    def lock(self) -> Path:
        """The file that its tree holds locked."""
        return self.directory / f"metrics-{self.number}.lock"

    @property
    def metrics(self) -> Path:
        """Directory of its tree's metrics."""
        return self.directory / f"metrics-{self.number}"

    @property
    def file(self) -> Path:
        """The nameplate."""
        return self.directory / f"replica-{self.number}.json"


def claim(directory: Path, prepare: Callable[[Path], None]) -> tuple[ReplicaPlace, int]:
    """Claim the first free place and ``prepare`` its directory for metrics; return it with its lock.

    So trees on one directory keep apart, none leaves files for ever, and a command finds the tree that runs.

    Raises:
        CannotCreateError: the directory cannot be made, written or trusted, or all places are taken.
    """
    try:
        claimed = _claim(directory)
        if claimed is not None:
            prepare(claimed[0].metrics)
    except OSError as error:
        raise CannotCreateError(
            f"data_dir {directory} cannot be used: {error.strerror or error}; set data_dir (TENURE_DATA_DIR) to a "
            f"directory that uid {os.getuid()} may write"
        ) from error
    if claimed is None:
        raise CannotCreateError(f"data_dir {directory} is used by {TREES_ON_ONE_DIRECTORY_MAX} trees already")
    return claimed


def _claim(directory: Path) -> tuple[ReplicaPlace, int] | None:
    make_private_directory(directory)
    for number in range(TREES_ON_ONE_DIRECTORY_MAX):
        place = ReplicaPlace(directory.absolute(), number)
        descriptor = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of this kind the kernel tells who holds it
        except BlockingIOError:
            os.close(descriptor)
            continue
        return place, descriptor
    return None


def write(place: ReplicaPlace, plate: Nameplate) -> None:
    """Put the nameplate up, in one step.

    Raises:
        OSError: it could not be written; the former one stays.
    """
    draft = place.file.with_suffix(".new")
    draft.unlink(missing_ok=True)  # opening what a job put there, a FIFO, could hold the parent up for ever
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:  # a full disk takes a part of it first, and refuses the rest
            file.write(msgspec.json.encode(plate))
        draft.replace(place.file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


class NameplateHolder:
    """Keeps the nameplate of this process true."""

    def __init__(self, place: ReplicaPlace, *, replica: str, cluster: str, version: str, log: Log) -> None:
        self._place = place
        self._log = log
        pid = os.getpid()
        self._plate = Nameplate(
            pid=pid, started_ticks=started_ticks(pid), replica=replica, cluster=cluster, version=version
        )

    def publish(self, ending: ReloadRecord) -> None:
        """Publish how the latest reload ended; a failure to write to disk is logged."""
        self._put_up(msgspec.structs.replace(self._plate, reload=ending))

    def ended(self, exit_code: int) -> None:
        """Publish the exit code of the end that begins."""
        self._put_up(msgspec.structs.replace(self._plate, exit_code=exit_code))

    def _put_up(self, plate: Nameplate) -> None:
        self._plate = plate
        try:
            write(self._place, self._plate)
        except OSError as error:
            self._log("nameplate_not_written", level="error", file=str(self._place.file), error=error.strerror)


def read(place: ReplicaPlace) -> Nameplate | None:
    """Return the record of a place, whether or not its tree lives; None when it cannot be read."""
    return _read(place)[0]


def _read(place: ReplicaPlace) -> tuple[Nameplate | None, int]:
    """Return the record of a place, and the user who wrote it."""
    try:
        with os.fdopen(open_regular(place.file), "rb") as file:
            return read_json(file.read(BYTES_MAX), Nameplate), os.fstat(file.fileno()).st_uid
    except (OSError, msgspec.DecodeError):
        return None, -1


def started_ticks(pid: int) -> int:
    """Return when a process started, in ticks since boot; 0 when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def holder(place: ReplicaPlace) -> tuple[int, int]:
    """Return which process holds the place, and the owner of the lock; 0 and -1 when nobody does.

    Not for the holder itself: its own lock is none to it, and would be gone afterwards (fcntl(2)).
    """
    try:
        descriptor = open_regular(place.lock)
    except OSError:
        return 0, -1
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        return (pid, os.fstat(descriptor).st_uid) if kind != fcntl.F_UNLCK else (0, -1)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class RunningTree:
    """A tree that lives on this machine."""

    place: ReplicaPlace
    plate: Nameplate


def living(directory: Path) -> list[RunningTree]:
    """Return the trees on a data directory that live, as far as this user may see them."""
    return [found for place in _places(directory) if (found := _living(place)) is not None]


def of_process(pid: int) -> RunningTree | None:
    """Return the tree whose parent is ``pid``, without knowing its configuration; None when it is no such process."""
    for lock in (*_open_in(pid), *_shown_by(pid)):
        if match := _LOCK.fullmatch(lock.name):
            found = _living(ReplicaPlace(lock.parent, int(match[1])))
            if found is not None and found.plate.pid == pid:
                return found
    return None


def _open_in(pid: int) -> Iterator[Path]:
    """Return the files that a process has open. Of a tree only root may ask that."""
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield descriptor.readlink()


def show(place: ReplicaPlace) -> socket.socket:
    """Let every user of this machine find the place of this process by its number, until the socket is closed.

    It is a name without a file, on which nobody listens; one that is too long for the kernel is left out.
    """
    sign = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):
        sign.bind(b"\0" + _SIGN.format(os.getpid()).encode() + os.fsencode(place.lock))
    return sign


def _shown_by(pid: int) -> Iterator[Path]:
    name = f"@{_SIGN.format(pid)}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/net/unix").read_bytes().splitlines():
            shown = os.fsdecode(line).split(maxsplit=7)[-1]
            if shown.startswith(name):
                yield Path(shown.removeprefix(name))


def _places(directory: Path) -> Iterator[ReplicaPlace]:
    with contextlib.suppress(OSError):
        for path in sorted(directory.iterdir()):
            if match := _LOCK.fullmatch(path.name):
                yield ReplicaPlace(directory, int(match[1]))


def _living(place: ReplicaPlace) -> RunningTree | None:
    plate, writer = _read(place)
    pid, owner = holder(place)
    if plate is None or plate.pid != pid or owner != writer or not _is_process_of(owner, plate):
        return None
    return RunningTree(place, plate)


def _is_process_of(user: int, plate: Nameplate) -> bool:
    """Return whether the process on a nameplate is one of ``user``, and started at that moment if it can be seen."""
    seen_ticks = started_ticks(plate.pid)
    try:
        if seen_ticks:
            return seen_ticks == plate.started_ticks and Path(f"/proc/{plate.pid}").stat().st_uid == user
        os.kill(plate.pid, 0)  # hidden (proc(5), hidepid), as from our own unit of systemd
    except OSError:  # it ended just now, or is another user's
        return False
    return os.geteuid() == user != 0


class Handle:
    """A descriptor of one process: a signal through it reaches that process, or nothing."""

    def __init__(self, found: RunningTree) -> None:
        """Take hold of the parent of a tree.

        Raises:
            ProcessLookupError: it is gone.
        """
        self._descriptor = os.pidfd_open(found.plate.pid)
        # Looked at once more with the descriptor in hand: between the first look and now it may have gone. Whoever
        # holds the lock lives, so a descriptor of that number is of that process, or of one that died.
        again, plate = _living(found.place), found.plate
        if again is None or (again.plate.pid, again.plate.started_ticks) != (plate.pid, plate.started_ticks):
            self.close()
            raise ProcessLookupError

    def send(self, number: signal.Signals) -> None:
        """Send a signal; ProcessLookupError when it is gone, PermissionError when it is another user's."""
        signal.pidfd_send_signal(self._descriptor, number)

    def is_gone(self, wait_s: float = 0) -> bool:
        """Return whether it ended, waiting so long for that; a zombie has."""
        return bool(select.select([self._descriptor], [], [], wait_s)[0])

    def close(self) -> None:
        """Let go."""
        os.close(self._descriptor)
