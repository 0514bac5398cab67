"""Watermarks that this process decided, kept for the case that Redis loses its data."""

from __future__ import annotations

from collections.abc import Collection

from supervisor.core.board import Term
from supervisor.core.errors import StoreRefusedError
from supervisor.roles.scheduler.asking import Asking
from supervisor.roles.steps import Steps
from supervisor.store.schedules import Schedules

MARKS_MAX = 100_000
PAGE = 250


class Watermarks:
    """By schedule; they outlive the term. The oldest are forgotten first."""

    def __init__(self, schedules: Schedules, asking: Asking) -> None:
        self._schedules = schedules
        self._asking = asking
        self._marks: dict[str, int] = {}

    def remember(self, schedule: str, mark_ms: int) -> None:
        """Keep a watermark."""
        self._marks[schedule] = mark_ms
        if len(self._marks) > MARKS_MAX:
            del self._marks[next(iter(self._marks))]

    def forget(self, schedule: str) -> None:
        """Drop the watermark of a schedule that is gone."""
        self._marks.pop(schedule, None)

    def seed(self, term: Term, defined: Collection[str]) -> Steps[None]:
        """Bring back what Redis lost.

        Args:
            term: the caller's.
            defined: ids that this replica is about to define again. Of others it does not know whether they were
                deleted: by the watermark of a former life one that comes again would owe what was due in between.
        """
        pairs = [(schedule, mark_ms) for schedule, mark_ms in self._marks.items() if schedule in defined]
        for start in range(0, len(pairs), PAGE):
            page = dict(pairs[start : start + PAGE])
            call = self._schedules.seed(epoch=term.epoch, nonce=term.nonce, marks=page)
            try:
                seeded = yield from self._asking.ask(term, call)
            except StoreRefusedError as error:
                self._asking.report("reading_refused", what="watermarks", error=str(error))
                continue
            self._asking.report("watermarks_seeded", seeded=seeded, known=len(page))
