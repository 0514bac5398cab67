"""JSON that was written by anybody, and values that are to travel as JSON.

Guarantees
    Whatever bytes are read, the only error is ``msgspec.DecodeError``: a nesting that is too deep for the stack of
    the reader, and text that is no UTF-8, are data that cannot be read like any other.
    Written data can be read again by every process, however deep its stack is: nesting has a limit of its own,
    far below that of any interpreter.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, overload

import msgspec

from supervisor.core.errors import ArgumentsError, shown

JSON_DEPTH_MAX = 100
"""How deep arguments and results may be nested: lists in lists, objects in objects."""

_PATH_CHARS_MAX = 80
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_UNREADABLE = (RecursionError, UnicodeDecodeError)  # what msgspec raises beside its own
T = TypeVar("T")
Place = tuple[Any, str]  # of a value: the place of what it is in (or None), and its name in there


def json_reader(
    kind: type[T], *, decode_other: Callable[[type, Any], Any] | None = None
) -> Callable[[bytes | str | memoryview], T]:
    """Return a function that reads JSON of one type, and raises msgspec.DecodeError for everything else.

    ``decode_other`` makes objects of types that msgspec does not know.
    """
    decode = msgspec.json.Decoder(kind, dec_hook=decode_other).decode

    def read(data: bytes | str | memoryview) -> T:
        try:
            return decode(data)
        except _UNREADABLE as error:
            raise _unreadable(error) from None

    return read


@overload
def read_json(data: bytes | str, kind: type[T]) -> T: ...
@overload
def read_json(data: bytes | str) -> Any: ...
def read_json(data: bytes | str, kind: Any = Any) -> Any:
    """Parse ``data``.

    Raises:
        msgspec.DecodeError: it is no JSON of type ``kind``, or nested too deeply.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except _UNREADABLE as error:
        raise _unreadable(error) from None


@overload
def read_unrepeated(data: bytes, kind: type[T]) -> T: ...
@overload
def read_unrepeated(data: bytes) -> Any: ...
def read_unrepeated(data: bytes, kind: Any = Any) -> Any:
    """Parse what a person or a program wrote by hand: of a key that stands twice one value would be lost in silence.

    Raises:
        msgspec.DecodeError: as of ``read_json``, or an object has a key twice.
    """
    value = read_json(data, kind)
    check_unrepeated(data)
    return value


def check_unrepeated(data: bytes) -> None:
    """Return if no object in ``data``, which is JSON, has a key twice.

    Raises:
        msgspec.DecodeError: one has.
    """
    try:
        json.loads(data, object_pairs_hook=unrepeated, parse_int=str, parse_float=str)  # no number is made of a text
    except RecursionError as error:
        raise _unreadable(error) from None


def unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON as ``json`` hands it to its ``object_pairs_hook``.

    Raises:
        msgspec.DecodeError: it has a key twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise msgspec.DecodeError(f"the key {shown(twice)} stands twice in an object; remove one")
    return found


def _unreadable(error: Exception) -> msgspec.DecodeError:
    is_deep = isinstance(error, RecursionError)
    return msgspec.DecodeError("it is nested too deeply to be read" if is_deep else f"it is not UTF-8: {error}")


def json_of(value: Any, *, encode_other: Callable[[Any], Any] | None = None) -> bytes:
    """Return ``value`` as JSON.

    Args:
        value: anything that msgspec encodes.
        encode_other: makes JSON values of objects of other types; raises TypeError or ValueError for what has none.

    Raises:
        ValueError: it is none, or would not be itself again; names the place and the reason.
    """
    try:
        body = msgspec.json.encode(value, enc_hook=encode_other)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if problem := misfit(value, body, encode_other=encode_other):
        raise ValueError(f"not JSON: {problem}")
    return body


def canonical_json(
    value: Any, *, order: Literal["deterministic", "sorted"], encode_other: Callable[[Any], Any] | None = None
) -> bytes:
    """Return ``value`` as JSON in one order of its mappings and sets, so that equal values are equal in each process.

    Args:
        value: what can be written as JSON.
        order: ``sorted``: of fields of objects too.
        encode_other: makes plain values of what msgspec does not know.
    """
    try:
        return msgspec.json.encode(value, enc_hook=encode_other, order=order)
    except TypeError:  # a key that is no text, or members of a set that do not compare
        return msgspec.json.encode(_in_order(value, order), enc_hook=encode_other, order=order)


def canonical_text(value: Any, *, encode_other: Callable[[Any], Any] | None = None) -> str:
    """Return what JSON writes as a text as that text, and any other value as sorted canonical JSON."""
    body = canonical_json(value, order="sorted", encode_other=encode_other)
    return str(read_json(body)) if body.startswith(b'"') else body.decode()


def _in_order(value: Any, order: Literal["deterministic", "sorted"]) -> Any:
    """Return ``value`` with texts as keys, and lists in place of sets."""
    if isinstance(value, set | frozenset):
        return [msgspec.Raw(each) for each in sorted(canonical_json(each, order=order) for each in value)]
    if isinstance(value, list | tuple):
        return [_in_order(each, order) for each in value]
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag = {} if config.tag is None else {config.tag_field: config.tag}
        named = {each.encode_name: getattr(value, each.name) for each in msgspec.structs.fields(value)}
        value = {**tag, **named}
    elif is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        named_items = (  # one by one: 1 and "1" are the same key, of which the last counts, as where JSON is read
            (name, each) for key, each in value.items() for name in msgspec.to_builtins({key: None}, str_keys=True)
        )
        return {name: _in_order(each, order) for name, each in named_items}
    return value


def is_deeper(body: bytes, depth: int) -> bool:
    """Return whether JSON is nested deeper than ``depth``. Nearly always two counts decide it."""
    if body.count(b"[") + body.count(b"{") <= depth:
        return False
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    left = b"".join(body.split(b'"')[::2]).translate(_BRACKETS, _NO_BRACKETS)  # what is outside of texts
    for _ in range(depth):
        left = left.replace(b"[]", b"")  # the innermost level
        if not left:
            return False
    return bool(left)


def misfit(value: Any, body: bytes, *, around: int = 0, encode_other: Callable[[Any], Any] | None = None) -> str:
    """Return where and why ``value`` would not be itself after a journey as JSON; empty: it would.

    Args:
        value: the value to send.
        body: its JSON, or JSON that holds it.
        around: how many levels of ``body`` are around it.
        encode_other: as ``json_of`` takes it.
    """
    # NaN and the infinities are written as null, so without one there is none of them.
    is_deep = is_deeper(body, JSON_DEPTH_MAX + around)
    if not is_deep and b"null" not in body:
        return ""
    try:
        found = _first_misfit(msgspec.to_builtins(value, str_keys=True, enc_hook=encode_other))
    except RecursionError:
        found = ""
    return found or ("it is nested too deeply" if is_deep else "")


def check_arguments(job: str, args: Mapping[str, Any], body: bytes, *, around: int) -> None:
    """Return if arguments of ``job`` can travel: ``body`` is JSON with so many levels ``around`` the value of each.

    Raises:
        ArgumentsError: one is nested deeper than ``JSON_DEPTH_MAX``, or holds NaN or an infinity; names the place.
    """
    if problem := misfit(args, body, around=around):
        raise ArgumentsError(f"job {job}: argument {problem}")


def _first_misfit(value: Any) -> str:
    waiting: list[tuple[Any, Place | None, int]] = [(value, None, 0)]
    while waiting:
        item, place, depth = waiting.pop()
        if isinstance(item, float):
            if not math.isfinite(item):
                return f"{path_of(place)} is {item}, which JSON does not have; send null or a text in its place"
            continue
        if not isinstance(item, dict | list | tuple):
            continue
        if depth > JSON_DEPTH_MAX:
            return (
                f"{path_of(place)} is nested deeper than {JSON_DEPTH_MAX} levels; "
                f"flatten it, or store it elsewhere and pass a reference"
            )
        inside = item.items() if isinstance(item, dict) else enumerate(item)
        waiting += [(each, (place, str(name)), depth + 1) for name, each in inside]
    return ""


def path_of(place: Place | None) -> str:
    """Return the way to a value, in at most 81 characters."""
    names: list[str] = []
    while place is not None:
        place, name = place
        names.append(name)
    path = ".".join(reversed(names)) or "the value"
    return path if len(path) <= _PATH_CHARS_MAX else path[:_PATH_CHARS_MAX] + "…"
