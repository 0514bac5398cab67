"""A warning that every request of a stranger may cause: the first at once, then a line a minute with their number."""

from __future__ import annotations

import structlog

from supervisor.clock import Clock
from supervisor.core.units import SECOND_NS

FOLD_S = 60.0

log = structlog.get_logger()


class RepeatedWarning:
    """One event of the log of one process, with the fields of its last occurrence."""

    def __init__(self, event: str, clock: Clock) -> None:
        self._event = event
        self._clock = clock
        self._fields: dict[str, object] = {}
        self._count = 0
        self._told_ns: int | None = None

    def add(self, **fields: object) -> None:
        """Count one occurrence."""
        self._count += 1
        self._fields = fields
        self.tell()

    def tell(self) -> None:
        """Log what has come since the last line, if that is a minute ago. Call it now and then."""
        now_ns = self._clock.elapsed_ns()
        if self._count and (self._told_ns is None or now_ns - self._told_ns >= FOLD_S * SECOND_NS):
            log.warning(self._event, count=self._count, **self._fields)
            self._count, self._told_ns = 0, now_ns
