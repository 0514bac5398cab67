"""Envelopes as they lie in the queue: kind letter, priority digit, limits in brackets if any, JSON.

The fields in front let the hot script route, limit and count without decoding JSON.

Guarantees
    A run has the same bytes however it is packed: alone, by a template, or with arguments of its own.
    Data of one version are readable by the versions before and after it (core/model.py). No envelope is over 64 KiB.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec

from supervisor.core.errors import ArgumentsError, OptionError, PayloadTooLargeError, shown
from supervisor.core.jobs.limits import limits_of
from supervisor.core.json_values import canonical_json, check_arguments, json_reader
from supervisor.core.model import PAYLOAD_BYTES_MAX, Envelope, Template
from supervisor.core.names import check_name
from supervisor.store.keys import KIND_LETTER, LETTER_KIND
from supervisor.store.wire.codec import text

_AROUND_ARGUMENTS = 3  # levels of an envelope around the value of an argument: itself, its template, the arguments
_ID = re.compile(r"[!-+\--{}~]{1,255}", re.ASCII)  # printable, without comma, bar and space
_UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
_encode = msgspec.json.Encoder().encode
_read = json_reader(Envelope)
_HEADS = {f"{letter}{digit}".encode(): (kind, digit) for letter, kind in LETTER_KIND.items() for digit in range(10)}

# Where the parts of an envelope meet, as its encoder writes it: no field is spelled a second time.
_NO_TEMPLATE = cast("Template", msgspec.Raw(b"{}"))
_FRAME = _encode(Envelope(id="", template=_NO_TEMPLATE))[:-1]
_BEFORE_ID, _BEFORE_TEMPLATE = _FRAME.removesuffix(b"{}").split(b'""')
_FRAME_LENGTH = len(_FRAME)
_NO_ARGS: dict[str, Any] = {"": 0}
_BEFORE_ARGS, _ARGS_HOLE = b',"args":', _encode(_NO_ARGS)


class Packed(NamedTuple):
    """An envelope as the scripts take it. A tuple, because thousands are made in a second."""

    run_id: str
    queue: str
    data: bytes


def content_of(job: str, args: Mapping[str, Any]) -> str:
    """Digest of the job and the arguments of a run, the same in whatever order they are given."""
    return hashlib.blake2b(canonical_json((job, args), order="deterministic"), digest_size=8).hexdigest()


def check_run_id(run_id: Any) -> str:
    """Return ``run_id`` if scripts can carry it.

    Raises:
        OptionError: it is no text, is empty, longer than 255, or holds a space, a comma, a bar or a control character.
    """
    if not isinstance(run_id, str) or not is_run_id(run_id):
        raise OptionError(
            f"run id {shown(run_id)} must be 1 to 255 printable ASCII characters without space, comma and |"
        )
    return run_id


def is_run_id(run_id: str) -> bool:
    """Return whether scripts can carry ``run_id``; one that they cannot was written by somebody else."""
    return _ID.fullmatch(run_id) is not None


def pack(envelope: Envelope, *, above: int = 0) -> Packed:
    """Return the queued form of ``envelope``.

    Args:
        envelope: the run.
        above: how much of its id is the id of the run that counts it among its own; 0: none does.

    Raises:
        PayloadTooLargeError: the envelope is over 64 KiB.
        ArgumentsError: the key of a limit names an argument that the run does not have, or an argument is nested
            too deeply or no JSON.
        ValueError: its id, queue or priority cannot be carried.
    """
    template, run_id = envelope.template, check_run_id(envelope.id)
    try:
        body = _encode(envelope)
    except _UNWRITABLE as error:
        raise _unwritable(template.job, error) from None
    if len(body) > PAYLOAD_BYTES_MAX:
        raise _too_large(len(body), run_id, template.job)
    check_arguments(template.job, template.args, body, around=_AROUND_ARGUMENTS)
    return Packed(run_id, template.queue, _head(template, above) + body)


class EnvelopeTemplate:
    """Encoder of runs that share a template, arguments included: it is checked and encoded once."""

    __slots__ = ("head", "job", "queue", "shared", "template")

    def __init__(self, template: Template) -> None:
        """Check and encode the common part of all runs; that of ``template`` alone is ``shared``, equal for equal ones.

        Raises:
            ArgumentsError: as from ``pack``.
            ValueError: its queue or priority cannot be carried.
        """
        self.head = _head(template)
        self.job = template.job
        self.queue = template.queue
        body = _encode(template)
        check_arguments(template.job, template.args, body, around=_AROUND_ARGUMENTS - 1)
        self.shared = (self.head, body)
        self.template = cast("Template", msgspec.Raw(body))
        """Stands for the template in the envelopes that are handed to ``pack``."""

    def pack(self, envelope: Envelope) -> Packed:
        """Return the queued form of ``envelope``, whose ``template`` is this one's and whose id is checked.

        Raises:
            PayloadTooLargeError: the envelope is over 64 KiB.
        """
        body = _encode(envelope)
        if len(body) > PAYLOAD_BYTES_MAX:
            raise _too_large(len(body), envelope.id, self.job)
        return Packed(envelope.id, self.queue, self.head + body)


class ArgumentsTemplate:
    """Encoder of runs that share all of a template but its arguments."""

    __slots__ = ("_after", "_bare", "_before", "_is_limited", "_job", "_late_ms", "_length_max", "_start", "_template")

    def __init__(self, template: Template) -> None:
        """Check and encode the part common to every run, which is ``template`` without its arguments.

        Raises:
            ValueError: its queue cannot be carried, or its priority.
        """
        check_name("queue", template.queue)
        self._is_limited = bool(template.unique or template.concurrency_max or template.rate_count)
        head = b"" if self._is_limited else _head(template)
        self._start = head + _BEFORE_ID
        self._length_max = len(head) + PAYLOAD_BYTES_MAX
        self._template = template
        self._job = template.job
        self._late_ms = None if template.start_deadline_s is None else round(1000 * template.start_deadline_s)
        body = _encode(msgspec.structs.replace(template, args=_NO_ARGS))
        before, _, self._after = body.partition(_BEFORE_ARGS + _ARGS_HOLE)
        self._bare = _BEFORE_TEMPLATE + before
        self._before = self._bare + _BEFORE_ARGS

    def tail(self, wall_ms: int, delay_ms: int, traceparent: str = "") -> bytes:
        """Return the end of every envelope that is packed at one moment: when that was, and when it must begin.

        Args:
            wall_ms: the moment.
            delay_ms: before it may start.
            traceparent: the trace it belongs to, checked; empty: none.
        """
        late_ms = None if self._late_ms is None else self._late_ms + wall_ms + delay_ms
        rest = Envelope(
            id="", template=_NO_TEMPLATE, enqueued_ms=wall_ms, not_after_ms=late_ms, traceparent=traceparent
        )
        return self._after + _encode(rest)[_FRAME_LENGTH:]

    def pack(self, run_id: str, args: Mapping[str, Any], tail: bytes) -> bytes:
        """Return the queued form of a run.

        Args:
            run_id: its checked identity.
            args: its arguments.
            tail: of the moment, from ``tail``.

        Raises:
            ArgumentsError: as from ``pack``.
            PayloadTooLargeError: the envelope is over 64 KiB.
        """
        try:
            before, named = (self._before, _encode(args)) if args else (self._bare, b"")
        except _UNWRITABLE as error:
            raise _unwritable(self._job, error) from None
        check_arguments(self._job, args, named, around=_AROUND_ARGUMENTS - 2)
        data = b"".join((self._start, _encode(run_id), before, named, tail))
        if len(data) > self._length_max:
            raise _too_large(len(data) - self._length_max + PAYLOAD_BYTES_MAX, run_id, self._job)
        return _head(msgspec.structs.replace(self._template, args=dict(args))) + data if self._is_limited else data


def unpack(data: bytes) -> Envelope:
    """Return the envelope in ``data``.

    The kind and priority in front win over those in the JSON: the queue went by them.

    Raises:
        msgspec.DecodeError: not an envelope of a version that this one knows.
    """
    head = _HEADS.get(data[:2])
    if head is None:
        raise msgspec.ValidationError("the envelope does not start with a kind letter and a priority digit")
    start = data.find(b"]", 2) + 1 if data[2:3] == b"[" else 2
    envelope = _read(memoryview(data)[start:])
    template = envelope.template
    if (template.kind, template.priority) == head:
        return envelope
    template = msgspec.structs.replace(template, kind=head[0], priority=head[1])
    return msgspec.structs.replace(envelope, template=template)


def limits_text(data: bytes) -> str:
    """Return the limits in front of an envelope, parted by semicolons; empty where there are none."""
    header = text(data[3 : data.find(b"]")]) if data[2:3] == b"[" else ""
    return ";".join(part for part in header.split(";") if not part.startswith("p"))  # which is no limit


def _head(template: Template, above: int = 0) -> bytes:
    """Return the header in front of the JSON: kind, priority and limits, whose keys are made of the arguments."""
    if template.priority not in {0, 1, 2}:
        raise ValueError(f"job {template.job}: priority must be 0, 1 or 2, got {template.priority}")
    check_name("queue", template.queue)
    return f"{KIND_LETTER[template.kind]}{template.priority}{limits_of(template).header(above)}".encode()


def _too_large(size: int, run_id: str, job: str) -> PayloadTooLargeError:
    return PayloadTooLargeError(
        f"run {run_id} of job {job}: its envelope has {size} bytes, "
        f"the limit is {PAYLOAD_BYTES_MAX}; store the data elsewhere and pass a reference"
    )


def _unwritable(job: str, error: Exception) -> ArgumentsError:
    return ArgumentsError(f"job {job}: its arguments cannot be written as JSON: {error}")
