"""Between values and the bytes in Redis. The only place in the store where types are loose.

Guarantees
    What one version writes, the version before and after it reads (see core/model.py).
    Nothing larger than its cap goes in.

Does not guarantee
    That every byte string in Redis was written by us: readers get a ``DecodeError``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeVar, cast

import msgspec

from supervisor.core.errors import PayloadTooLargeError
from supervisor.core.jobs.limits import limits_of
from supervisor.core.json_values import check_arguments, json_reader, read_json
from supervisor.core.model import PAYLOAD_BYTES_MAX, Envelope, ScheduleDef, Template
from supervisor.store.keys import KIND_LETTER, LETTER_KIND, check_name

ERROR_BYTES_MAX = 4096
WORDS_MAX = 200
"""Characters of who asks, and why, that are taken from a record in Redis."""

_AROUND_ARGUMENTS = 3  # levels of an envelope or a definition: itself, its template, the arguments by name
_DIGITS_MAX = 15  # below 2^53, which Lua counts exactly
_TIMING = (
    "every_ms",
    "phase_ms",
    "cron",
    "at_ms",
    "after_completion_ms",
    "when",
    "anchor",
    "timezone",
    "dst_gap",
    "dst_overlap",
    "exclude",
    "start_at_ms",
    "end_at_ms",
)
_ID = re.compile(r"[!-+\--{}~]{1,255}", re.ASCII)  # printable, without comma, bar and space
_CHARGES = re.compile(rb"(\d{1,15}),(\d{1,15}),(\d{1,15})")
_ENVELOPE = json_reader(Envelope)
_DEFINITION = json_reader(ScheduleDef)
_ENCODER = msgspec.json.Encoder()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Packed:
    """An envelope as the scripts take it."""

    run_id: str
    queue: str
    data: bytes


def check_run_id(run_id: str) -> str:
    """Return ``run_id`` if scripts can carry it.

    Raises:
        ValueError: it is empty, longer than 255, or holds a space, a comma, a bar or a control character.
    """
    if not _ID.fullmatch(run_id):
        raise ValueError(
            f"run id {run_id[:80]!r} must be 1 to 255 printable ASCII characters without space, comma and |"
        )
    return run_id


class Packer:
    """Packs the runs of one template, to the bytes of ``pack``: what they share is checked and encoded once."""

    __slots__ = ("head", "job", "queue", "shared", "template")

    def __init__(self, template: Template) -> None:
        """Check and encode what every run shares; what comes of ``template`` alone is ``shared``, equal for equal ones.

        Raises:
            ArgumentsError: as from ``pack``.
            ValueError: its queue or priority cannot be carried.
        """
        self.head = head_of(template)
        self.job = template.job
        self.queue = template.queue
        body = _ENCODER.encode(template)
        check_arguments(template.job, template.args, body, around=_AROUND_ARGUMENTS - 1)
        self.shared = (self.head, body)
        self.template = cast("Template", msgspec.Raw(body))
        """Stands for the template in the envelopes that are handed to ``pack``."""

    def pack(self, envelope: Envelope) -> Packed:
        """Return what lies in the queue for ``envelope``, whose ``template`` is this packer's and whose id is checked.

        Raises:
            PayloadTooLargeError: the envelope is over 64 KiB.
        """
        return Packed(envelope.id, self.queue, self.head + _body(envelope, self.job))


def pack(envelope: Envelope, *, above: int = 0) -> Packed:
    """Return what lies in the queue for ``envelope``: kind letter, priority digit, limits in brackets if any, JSON.

    What is in front lets the hot script route, limit and count without decoding JSON.

    Args:
        envelope: the run.
        above: how much of its id is the id of the run that counts it among its own; 0: none does.

    Raises:
        PayloadTooLargeError: the envelope is over 64 KiB.
        ArgumentsError: the key of a limit names an argument that the run does not have, or an argument is nested
            too deeply or no JSON.
        ValueError: its id, queue or priority cannot be carried.
    """
    template = envelope.template
    head, body = head_of(template, above), _body(envelope, template.job)
    check_arguments(template.job, template.args, body, around=_AROUND_ARGUMENTS)
    return Packed(check_run_id(envelope.id), template.queue, head + body)


def head_of(template: Template, above: int = 0) -> bytes:
    """Return what stands in front of the JSON of every run of ``template``: kind, priority and limits.

    Args:
        template: of the run, with its arguments: the keys of limits are made of them.
        above: as for ``pack``.

    Raises:
        ArgumentsError: the key of a limit names an argument that the run does not have.
        ValueError: its queue or priority cannot be carried.
    """
    if template.priority not in {0, 1, 2}:
        raise ValueError(f"job {template.job}: priority must be 0, 1 or 2, got {template.priority}")
    check_name("queue", template.queue)
    return f"{KIND_LETTER[template.kind]}{template.priority}{limits_of(template).header(above)}".encode()


def _body(envelope: Envelope, job: str) -> bytes:
    body = _ENCODER.encode(envelope)
    if len(body) > PAYLOAD_BYTES_MAX:
        raise PayloadTooLargeError(
            f"run {envelope.id} of job {job}: its envelope has {len(body)} bytes, "
            f"the limit is {PAYLOAD_BYTES_MAX}; store the data elsewhere and pass a reference"
        )
    return body


def unpack(data: bytes) -> Envelope:
    """Return the envelope in ``data``.

    The kind and priority in front win over those in the JSON: they are what the queue went by.

    Raises:
        msgspec.DecodeError: not an envelope of a version that this one knows.
    """
    kind = LETTER_KIND.get(chr(data[0])) if data else None
    if kind is None or not data[1:2].isdigit():
        raise msgspec.ValidationError("the envelope does not start with a kind letter and a priority digit")
    start = data.find(b"]", 2) + 1 if data[2:3] == b"[" else 2
    envelope = _ENVELOPE(memoryview(data)[start:])
    priority = data[1] - 0x30
    if envelope.template.kind is kind and envelope.template.priority == priority:
        return envelope
    template = msgspec.structs.replace(envelope.template, kind=kind, priority=priority)
    return msgspec.structs.replace(envelope, template=template)


def limits_text(data: bytes) -> str:
    """Return the limits in front of an envelope, parted by semicolons; empty where there are none."""
    header = text(data[3 : data.find(b"]")]) if data[2:3] == b"[" else ""
    return ";".join(part for part in header.split(";") if not part.startswith("p"))  # which is no limit


def pack_result(run_id: str, result: bytes) -> bytes:
    """Return ``result`` if it is within its cap.

    Raises:
        PayloadTooLargeError: it is over 64 KiB.
    """
    if len(result) > PAYLOAD_BYTES_MAX:
        raise PayloadTooLargeError(
            f"run {run_id}: its result has {len(result)} bytes, the limit is {PAYLOAD_BYTES_MAX}; "
            f"store the data elsewhere and return a reference"
        )
    return result


def pack_error(error: dict[str, Any] | None) -> bytes:
    """Return ``error`` as JSON of at most 4 KiB, its longest texts cut at the front: the end of a traceback tells."""
    if error is None:
        return b""
    body = _ENCODER.encode(error)
    keep = ERROR_BYTES_MAX
    while len(body) > ERROR_BYTES_MAX and keep > 16:
        keep //= 2
        body = _ENCODER.encode({str(k)[:64]: _tail(v, keep) for k, v in list(error.items())[:16]})
    return body if len(body) <= ERROR_BYTES_MAX else b'{"reason":"error too large"}'


def _tail(value: Any, keep: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= keep else "…" + value[-keep:]
    return value if isinstance(value, int | float | bool) or value is None else _tail(repr(value), keep)


def unpack_json(data: bytes | None) -> dict[str, Any]:
    """Return the object in ``data``; empty when there is none or it is no object."""
    try:
        value = read_json(data) if data else {}
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def pack_definition(definition: ScheduleDef) -> bytes:
    """Return ``definition`` as JSON; equal definitions give equal bytes.

    Raises:
        PayloadTooLargeError: it is over 64 KiB.
        ArgumentsError: an argument of its runs is nested too deeply, or no JSON.
    """
    body = msgspec.json.encode(definition, order="sorted")
    if len(body) > PAYLOAD_BYTES_MAX:
        raise PayloadTooLargeError(
            f"schedule {definition.id}: its definition has {len(body)} bytes, the limit is {PAYLOAD_BYTES_MAX}"
        )
    check_arguments(definition.template.job, definition.template.args, body, around=_AROUND_ARGUMENTS)
    return body


def unpack_definition(data: bytes) -> ScheduleDef:
    """Return the definition in ``data``.

    Raises:
        msgspec.DecodeError: not a definition of a version that this one knows.
    """
    return _DEFINITION(data)


def timing_digest(definition: ScheduleDef) -> str:
    """Return a digest of the fields whose change moves the watermark."""
    timing = [getattr(definition, name) for name in _TIMING]
    return blake2b(msgspec.json.encode(timing), digest_size=8).hexdigest()


def text(value: Any) -> str:
    """Return a reply's bytes, number or nil as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def cut(words: str, length_max: int = WORDS_MAX) -> str:
    """Return ``words`` that a person wrote, as far as they are shown: who writes to Redis knows no limit."""
    return words[:length_max]


def number(value: Any) -> int:
    """Return a reply's number; 0 for nil and for an empty string."""
    return int(value) if value else 0


def foreign_number(value: Any) -> int | None:
    """Return a number of a record that anybody may have written; None for what is none, or has more than 15 digits."""
    written = text(value)
    return int(written) if written.isascii() and written.isdigit() and len(written) <= _DIGITS_MAX else None


def optional_number(value: Any) -> int | None:
    """Return a reply's number; None for nil and for an empty string."""
    return None if value is None or value == b"" else int(value)


def texts(reply: Any) -> list[str]:
    """Return a reply's list as texts."""
    return [text(item) for item in reply]


def chunks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Return ``items`` in groups of ``size``, as replies flatten records. The last must be whole."""
    assert len(items) % size == 0
    return [items[i : i + size] for i in range(0, len(items), size)]


def pairs(reply: Any) -> list[tuple[Any, Any]]:
    """Return a flat reply as pairs."""
    return list(zip(reply[::2], reply[1::2], strict=True))


def charges(value: bytes | None) -> tuple[int, int, int]:
    """Return the attempts, crashes and interrupts in ``value``; zeros for a run on a clean first attempt."""
    found = _CHARGES.fullmatch(value or b"")
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


def fence_parts(token: bytes) -> tuple[str, int, int]:
    """Return the session, attempt and fetch time in a fence; empty and zeros when there is none."""
    session, _, rest = text(token).partition("|")
    attempt, _, fetched = rest.partition("|")
    is_one = attempt.isdecimal() and fetched.isdecimal()
    return (session, int(attempt), int(fetched)) if is_one else ("", 0, 0)
