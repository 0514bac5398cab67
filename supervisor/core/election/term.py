"""A term of leadership as its own replica carries it: the fencing token and the end of its trust."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """One term of leadership. ``epoch`` 0: none."""

    epoch: int
    nonce: str  # 32 hex digits
    trusted_until_ns: int

    def is_trusted(self, now_ns: int) -> bool:
        """Return whether its holder may still act on it."""
        return self.epoch > 0 and now_ns < self.trusted_until_ns


NO_TERM = Term(epoch=0, nonce="0" * 32, trusted_until_ns=0)
