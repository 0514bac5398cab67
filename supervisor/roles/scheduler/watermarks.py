"""Watermarks for the case that Redis loses them: remembered while a term is served, written back by the next.

Guarantees
    A watermark written back is never older than this replica's last sight of the lost data: a due
    time that another term decided before that is not run again by reason of an old watermark.
    Where another replica led since this one did, its memory is dropped. Due times between
    the last sight of the lost data and its loss may have run or not: they are not run again, but
    counted as lost, in the log of schedules, the log and the metrics. So are those that a former
    leader did not decide, where its lease ended before the loss: another may have led unseen.
    A watermark that went back is noticed with the answer that shows it, before anything is fired
    again by it: the elector would notice only with its next renewal. Also one that this replica
    remembers of an earlier term: the loss may have been found by those that led since, and reported to nobody.
    So is a schedule that is about to begin a second time.

Does not guarantee
    Anything for schedules that this replica is not about to define again: whether those were
    deleted is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from supervisor.core.effects import Steps
from supervisor.core.election.lease import Term
from supervisor.core.errors import StoreRefusedError, TenureError
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.catchup import MISSED_MAX
from supervisor.core.schedules.triggers import trigger_of
from supervisor.roles.scheduler.fenced_client import FencedClient
from supervisor.roles.scheduler.schedule_cache import Catalogue
from supervisor.store.schedules.fire import Schedules, Seed
from supervisor.store.wire.fire import Seen

MARKS_MAX = 100_000
PAGE = 250
REMEMBERED_MS = 86_400_000
"""Within a day of its removal a schedule goes on where it was, its initial run included (lib/control.lua)."""


class Watermarks:
    """Watermarks of the schedules, as this process decided or read them in the term that it serves."""

    def __init__(self, schedules: Schedules, client: FencedClient) -> None:
        self._schedules = schedules
        self._client = client
        self._marks: dict[str, int] = {}
        self._former: dict[str, int] = {}  # of terms before others led: none goes back behind them either
        self._epoch = 0  # of the term that the marks are of
        self._is_sole = False  # nobody else led since the term before this one
        self._restored = 0
        self.doubtful_until_ms = 0
        """Wall clock: what was due until then may have been fired before Redis went back, as answers showed."""

    def begin(self, term: Term) -> None:
        """Start a term: the memory remains valid if no other replica led in between."""
        self._is_sole = 0 < self._epoch >= self._client.board.header.foreign_epoch
        if not self._is_sole:
            self._former = dict(islice((self._former | self._marks).items(), MARKS_MAX))
            self._marks.clear()
        self._epoch = term.epoch

    def remember(self, schedule: str, mark_ms: int) -> None:
        """Keep the watermark of ``schedule`` as it is now. None goes back unless Redis did."""
        known_ms = self._marks.get(schedule) or self._former.get(schedule, 0)
        if mark_ms < known_ms:
            self.doubt(known_ms)
        self._marks[schedule] = mark_ms
        if len(self._marks) > MARKS_MAX:
            del self._marks[next(iter(self._marks))]

    def read(self, seen: Sequence[Seen], catalogue: Catalogue) -> int:
        """Keep the watermarks as they were read; return ``doubtful_until_ms`` with the doubt that they show.

        A paused schedule owes nothing for that time. One that is to begin has decided nothing yet.
        """
        for each in seen:
            if each.pause or each.revision is None:
                self.forget(each.schedule)
                continue
            known = catalogue.get(each.schedule, each.revision)
            known_ms = self._marks.get(each.schedule, self._former.get(each.schedule))
            if known is None or not known.definition.run_on_create or each.counters.initial:
                self.remember(each.schedule, each.mark_ms)
            elif known_ms is not None and known_ms < each.mark_ms - REMEMBERED_MS:
                self.forget(each.schedule)  # another life of its id, whose first watermark is that of its creation
            elif known_ms is not None:
                self.doubt(each.mark_ms)  # it had begun
        return self.doubtful_until_ms

    def forget(self, schedule: str) -> None:
        """Drop the memory of ``schedule``: it was deleted, or paused, and owes nothing for that time."""
        self._marks.pop(schedule, None)
        self._former.pop(schedule, None)

    def doubt(self, mark_ms: int = 0) -> None:
        """Note that Redis went back. The clock of this machine may be behind the one that decided up to ``mark_ms``."""
        self.doubtful_until_ms = max(self.doubtful_until_ms, mark_ms, self._client.clock.wall_ms())

    def restore(self, term: Term, definitions: Sequence[ScheduleDef]) -> Steps[None]:
        """Write back watermarks where Redis has none, once after each loss of all data.

        Whoever leads may have died in the middle of it, before it declared a schedule. So each leader that knows of
        the loss does it, until one has declared: then Redis reports that it is over.
        """
        loss = self._client.board.header.data_loss_epoch
        if not 0 < loss <= term.epoch or self._restored == loss:
            return
        seeded = lost = 0
        for start in range(0, len(definitions), PAGE):
            page = [seed for each in definitions[start : start + PAGE] if (seed := self._seed(each))]
            if not page:
                continue
            try:
                call = self._schedules.seed(term, seeds=page)
                done = yield from self._client.ask(term, call)
                if done.is_over:
                    break
                seeded, lost = seeded + done.written, lost + done.lost
            except StoreRefusedError as error:
                self._client.report("reading_refused", what="watermarks", error=str(error))
        self._restored = loss
        known = len(self._marks)
        self._client.report("watermarks_seeded", seeded=seeded, known=known)
        if lost:
            header = self._client.board.header
            self._client.report("due_times_lost", count=lost, after_ms=header.sighted_ms, until_ms=header.lost_until_ms)

    def _seed(self, definition: ScheduleDef) -> Seed | None:
        """Return the known seed of one schedule; None where nothing is known."""
        self._client.show_life()
        header = self._client.board.header
        sighted_ms, lost_until_ms = header.sighted_ms, max(header.lost_until_ms, header.sighted_ms)
        if not sighted_ms:
            return None
        mark_ms, known_until_ms = sighted_ms, sighted_ms
        if self._is_sole:  # it decided whatever was decided, and has no mark of what it decided nothing about
            mark_ms, known_until_ms = self._marks.get(definition.id, sighted_ms), header.held_until_ms
        if lost_until_ms <= known_until_ms:
            return Seed(definition.id, mark_ms, 0)
        return Seed(definition.id, lost_until_ms, _due(definition, mark_ms, lost_until_ms))


def _due(definition: ScheduleDef, after_ms: int, until_ms: int) -> int:
    if definition.paused or until_ms <= after_ms:
        return 0
    try:
        return trigger_of(definition).count(after_ms, until_ms, MISSED_MAX)
    except TenureError:  # its exclusions leave nothing
        return 0
