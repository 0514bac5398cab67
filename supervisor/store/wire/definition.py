"""Definitions of schedules as Redis keeps them: three lines in front, which the scripts write and compare, then JSON.

Guarantees
    Equal definitions give equal bytes, whoever packs them: they are compared without being decoded.
    Data of one version are readable by the versions before and after it (core/model.py). No definition is over 64 KiB.
"""

from __future__ import annotations

from hashlib import blake2b
from sys import intern
from typing import NamedTuple

import msgspec

from supervisor.core.errors import PayloadTooLargeError
from supervisor.core.json_values import check_arguments, json_reader
from supervisor.core.model import ENVELOPE_BYTES, OWN_TRIGGER, PAYLOAD_BYTES_MAX, ScheduleDef
from supervisor.core.schedules.triggers import after_completion_ms, is_hashed
from supervisor.store.wire.codec import foreign_number, text

_AROUND_ARGUMENTS = 3  # levels of a definition around the value of an argument: itself, its template, the arguments
_TIMING = (
    *OWN_TRIGGER,
    "when",
    "anchor",
    "timezone",
    "dst_gap",
    "dst_overlap",
    "exclude",
    "start_at_ms",
    "end_at_ms",
)
_read = json_reader(ScheduleDef)


class StoredDefinition(NamedTuple):
    """A definition with the lines in front of it, as ``lib/define.lua`` joins them."""

    revision: int | None  # None: no version of ours wrote it
    set: str  # digest of its configuration when it was last changed, or ``dynamic``
    body: bytes  # JSON, not decoded: most readers compare it only

    @classmethod
    def parse(cls, stored: bytes) -> StoredDefinition:
        """Return the parts of ``stored``; between revision and set is the digest of the timing."""
        revision, _, digest, body = [*stored.split(b"\n", 3), b"", b"", b""][:4]
        return cls(foreign_number(revision), text(digest), body)


def pack_definition(definition: ScheduleDef) -> bytes:
    """Return ``definition`` as JSON; equal definitions give equal bytes.

    Raises:
        PayloadTooLargeError: it is over 64 KiB, or a run of it would be.
        ArgumentsError: an argument of its runs is nested too deeply, or no JSON.
    """
    body = msgspec.json.encode(definition, order="sorted")
    if len(body) + ENVELOPE_BYTES > PAYLOAD_BYTES_MAX:
        size = max(len(body), len(msgspec.json.encode(definition.template)) + ENVELOPE_BYTES)
        if size > PAYLOAD_BYTES_MAX:
            raise PayloadTooLargeError(
                f"schedule {definition.id}: its definition or a run has {size} bytes, the limit is {PAYLOAD_BYTES_MAX}"
            )
    check_arguments(definition.template.job, definition.template.args, body, around=_AROUND_ARGUMENTS)
    return body


def unpack_definition(data: bytes) -> ScheduleDef:
    """Return the definition in ``data``.

    Raises:
        msgspec.DecodeError: not a definition of a version that this one knows.
    """
    return _read(data)


def timing_digest(definition: ScheduleDef) -> str:
    """Return a digest of the fields whose change moves the watermark."""
    timing = [getattr(definition, name) for name in _TIMING]
    if definition.after is not None:  # the digest of all others stays the same as in former versions
        timing.append(definition.after)
    if definition.on_excluded != "skip":  # absent by default: digests are compared with those of older versions
        timing.append(definition.on_excluded)
    if is_hashed(definition):
        timing.append(definition.id)
    return blake2b(msgspec.json.encode(timing), digest_size=8).hexdigest()


def policy_text(definition: ScheduleDef, wait: str = "", keep_ms: int | None = None) -> str:
    """Return the policy of ``definition`` as ``fire`` takes it: schedules with equal ones share one text.

    Args:
        definition: has the policies for overlap and for completion.
        wait: the effects of the end of a run; empty: none.
        keep_ms: how long it is kept when it is completed; None: for ever.
    """
    limit, runs = definition.buffer_limit, definition.max_runs
    if limit is None:
        limit = 1 if definition.overlap == "buffer_one" else 1000
    unfinished = f"{definition.overlap} {definition.max_running} {limit} {definition.cancel_grace_ms}"
    return intern(f"{unfinished} {'-' if runs is None else runs} {wait or '-'} {'-' if keep_ms is None else keep_ms}")


def wait_text(definition: ScheduleDef) -> str:
    """Return what the end of a run causes, as ``lib/live.lua`` reads it."""
    delay = after_completion_ms(definition)
    parts = [] if delay is None else [f"c{delay}"]
    if definition.pause_after_failures:
        # Under `allow` no list of unfinished runs is kept for them: failures are counted by the ids of the runs.
        parts.append(f"{'F' if definition.overlap == 'allow' else 'f'}{definition.pause_after_failures}")
    if definition.finish_within_ms is not None:
        parts.append(f"w{definition.finish_within_ms}")
    return ",".join(parts)
