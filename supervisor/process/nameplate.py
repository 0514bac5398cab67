"""Which tree runs on a data directory: a place claimed by a lock, and a file beside it that names the process.

Guarantees
    A place is held exactly as long as its tree lives, because the kernel keeps the lock. Whoever signals
    the process of a place has proved that it is that process: by the lock, by the moment of its start, and
    by a descriptor of the process itself, which no other one can inherit.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from supervisor.core.errors import CannotCreateError
from supervisor.core.json_values import read_json
from supervisor.core.reload import Ending
from supervisor.process.slots import Log
from supervisor.trust import make_private_directory

TREES_ON_ONE_DIRECTORY_MAX = 100
BYTES_MAX = 1 << 20
_LOCK = re.compile(r"metrics-([0-9]{1,2})\.lock")


class Nameplate(msgspec.Struct, frozen=True, kw_only=True):
    """What a tree says of itself."""

    pid: int
    started_ticks: int  # field 22 of proc(5): with the pid it names one process of this boot
    replica: str
    cluster: str
    version: str
    reload: Ending = Ending()
    exit_code: int | None = None  # once it is over


@dataclass(frozen=True, slots=True)
class Place:
    """One place on a data directory."""

    directory: Path
    number: int

    @property
    def lock(self) -> Path:
        """The file that its tree holds locked."""
        return self.directory / f"metrics-{self.number}.lock"

    @property
    def metrics(self) -> Path:
        """Where its tree keeps metrics."""
        return self.directory / f"metrics-{self.number}"

    @property
    def file(self) -> Path:
        """The nameplate."""
        return self.directory / f"replica-{self.number}.json"


def claim(directory: Path, prepare: Callable[[Path], None]) -> tuple[Place, int]:
    """Claim the first free place and ``prepare`` its directory for metrics; return it with what holds it.

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


def _claim(directory: Path) -> tuple[Place, int] | None:
    make_private_directory(directory)
    for number in range(TREES_ON_ONE_DIRECTORY_MAX):
        place = Place(directory.absolute(), number)
        descriptor = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        return place, descriptor
    return None


def write(place: Place, plate: Nameplate) -> None:
    """Put the nameplate up, in one step.

    Raises:
        OSError: it could not be written; the former one stays.
    """
    draft = place.file.with_suffix(".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, msgspec.json.encode(plate))
    finally:
        os.close(descriptor)
    draft.replace(place.file)


class NameplateHolder:
    """Keeps the nameplate of this process true."""

    def __init__(self, place: Place, *, replica: str, cluster: str, version: str, log: Log) -> None:
        self._place = place
        self._log = log
        pid = os.getpid()
        self._plate = Nameplate(
            pid=pid, started_ticks=started_ticks(pid), replica=replica, cluster=cluster, version=version
        )

    def publish(self, ending: Ending) -> None:
        """Say how the latest reload ended; a disk that takes nothing is told of in the log."""
        self._put_up(msgspec.structs.replace(self._plate, reload=ending))

    def ended(self, exit_code: int) -> None:
        """Say with which exit code it is about to leave."""
        self._put_up(msgspec.structs.replace(self._plate, exit_code=exit_code))

    def _put_up(self, plate: Nameplate) -> None:
        self._plate = plate
        try:
            write(self._place, self._plate)
        except OSError as error:
            self._log("nameplate_not_written", level="error", file=str(self._place.file), error=error.strerror)


def read(place: Place) -> Nameplate | None:
    """Return what a place says, whether or not its tree lives; None when nothing can be read."""
    try:
        with place.file.open("rb") as file:
            return read_json(file.read(BYTES_MAX), Nameplate)
    except (OSError, msgspec.DecodeError):
        return None


def started_ticks(pid: int) -> int:
    """Return when a process started, in ticks since boot; 0 when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def is_held(place: Place) -> bool:
    """Return whether a tree holds the place. A tree that starts at this very moment takes the next one."""
    try:
        descriptor = os.open(place.lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


@dataclass(frozen=True, slots=True)
class Found:
    """A tree that lives on this machine."""

    place: Place
    plate: Nameplate


def living(directory: Path) -> list[Found]:
    """Return the trees on a data directory that live, as far as this user may see them."""
    return [found for place in _places(directory) if (found := _living(place)) is not None]


def of_process(pid: int) -> Found | None:
    """Return the tree whose parent is ``pid``, without knowing its configuration; None when it is no such process."""
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return None
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            target = descriptor.readlink()
            if match := _LOCK.fullmatch(target.name):
                found = _living(Place(target.parent, int(match[1])))
                if found is not None and found.plate.pid == pid:
                    return found
    return None


def _places(directory: Path) -> Iterator[Place]:
    with contextlib.suppress(OSError):
        for path in sorted(directory.iterdir()):
            if match := _LOCK.fullmatch(path.name):
                yield Place(directory, int(match[1]))


def _living(place: Place) -> Found | None:
    plate = read(place)
    if plate is None or not is_held(place) or started_ticks(plate.pid) != plate.started_ticks:
        return None
    return Found(place, plate)


class Handle:
    """A descriptor of one process: what is signalled through it is that process, or nothing."""

    def __init__(self, found: Found) -> None:
        """Take hold of the parent of a tree.

        Raises:
            ProcessLookupError: it is gone.
        """
        self._descriptor = os.pidfd_open(found.plate.pid)
        # Looked at once more with the descriptor in hand: between the first look and now it may have gone.
        if started_ticks(found.plate.pid) != found.plate.started_ticks:
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
