"""Drops what queues have kept for long enough: `queues.history_age` and `queues.dead_age`.

Guarantees
    Each look makes one call for each queue, which drops up to 500 entries of each kind: a store that was never trimmed
    is brought down little by little. Every agent may do it: what is gone is gone.

Does not guarantee
    That an entry goes at the second: once a minute is looked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from supervisor.core.lease import MS
from supervisor.settings.queue_settings import QueueSettings
from supervisor.store.queues import Queues
from supervisor.store.scripts import Call

PERIOD_NS = 60_000 * MS


class Retention:
    """The duty of one agent. There is none where no age is set."""

    period_ns = PERIOD_NS

    def __init__(self, *, run: Callable[[Call[Any]], Any], queues: Queues, limits: QueueSettings) -> None:
        self._run = run
        self._queues = queues
        self._limits = limits

    @classmethod
    def of(cls, *, run: Callable[[Call[Any]], Any], queues: Queues, limits: QueueSettings) -> Retention | None:
        """Return the duty; None if nothing goes by its age."""
        if limits.history_age_s is None and limits.dead_age_s is None:
            return None
        return cls(run=run, queues=queues, limits=limits)

    def look(self, _now_ns: int) -> None:
        """Drop what is too old, up to a bound for each queue."""
        limits = self._limits
        for name in self._run(self._queues.names()):
            self._run(
                self._queues.trim(
                    name,
                    history=limits.history,
                    dead_cap=limits.dead,
                    dead_age_ms=round(1000 * (limits.dead_age_s or 0)),
                    history_age_ms=round(1000 * (limits.history_age_s or 0)),
                )
            )
