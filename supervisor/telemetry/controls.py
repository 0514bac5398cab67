"""Controls in what people are shown: a terminal obeys some, and others turn the direction of text."""

from __future__ import annotations

import re

_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")
"""In UTF-8 the controls that JSON permits in strings: DEL and C1, which a terminal obeys, and those of direction."""

_TEXT_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Those of text: all but the line feed, and lone surrogates."""


def without_controls(data: bytes) -> bytes:
    """Return JSON in which every control is escaped, so that showing it steers no terminal; it means the same."""
    if data.isascii() and b"\x7f" not in data:
        return data
    return _CONTROLS.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), data)


def escape_controls(text: str) -> str:
    """Return text for people in which each control but the line feed is escaped, and what UTF-8 cannot hold."""
    if text.isprintable():  # nearly all short ones are
        return text
    return _TEXT_CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
