"""Refused tokens: counted, logged in folds, and slowed down by address.

Guarantees
    An address has ``BURST`` wrong tokens, and another one each ``REFILL_S``; until then its tokens are not looked at,
    but for those that it used before, so that a stranger behind the same proxy shuts nobody out.
    At most ``ADDRESSES_MAX`` addresses are remembered, the last ones; at most a line a minute is logged.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from supervisor.clock import Clock
from supervisor.core.units import SECOND_NS
from supervisor.telemetry.log_lines.fold import RepeatedWarning
from supervisor.telemetry.metrics import TOKENS_REFUSED

BURST = 10
REFILL_S = 6.0
ADDRESSES_MAX = 1024
PATH_CHARS_MAX = 200


@dataclass(slots=True)
class _Address:
    """One address: attempts left at an instant, and digests of the tokens that it was let in with."""

    left: float
    at_s: float
    known: set[bytes] = field(default_factory=set)


class TokenRefusals:
    """The record of one web process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self.lines = RepeatedWarning("token_refused", clock)

    def is_slowed(self, address: str) -> bool:
        """Return whether ``address`` has used up its wrong tokens."""
        return self._of(address).left < 1

    def knows(self, address: str, digest: bytes) -> bool:
        """Return whether a token was accepted from ``address`` before."""
        return digest in self._of(address).known

    def accept(self, address: str, digest: bytes) -> None:
        """Note a token that was let in. The lines of a tokens file bound how many there are."""
        self._of(address).known.add(digest)

    def refuse(self, address: str, path: str) -> None:
        """Note a token that was not."""
        entry = self._of(address)
        entry.left = max(0.0, entry.left - 1)
        TOKENS_REFUSED.inc()
        self.lines.add(status=401, address=address, path=path[:PATH_CHARS_MAX])

    def _of(self, address: str) -> _Address:
        now_s = self._now_s()
        entry = self._addresses.get(address)
        if entry is None:
            entry = self._addresses[address] = _Address(float(BURST), now_s)
            if len(self._addresses) > ADDRESSES_MAX:
                self._addresses.popitem(last=False)
        entry.left = min(float(BURST), entry.left + (now_s - entry.at_s) / REFILL_S)
        entry.at_s = now_s
        self._addresses.move_to_end(address)
        return entry

    def _now_s(self) -> float:
        return self._clock.elapsed_ns() / SECOND_NS
