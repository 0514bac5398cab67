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

import gc
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from supervisor.core.model import ScheduleDef
from supervisor.reload.audiences import ROLES, Audience
from supervisor.reload.packing import pack, pack_schedules, unpack, unpack_schedules
from supervisor.reload.sealed_memory import Sealed, is_final, ranges_of, read_part, write_once
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
            remedy = (
                ""
                if self._shared_max == BYTES_MAX
                else "; raise the limit on the size of files (LimitFSIZE=, ulimit -f)"
            )
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
