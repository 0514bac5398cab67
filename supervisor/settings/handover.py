"""How a checked configuration reaches processes that live already: through memory, never through a file.

Two buffers take turns. The one in effect is never written to; a check in a throw-away child fills the other,
its header last. Every process of the tree inherits both, and finds the one it wants by its number.

Guarantees
    What is read is whole, and of the number that was asked for: the header is looked at before and after.
    Nothing of it is on a disk, and it is gone with its last process. Secrets are in it.

Does not guarantee
    That a number can be read for ever: the buffer is used again by the second check after it.
"""

from __future__ import annotations

import gc
import os
import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from supervisor.core.model import ScheduleDef
from supervisor.settings.models import Settings

BYTES_MAX = 256 * 1024 * 1024
"""More than 100,000 schedules take."""

_MAGIC = 0x54454E55434F4E46
_HEADER = struct.Struct("=7Q")  # magic, number, and the bytes of each of the five parts
_PLAN, _SETTINGS, _BRIEF, _SCHEDULES, _DEFINITIONS = range(5)
_WRITE_BYTES = 1 << 24
_decode = msgspec.msgpack.Decoder(tuple[ScheduleDef, ...]).decode


class HandoverError(Exception):
    """A configuration that should be there is not."""


@dataclass(frozen=True, slots=True)
class Brief:
    """What a process needs that only tells others of the configuration."""

    schedules_digest: str
    cards: Mapping[str, str]  # job name to the JSON that producers route by


class Handover:
    """Both buffers. Made once, before the first fork."""

    def __init__(self) -> None:
        flags = os.MFD_CLOEXEC
        self.descriptors = (os.memfd_create("tenure-config-a", flags), os.memfd_create("tenure-config-b", flags))

    def write(
        self,
        number: int,
        *,
        in_effect: int,
        plan: bytes,
        settings: Settings,
        brief: Brief,
        definitions: tuple[ScheduleDef, ...],
    ) -> None:
        """Fill the buffer that does not hold ``in_effect``.

        Raises:
            HandoverError: it is larger than ``BYTES_MAX``.
            OSError: there is no memory for it.
        """
        bare = settings.model_copy(update={"schedules": {}})
        packed = msgspec.msgpack.encode(definitions)
        parts = [plan, pickle.dumps(bare), pickle.dumps(brief), pickle.dumps(settings.schedules), packed]
        if sum(map(len, parts)) > BYTES_MAX:
            raise HandoverError(f"the configuration is larger than {BYTES_MAX >> 20} MiB")
        first, second = self.descriptors
        descriptor = second if self._number(first) == in_effect != 0 else first
        os.ftruncate(descriptor, 0)
        at = _HEADER.size
        for part in parts:
            at = _write(descriptor, part, at)
        os.pwrite(descriptor, _HEADER.pack(_MAGIC, number, *map(len, parts)), 0)

    def plan(self, number: int) -> bytes | None:
        """Return the plan of one number; None when its check did not come so far."""
        try:
            return self._part(number, _PLAN)
        except HandoverError:
            return None

    def settings(self, number: int, *, with_schedules: bool = False) -> Settings:
        """Return the settings of one number, without their schedules unless they are asked for.

        Raises:
            HandoverError: they are not there.
        """
        settings: Settings = _load(self._part(number, _SETTINGS))
        if not with_schedules:
            return settings
        return settings.model_copy(update={"schedules": _load(self._part(number, _SCHEDULES))})

    def brief(self, number: int) -> Brief:
        """Return what others are told. Raises HandoverError like ``settings``."""
        found: Brief = _load(self._part(number, _BRIEF))
        return found

    def definitions(self, number: int) -> tuple[ScheduleDef, ...]:
        """Return the completed schedules. Raises HandoverError like ``settings``.

        100,000 take a tenth of a second: the scheduler, which reads them between two fires, is silent so long.
        """
        part = self._part(number, _DEFINITIONS)
        is_collecting = gc.isenabled()
        gc.disable()  # it would walk through all of them again and again, and find nothing: 2 s instead of 0.1
        try:
            return _decode(part)
        finally:
            if is_collecting:
                gc.enable()

    def close(self) -> None:
        """Close both, in this process."""
        for descriptor in self.descriptors:
            os.close(descriptor)

    def _number(self, descriptor: int) -> int:
        header = os.pread(descriptor, _HEADER.size, 0)
        if len(header) < _HEADER.size:
            return 0
        magic, number, *_ = _HEADER.unpack(header)
        return number if magic == _MAGIC else 0

    def _part(self, number: int, index: int) -> bytes:
        for descriptor in self.descriptors:
            header = os.pread(descriptor, _HEADER.size, 0)
            if self._number(descriptor) != number or len(header) < _HEADER.size:
                continue
            sizes = _HEADER.unpack(header)[2:]
            part = _read(descriptor, sizes[index], _HEADER.size + sum(sizes[:index]))
            if len(part) == sizes[index] and os.pread(descriptor, _HEADER.size, 0) == header:
                return part
        raise HandoverError(f"configuration {number} is not there any more")


def _write(descriptor: int, part: bytes, at: int) -> int:
    """Write all of ``part`` and return where the next one begins; one call takes at most 2 GiB, and may take less."""
    view = memoryview(part)
    while view:
        written = os.pwrite(descriptor, view[:_WRITE_BYTES], at)
        view, at = view[written:], at + written
    return at


def _read(descriptor: int, size: int, at: int) -> bytes:
    pieces = []
    while size > 0:
        piece = os.pread(descriptor, min(size, _WRITE_BYTES), at)
        if not piece:
            break
        pieces.append(piece)
        size, at = size - len(piece), at + len(piece)
    return b"".join(pieces)


def _load(part: bytes) -> Any:
    # Our own process made it a moment ago, in memory that nobody else can open.
    return pickle.loads(part)  # noqa: S301
