"""Retry policy of a failed run."""

from __future__ import annotations

import msgspec

ATTEMPTS_MAX = 100
DELAY_S_MAX = 86_400.0


class Retry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Retry policy: the number of attempts of a run, and the delays between them.

    The delay before attempt n + 1 is drawn uniformly from [0, min(cap_s, base_s * 2 ** (n - 1))]
    ("full jitter": AWS Architecture Blog, "Exponential Backoff And Jitter", 2015), so that runs
    which failed together do not come back together.

    Raises:
        ValueError: a value is outside its range.
    """

    attempts: int = 3
    """Attempts in all, the first included; 1 to 100. Crashes and interruptions do not count."""

    base_s: float = 2.0
    """Upper bound of the first delay, in seconds; 0 to 86400."""

    cap_s: float = 600.0
    """Upper bound of every delay, in seconds; ``base_s`` to 86400."""

    def __post_init__(self) -> None:
        """Refuse values that are never meant."""
        if not 1 <= self.attempts <= ATTEMPTS_MAX:
            raise ValueError(f"Retry.attempts must be 1 to {ATTEMPTS_MAX}, got {self.attempts}")
        if not 0 <= self.base_s <= DELAY_S_MAX:
            raise ValueError(f"Retry.base_s must be 0 to {DELAY_S_MAX:.0f} seconds, got {self.base_s}")
        if not self.base_s <= self.cap_s <= DELAY_S_MAX:
            raise ValueError(f"Retry.cap_s must be base_s ({self.base_s}) to {DELAY_S_MAX:.0f}, got {self.cap_s}")

    def delay_s(self, attempt: int, uniform: float) -> float | None:
        """Return the seconds to wait after ``attempt`` failed, or None when that was the last.

        Args:
            attempt: the attempt that failed, from 1.
            uniform: a draw from [0, 1), handed in because the core draws nothing.
        """
        assert attempt >= 1
        assert 0.0 <= uniform < 1.0
        if attempt >= self.attempts:
            return None
        ceiling = min(self.cap_s, self.base_s * 2.0 ** min(attempt - 1, 40))
        return ceiling * uniform
