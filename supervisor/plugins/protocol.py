"""The lines that a host and a program exchange: protocol 1 of docs/plugins.md. Values only, no I/O.

A request is one line of JSON whose first key is ``id`` and whose second is ``method``, without spaces, so that a
shell script can take it apart. A program's answer may be any JSON object on one line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from supervisor.core.json_values import json_reader

PROTOCOL = 1
MESSAGE_CHARS_MAX = 1000
"""Longest message that people get to read."""

HELD_CHARS_MAX = 64 * 1024
"""How much is looked through for secrets before it is cut to what people read."""

SHOWN_CHARS_MAX = 120
METHODS_MAX = 64

_encode = msgspec.json.Encoder().encode


class ProtocolError(Exception):
    """A line that no plugin may write; names the fault, and shows no more than the line's beginning."""


class Hello(msgspec.Struct, frozen=True):
    """Greeting of a plugin's program: protocol, version, methods."""

    protocol: int
    version: str = "0"
    name: str = ""
    methods: list[str] = []


class _Error(msgspec.Struct, frozen=True):
    message: str = "no message"


class _Line(msgspec.Struct, frozen=True):
    id: int
    item: Any | msgspec.UnsetType = msgspec.UNSET
    result: Any | msgspec.UnsetType = msgspec.UNSET
    error: _Error | msgspec.UnsetType = msgspec.UNSET


_decoder = json_reader(_Line)


@dataclass(frozen=True, slots=True)
class Item:
    """One of several results."""

    value: Any


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a call that worked, with its one result if it has one."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of a call that did not."""

    message: str


def request(number: int, method: str, params: dict[str, Any]) -> bytes:
    """Return the line that asks for ``method``."""
    return _encode({"id": number, "method": method, "params": params}) + b"\n"


def read_line(line: bytes, *, expected: int, mask: Callable[[str], str] = str) -> Item | Done | Failed:
    """Parse a line about the call ``expected``, the only one that is open; ``mask`` takes out what no error may show.

    Raises:
        ProtocolError: nothing that belongs to it.
    """
    try:
        found = _decoder(line)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"wrote what is no message ({error}): {shown(line, mask)}") from None
    if found.id != expected:
        raise ProtocolError(f"answered call {found.id} while call {expected} was open: {shown(line, mask)}")
    given = [name for name in ("item", "result", "error") if getattr(found, name) is not msgspec.UNSET]
    if len(given) != 1:
        raise ProtocolError(
            f"must say one of item, result and error in a line, got {given or 'none'}: {shown(line, mask)}"
        )
    if given == ["item"]:
        return Item(found.item)
    if given == ["result"]:
        return Done(found.result)
    assert isinstance(found.error, _Error)
    return Failed(found.error.message[:HELD_CHARS_MAX])


def read_hello(value: Any) -> Hello:
    """Parse the greeting of a program.

    Raises:
        ProtocolError: it cannot be used by this host.
    """
    try:
        hello = msgspec.convert(value, Hello)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"does not introduce itself as it must: {error}") from None
    if hello.protocol != PROTOCOL:
        raise ProtocolError(f"speaks protocol {hello.protocol}, and this is {PROTOCOL}; upgrade the older side")
    if not 0 < len(hello.version) <= 64 or len(hello.methods) > METHODS_MAX:
        raise ProtocolError("must have a version of 1 to 64 characters, and at most 64 methods")
    return hello


def shown(line: bytes, mask: Callable[[str], str] = str) -> str:
    """Return the beginning of a line, for people."""
    text = mask(line[:HELD_CHARS_MAX].decode(errors="replace"))  # first, because repr and a cut change a secret
    return repr(text[:SHOWN_CHARS_MAX]) + ("…" if len(text) > SHOWN_CHARS_MAX else "")
