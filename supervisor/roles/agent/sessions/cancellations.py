"""Makes runs of this replica end: in favour of newer ones of their schedule, or because a person cancelled them.

Guarantees
    A request is repeated until it is withdrawn, so that a missed one is made up for. Several of one worker are
    passed on one after the other, so that none hides another.
    Only a process in the very execution that is meant is asked or killed, as far as the scoreboard shows.

Does not guarantee
    That a coroutine that refuses its cancellation ends before its hard timeout: the process is not killed,
    because its neighbours would die with it. Its later reports are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import InitVar, dataclass
from typing import Any

from supervisor.core.effects import Call, Reporter
from supervisor.core.supervision.inflight import execution_hash
from supervisor.core.supervision.scoreboard import Row, UnwantedReason, Verb
from supervisor.core.units import SECOND_NS
from supervisor.roles.agent.sessions.local_workers import LocalWorkers
from supervisor.roles.child import ChildContext
from supervisor.settings.sections.models import WorkerKind
from supervisor.store.queues.runs import HISTORY, Queues, UnwantedRun

PERIOD_NS = SECOND_NS  # asked only while something is executed here
BETWEEN_NS = 250_000_000  # a worker has one place for such a request, and looks at it every 200 ms


def exclusive_slots(child: ChildContext) -> list[int]:
    """Return the worker slots whose processes execute one run at a time."""
    pools = {name for name, pool in child.settings.workers.items() if pool.kind is WorkerKind.SYNC}
    return [
        slot for slot, name in enumerate(child.slot_names) if name.removeprefix("worker-").rpartition("-")[0] in pools
    ]


@dataclass(eq=False, kw_only=True)
class Unwanted:
    """Passes requests on from Redis to workers, and to the parent, who alone kills."""

    call: Callable[[Call[Any]], Any]
    queues: Queues
    workers: LocalWorkers
    row: Row  # the agent's own, for requests to the parent
    wake_parent: Callable[[], None]
    exclusive: InitVar[Collection[int]]  # slots whose process executes one run at a time, so that a kill hits no other
    report: Reporter
    history: int = HISTORY  # ended attempts that each queue remembers

    name = "unwanted"

    def __post_init__(self, exclusive: Collection[int]) -> None:
        self._exclusive = frozenset(exclusive)
        self._waiting: list[UnwantedRun] = []
        self._position: tuple[str, str] | None = None  # where the next page begins; None: a round is over

    @property
    def period_ns(self) -> int:
        """Time until the next run."""
        return BETWEEN_NS if self._waiting or self._position else PERIOD_NS

    def run(self, _now_ns: int) -> None:
        """Pass on requests to end runs, one run of each worker; ask for a page if none waits and one is busy."""
        slots = self.workers.busy()
        if slots and not self._waiting:
            position = self._position or ("", "0")
            page = self.call(self.queues.unwanted(sorted(slots), history=self.history, position=position))
            self._waiting, self._position = page, page.position
        told: set[str] = set()
        later: list[UnwantedRun] = []
        for request in self._waiting:
            if request.session not in slots:
                continue
            if request.session in told:
                later.append(request)
            elif self._pass_on(request, slots[request.session]):
                told.add(request.session)
        self._waiting = later

    def _pass_on(self, request: UnwantedRun, slot: int) -> bool:
        """Notify the worker in ``slot``; return whether it executes the run."""
        reason = UnwantedReason.CANCELLED if request.is_cancelled else UnwantedReason.REPLACED
        wanted = execution_hash((request.queue, request.run_id), request.fetched_ms)
        if not self.workers.end_run(slot, wanted, reason):
            return False
        is_killed = request.is_killed and slot in self._exclusive
        self.report(
            "run_unwanted", run=request.run_id, session=request.session, why=reason.name.lower(), kill=is_killed
        )
        # Where the parent has not seen the request before it, this one comes again.
        if is_killed and self.row.request(Verb.KILL, slot, int(request.session.rpartition("/")[2])):
            self.wake_parent()
        return True
