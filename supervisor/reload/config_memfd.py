"""Transfer of a checked configuration to live processes: through memory, never through a file.

A check in a throw-away child writes it once and seals it; the parent, which parses nothing, copies the parts into
memory that children can only read, in two buffers that take turns: the one in effect is never written to.
Each role inherits its own two, and the two that all share, and finds a configuration by its number.

Guarantees
    Data read are whole, and of the number asked for. No process but the parent can change them.
    A role reads the secrets that it is given (audiences.py) and no others; reading runs nothing (packing.py).
    Nothing of it is on a disk, and it is gone with its last process.

Does not guarantee
    That a number can be read for ever: the buffer is used again by the second check after it.
"""

from __future__ import annotations

import fcntl
import gc
import mmap
import os
import resource
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from supervisor.core.model import ScheduleDef
from supervisor.reload.audiences import ROLES, Audience
from supervisor.reload.packing import pack, pack_schedules, unpack, unpack_schedules
from supervisor.settings.sections.models import Settings

BYTES_MAX = 256 * 1024 * 1024
"""More than 100,000 schedules take."""

ROLE_BYTES_MAX = 32 * 1024 * 1024
"""Of the settings without schedules, for each role."""

_HEADER_ROOM = 4096
_AUDIENCES = tuple(Audience)
_PLAN, _BRIEF, _SCHEDULES, _DEFINITIONS, _FIRST_SETTINGS = range(5)
_SHARED_PARTS = (_BRIEF, _SCHEDULES, _DEFINITIONS)
_decode = msgspec.msgpack.Decoder(tuple[ScheduleDef, ...]).decode


class HandoverError(Exception):
    """A configuration that should be there is not."""


@dataclass(frozen=True, slots=True)
class Brief:
    """Summary of a configuration, for a process that only reports it to others."""

    schedules_digest: str
    cards: Mapping[str, str]  # job name to the JSON that producers route by


_decode_brief = msgspec.msgpack.Decoder(Brief).decode


class Handover:
    """All buffers, as the parent holds them. Made once, before the first fork."""

    def __init__(self) -> None:
        """Make them. Raises OSError when the kernel has no memory for it."""
        self._shared_max, self._role_max = _within_limit(BYTES_MAX), _within_limit(ROLE_BYTES_MAX)
        self._shared = _pair("tenure-config", self._shared_max)
        self._by_role = {role: _pair(f"tenure-config-{role}", self._role_max) for role in sorted(ROLES)}
        self._staged: dict[int, int] = {}  # number to the memfd that its check wrote

    def reader(self, audience: Audience) -> ConfigReader:
        """Return the reader of one process. Only the check's own needs the parent's descriptors."""
        own = (*self._staged.values(),) if audience is Audience.CHECK else _descriptors(self._by_role[audience])
        part = _FIRST_SETTINGS + _AUDIENCES.index(audience) if audience is Audience.CHECK else 0
        return ConfigReader(_descriptors(self._shared), own, part)

    def open(self, number: int, *, in_effect: int) -> None:
        """Make room for the result of the check of ``number``. Raises OSError when there is none."""
        for other in [each for each in self._staged if each != in_effect]:
            os.close(self._staged.pop(other))
        self._staged[number] = os.memfd_create("tenure-check", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)

    def write(
        self, number: int, *, plan: bytes, settings: Settings, brief: Brief, definitions: tuple[ScheduleDef, ...]
    ) -> None:
        """Hand over the result of a check; it can do so once.

        Raises:
            HandoverError: it is larger than ``BYTES_MAX``, or than the limit on the size of files allows.
            OSError: there is no memory for it.
        """
        shared = [
            msgspec.msgpack.encode(brief),
            pack_schedules(settings.schedules),
            msgspec.msgpack.encode(definitions),
        ]
        for_each = [pack(settings, audience) for audience in _AUDIENCES]
        if sum(map(len, shared)) > self._shared_max or max(map(len, for_each)) > self._role_max:
            is_limited = self._shared_max != BYTES_MAX
            remedy = "; raise the limit on the size of files (LimitFSIZE=, ulimit -f)" if is_limited else ""
            raise HandoverError(f"the configuration is larger than {self._shared_max >> 10} KiB{remedy}")
        write_once(self._staged[number], number, [plan, *shared, *for_each])

    def take(self, number: int, *, in_effect: int) -> bytes | None:
        """Let children read ``number``, in the buffers that do not hold ``in_effect``; return its plan.

        None when its check did not come so far. A sealed result cannot change under our eyes.
        """
        source = self._staged.get(number)
        try:
            return None if source is None or not is_final(source) else self._take(source, number, in_effect)
        except OSError:
            return None  # there is no memory for it

    def _take(self, source: int, number: int, in_effect: int) -> bytes | None:
        ranges = ranges_of(source, number)
        if ranges is None or sum(ranges[part][1] for part in _SHARED_PARTS) > self._shared_max:
            return None
        of_roles = {role: ranges[_FIRST_SETTINGS + _AUDIENCES.index(role)] for role in self._by_role}
        if max(size for _, size in of_roles.values()) > ROLE_BYTES_MAX:
            return None
        for role, pair in self._by_role.items():
            _free(pair, number, in_effect).fill(number, source, [of_roles[role]])
        _free(self._shared, number, in_effect).fill(number, source, [ranges[part] for part in _SHARED_PARTS])
        return read_part(source, number, _PLAN)

    def start(self, settings: Settings) -> None:
        """Let children read the tree's first configuration, as number 0; its schedules they have by the fork."""
        self.open(0, in_effect=0)
        bare = settings.model_copy(update={"schedules": {}})
        self.write(0, plan=b"", settings=bare, brief=Brief("", {}), definitions=())
        taken = self.take(0, in_effect=-1)
        assert taken is not None

    def close(self) -> None:
        """Close everything, in the process that made it."""
        for pair in (self._shared, *self._by_role.values()):
            for each in pair:
                each.close()
        for descriptor in self._staged.values():
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class ConfigReader:
    """Configurations as one process reads them."""

    shared: tuple[int, ...]
    own: tuple[int, ...]
    part: int = 0

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that a child keeps to read by."""
        return (*self.shared, *self.own)

    def settings(self, number: int, *, with_schedules: bool = False) -> Settings:
        """Return the settings of one number, without their schedules unless they are asked for.

        Raises:
            HandoverError: they are not there.
        """
        settings = unpack(_read(self.own, number, self.part))
        if not with_schedules:
            return settings
        schedules = _read(self.shared, number, _SHARED_PARTS.index(_SCHEDULES))
        return settings.model_copy(update={"schedules": unpack_schedules(schedules)})

    def brief(self, number: int) -> Brief:
        """Return the summary for others. Raises HandoverError like ``settings``."""
        return _decode_brief(_read(self.shared, number, _SHARED_PARTS.index(_BRIEF)))

    def definitions(self, number: int) -> tuple[ScheduleDef, ...]:
        """Return the completed schedules. Raises HandoverError like ``settings``.

        100,000 take a tenth of a second: the scheduler, which reads them between two fires, is silent so long.
        """
        part = _read(self.shared, number, _SHARED_PARTS.index(_DEFINITIONS))
        is_collecting = gc.isenabled()
        gc.disable()  # it would walk through all of them again and again, and find nothing: 2 s instead of 0.1
        try:
            return _decode(part)
        finally:
            if is_collecting:
                gc.enable()


def _within_limit(bytes_max: int) -> int:
    """Return ``bytes_max``, or less where RLIMIT_FSIZE allows less: the kernel counts shared memory as a file."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return bytes_max if limit == resource.RLIM_INFINITY else max(1, min(bytes_max, limit - _HEADER_ROOM))


def _pair(name: str, bytes_max: int) -> tuple[Sealed, Sealed]:
    return Sealed(f"{name}-a", bytes_max + _HEADER_ROOM), Sealed(f"{name}-b", bytes_max + _HEADER_ROOM)


def _descriptors(pair: tuple[Sealed, Sealed]) -> tuple[int, ...]:
    return tuple(each.descriptor for each in pair)


def _free(pair: tuple[Sealed, Sealed], number: int, in_effect: int) -> Sealed:
    """Return the buffer to write to: the one that holds ``number`` already, else one that is not in effect."""
    first, second = pair
    if ranges_of(first.descriptor, in_effect) is not None:
        return second
    return second if ranges_of(second.descriptor, number) is not None else first


def _read(descriptors: tuple[int, ...], number: int, index: int) -> bytes:
    for descriptor in descriptors:
        part = read_part(descriptor, number, index)
        if part is not None:
            return part
    raise HandoverError(f"configuration {number} is not there any more")


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
    """Room for one numbered set of parts, filled again and again by its owner.

    Guarantees
        The process that made it writes through a mapping that forked children do not get; write(2), a writable mapping,
        and any other size are refused to all others (memfd_create(2), F_SEAL_FUTURE_WRITE, Linux 5.1).
        Data read are whole, and of the number that was asked for: the header is looked at before and after.
    """

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
