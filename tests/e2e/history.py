"""The checker: reads what Redis remembers, and proves that each due time was enqueued exactly once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from supervisor.store.schedules.fire import LogEntry, Schedules
from supervisor.store.wire.fire import FireCode
from supervisor.store.wire.poll import HistoryEntry

COUNT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class History:
    """Everything that was decided and done for one interval schedule."""

    schedule: str
    period_ms: int
    decisions: list[LogEntry]  # oldest first
    attempts: list[HistoryEntry]

    @property
    def fired(self) -> list[int]:
        """The nominal times that were enqueued, in order of decision."""
        return [each.nominal_ms for each in self.decisions if each.code is FireCode.FIRED]

    @property
    def epochs(self) -> list[int]:
        """The terms in which they were, in order of decision."""
        return [each.epoch for each in self.decisions]

    def prove(self) -> None:
        """Fail unless no due time was doubled or lost, and no older term decided after a newer one."""
        doubled = [nominal for nominal, count in Counter(self.fired).items() if count > 1]
        assert not doubled, f"{self.schedule} fired twice for {doubled}"
        assert self.epochs == sorted(self.epochs), f"an older term decided after a newer one: {self.epochs}"
        assert all(nominal % self.period_ms == 0 for nominal in self.fired), "a due time off the grid"
        for before, after in zip(self.decisions, self.decisions[1:], strict=False):
            skipped = (after.nominal_ms - before.nominal_ms) // self.period_ms - 1
            assert skipped == after.missed, (
                f"between {before.nominal_ms} and {after.nominal_ms} {skipped} due times passed, "
                f"but {after.missed} were counted as missed"
            )
        completed = Counter(each.run_id for each in self.attempts if each.outcome == "ok")
        assert all(count == 1 for count in completed.values()), f"completed twice on record: {completed}"
        enqueued = {f"{self.schedule}@{nominal}" for nominal in self.fired}
        assert set(completed) <= enqueued, f"completed but never enqueued: {set(completed) - enqueued}"

    def unfinished(self) -> set[str]:
        """Return the runs that were enqueued and have not completed."""
        completed = {each.run_id for each in self.attempts if each.outcome == "ok"}
        return {f"{self.schedule}@{nominal}" for nominal in self.fired} - completed


def read_history(store: Store, *, cluster: str, schedule: str, period_ms: int, queue: str) -> History:
    """Return what is remembered of ``schedule``."""
    keys = Keys(cluster)
    prefix = f"{schedule}@"
    recent = store.run(Queues(keys).recent(queue, COUNT_MAX))  # first: what completed was decided before
    log = store.run(Schedules(keys).log(COUNT_MAX, schedule))
    assert len(log) < COUNT_MAX, "the log is full; the checker would miss its beginning"
    attempts = [each for each in recent if each.run_id.startswith(prefix)]
    return History(schedule=schedule, period_ms=period_ms, decisions=log[::-1], attempts=attempts)
