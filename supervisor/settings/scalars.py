"""Meaning of plain YAML scalars: only those on which YAML 1.1 and YAML 1.2 agree.

Half of the world's parsers read ``on`` as true, ``012`` as ten, ``12:30:00`` as 45000 and
``1e3`` as a text; the other half do not. Whoever wrote one of these meant something, and
guessing would be wrong for half of the authors, so each is refused with the remedy.
Dates stay texts: no setting is a date, and a job's argument travels as JSON.

The patterns are those of https://yaml.org/type/ (1.1) and https://yaml.org/spec/1.2.2/ §10.3.2.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_OLD_BOOLS = re.compile(r"(?:yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF)\Z")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_HEX = re.compile(r"0x[0-9a-fA-F]+\Z")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+\Z")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?\Z")
_OTHER_BASE = re.compile(r"[-+]?0[bo][0-9_]+\Z|[-+]0x[0-9a-fA-F_]+\Z|0x[0-9a-fA-F]*_[0-9a-fA-F_]*\Z")
_GROUPED = re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?\Z|[-+]?\.[0-9_]+\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?\Z")
_SIGNED_POINT = re.compile(r"[-+]\.[0-9]+(?:[eE][-+][0-9]+)?\Z")
_EXPONENT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+\Z")
_NOT_FINITE = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_INT_CHARS_MAX = 20  # more could not fit, and converting very long ones is slow
_INT_END = 2**63  # what msgspec and Redis carry


def is_utf8(text: str) -> bool:
    """Return whether a variable was: Python has a half of a character for each byte of one that was not."""
    return not any("\ud800" <= each <= "\udfff" for each in text)


@dataclass(frozen=True, slots=True)
class Trap:
    """Ambiguous plain scalar: the reason of its refusal, and the remedy."""

    reason: str
    remedy: str


def resolve(text: str) -> str | int | float | bool | Trap | None:
    """Return the value of the plain scalar ``text`` in every version of YAML, or the reason of its refusal."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _OLD_BOOLS.match(text):
        return Trap("is a truth value to some YAML parsers and text to others", "write true or false, or quote it")
    if text[0] not in "-+.0123456789":
        return text
    return _resolve_number(text)


def _resolve_number(text: str) -> str | int | float | Trap:
    if _INT.match(text) or _HEX.match(text):
        value = int(text, 0) if len(text) <= _INT_CHARS_MAX else _INT_END
        if not -_INT_END <= value < _INT_END:
            return Trap("is a number too large for 64 bits", "quote it if it is text")
        return value
    if _SEXAGESIMAL.match(text):
        return Trap("is a base-60 number to some YAML parsers", "quote it")
    if _LEADING_ZERO.match(text):
        return Trap("is octal to some YAML parsers because of its leading zero", "drop the zero, or quote it")
    if _OTHER_BASE.match(text):
        return Trap("is a number to some YAML parsers and text to others", "write it in decimal, or quote it")
    if _SIGNED_POINT.match(text):
        return Trap("is a number to some YAML parsers and text to others", "write a 0 before the point, or quote it")
    if _FLOAT.match(text):
        number = float(text)
        return number if math.isfinite(number) else Trap("is not a finite number", "quote it if it is text")
    if _EXPONENT.match(text):
        return Trap("is a number to some YAML parsers and text to others", "write it without exponent, or quote it")
    if _GROUPED.match(text) and any(digit.isdigit() for digit in text):
        return Trap("is a number to some YAML parsers and text to others", "drop the underscores, or quote it")
    if _NOT_FINITE.match(text):
        return Trap("is not a finite number", "quote it if it is text")
    return text
