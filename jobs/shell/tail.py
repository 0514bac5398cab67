"""The end of a command's output: however much it writes, memory stays bounded.

Guarantees
    ``text()`` is valid text and takes at most ``JSON_BYTES_MAX`` bytes as JSON, so that it
    fits into the run's record beside everything else. Control characters take six bytes each
    there, which is why the bound on bytes kept is not enough.
"""

from __future__ import annotations

import msgspec

JSON_BYTES_MAX = 48 * 1024


class Tail:
    """Keeps the last ``limit`` bytes of its input."""

    def __init__(self, limit: int) -> None:
        assert limit >= 0
        self._limit = limit
        self._kept = bytearray()
        self._fed = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next piece of output."""
        self._fed += len(chunk)
        self._kept += chunk[-self._limit :] if self._limit else b""
        if len(self._kept) > self._limit:
            del self._kept[: -self._limit]

    def text(self) -> str:
        """Return the kept bytes as text; bytes that are not UTF-8 become U+FFFD."""
        kept = bytes(self._kept)
        if self._fed > len(kept):
            kept = _from_a_character_on(kept)
        text = kept.decode(errors="replace")
        while (excess := len(msgspec.json.encode(text)) - JSON_BYTES_MAX) > 0:
            text = text[max(1, excess // 6) :]
        return text

    @property
    def is_truncated(self) -> bool:
        """True if ``text()`` is less than all there was."""
        return self._fed > len(self._kept) or len(self.text()) < len(self._kept.decode(errors="replace"))


def _from_a_character_on(cut: bytes) -> bytes:
    """Drop the rest of a UTF-8 character that the limit cut in two: at most three continuation bytes."""
    start = 0
    while start < min(3, len(cut)) and cut[start] & 0xC0 == 0x80:
        start += 1
    return cut[start:]
