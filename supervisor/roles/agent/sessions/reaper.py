"""Gives the runs of dead worker processes back to their queues.

Guarantees
    The session is shut off first, so that nothing the dead process sent can still
    acknowledge; its runs go back next; it is forgotten last. A reaper that dies in between
    leaves the session in ``dying``, where the next one finds it. Two reapers at once are
    harmless: a run goes back once. A queue that Redis refuses is reported once and left out: the session stays in
    ``dying`` for its sake, and its runs of the others go back. A run that ends instead is reported as ended.

Does not guarantee
    Fair blame for a session that another reaper left behind: its runs count as interrupted.
    A report of runs that ended in a call whose reply was lost: Redis has the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from supervisor.core.effects import Call, Reporter
from supervisor.core.errors import StoreRefusedError
from supervisor.core.model import Release
from supervisor.core.supervision.crash_blame import Death, HeldRun, assign
from supervisor.core.supervision.scoreboard import Inflight
from supervisor.store.queues.reads import Page
from supervisor.store.queues.runs import RELEASE_MAX, Queues
from supervisor.store.queues.sessions import Sessions

T = TypeVar("T")
ORPHAN = "no session held it"
SWEEP_CALLS = 100
"""Steps of a sweep that are made at a time: whoever writes to Redis can make any number necessary."""

_HOW = {Death.NODE_LOST: "its replica vanished", Death.STOPPED: "stopped"}


class Reaper:
    """Reclaims sessions through ``run``, which sends one call and returns its reply.

    Attributes:
        between: done before each call, since a session may hold runs of many queues.
    """

    def __init__(
        self,
        *,
        run: Callable[[Call[Any]], Any],
        sessions: Sessions,
        queues: Queues,
        dead_cap: int,
        history: int,
        report: Reporter,
    ) -> None:
        self.between: Callable[[], None] = lambda: None
        self._send = run
        self._refused: set[str] = set()  # queues, by the last call about each
        self._sweep: Iterator[None] | None = None  # what is left of a round
        self._sessions = sessions
        self._queues = queues
        self._dead_cap = dead_cap
        self._history = history
        self._report = report

    def reclaim(
        self,
        session: str,
        *,
        death: Death,
        how: str = "",
        table: Iterable[Inflight] | None = None,
        counter: int | None = None,
        now_ns: int = 0,
        turned_ns: int = 0,
        turn_ms: int | None = None,
    ) -> bool:
        """Condemn ``session``, give back its runs, bury it; return False if it beat since ``counter`` was read.

        Args:
            session: of the dead process.
            death: why it is gone; blame goes by it.
            how: the same for people, kept with each run that it held.
            table: the in-flight table it left; None: not known.
            counter: only if its beat counter still is this.
            now_ns: when it died, at the latest.
            turned_ns: when it last showed that its loop turned.
            turn_ms: Redis' time of its last turn that was answered; None: not known.
        """
        if not self._run(self._sessions.condemn(session, counter)):
            return False
        how, left = how or _HOW.get(death, ""), None if table is None else tuple(table)
        judged = partial(assign, table=left, death=death, now_ns=now_ns, turned_ns=turned_ns, turn_ms=turn_ms)
        reasons, is_whole = self._give_back(session, judged, how)
        if is_whole:
            self._run(self._sessions.bury(session))
        if reasons:
            self._reclaimed(session, death.value, how, reasons)
        return True

    def sweep_orphans(self) -> bool:
        """Give back some runs of sessions that are neither open nor dying; return whether a round is over.

        Nobody else ever would.
        """
        sweep, self._sweep = self._sweep or self._orphans(), None  # begun anew if a call raises
        is_over = sum(1 for _ in islice(sweep, SWEEP_CALLS)) < SWEEP_CALLS
        self._sweep = None if is_over else sweep
        return is_over

    def forget(self, cursor: str) -> str:
        """Forget a page of queues, jobs and removed schedules that nobody needs; return where the next one begins."""
        page = self._run(self._queues.forget(cursor))
        if page.items:
            self._report("queues_forgotten", queues=page.items[:10], count=len(page.items))
        return str(page.cursor)

    def _run(self, call: Call[Any]) -> Any:
        self.between()
        return self._send(call)

    def _pages(self, call: Callable[[str], Call[Page[T]]]) -> Iterator[list[T]]:
        """Yield the items of each page of a long list."""
        cursor = ""
        while cursor != "0":
            page = self._run(call(cursor or "0"))
            yield page.items
            cursor = page.cursor

    @contextmanager
    def _in_queue(self, queue: str) -> Iterator[None]:
        """Report that Redis refuses ``queue``, and note it."""
        try:
            yield
        except StoreRefusedError as error:
            if error.concerns_client:
                raise
            self._report("queue_refused", queue=queue, error=str(error), is_new=queue not in self._refused)
            self._refused.add(queue)
        else:
            self._refused.discard(queue)

    def _orphans(self) -> Iterator[None]:
        """Give back runs of orphans, of each queue of which something is executed; yield at each step."""
        for queues in self._pages(self._queues.executing):
            yield
            for queue in queues:
                yield  # also where Redis refuses the queue
                with self._in_queue(queue):
                    yield from self._orphans_in(queue)

    def _orphans_in(self, queue: str) -> Iterator[None]:
        for number, page in enumerate(self._pages(lambda cursor: self._queues.orphans(queue=queue, cursor=cursor))):
            if number:  # the first is one step with its queue
                yield
            by_session: dict[str, list[tuple[str, str, Release]]] = {}
            for session, run_id, _attempt in page:
                by_session.setdefault(session, []).append((queue, run_id, Release.INTERRUPTED))
            for session, items in by_session.items():
                if count := self._release(session, items, ORPHAN):  # else another agent did, or its process ended it
                    self._reclaimed(session, "orphan", ORPHAN, {Release.INTERRUPTED.value: count})
                yield

    def _reclaimed(self, session: str, death: str, how: str, reasons: Mapping[str, int]) -> None:
        runs, by_reason = sum(reasons.values()), dict(reasons)
        self._report("session_reclaimed", session=session, runs=runs, death=death, how=how, reasons=by_reason)

    def _give_back(
        self, session: str, judged: Callable[[list[HeldRun]], Iterable[Release]], how: str
    ) -> tuple[Counter[str], bool]:
        """Give back the runs of a session, each as it is ``judged``; return whether Redis refused nothing.

        All of it is read first: who is to blame depends on who else was there.
        """
        held: dict[HeldRun, None] = {}
        seen: set[str] = set()
        for queues in self._pages(self._queues.executing):
            seen.update(queues)
            for queue in queues:
                with self._in_queue(queue):
                    held.update(dict.fromkeys(self._held(session, queue)))
        by_queue: dict[str, list[tuple[str, str, Release]]] = {}
        for run, release in zip(held, judged(list(held)), strict=True):
            by_queue.setdefault(run.queue, []).append((run.queue, run.run_id, release))
        reasons: Counter[str] = Counter()
        for queue, items in by_queue.items():
            with self._in_queue(queue):
                self._release(session, items, how)
                reasons.update(release.reason for _, _, release in items)
        return reasons, self._refused.isdisjoint(seen)

    def _held(self, session: str, queue: str) -> Iterator[HeldRun]:
        """Yield the runs of one queue that a session holds, page by page to the end."""
        for page in self._pages(lambda cursor: self._queues.held(session=session, queue=queue, cursor=cursor)):
            for run_id, attempt, fetched_ms in page:
                yield HeldRun(queue, run_id, attempt, fetched_ms)

    def _release(self, session: str, items: list[tuple[str, str, Release]], how: str) -> int:
        """Give runs of one queue back; return how many the session still held."""
        count = 0
        for start in range(0, len(items), RELEASE_MAX):
            batch = items[start : start + RELEASE_MAX]
            released = self._run(
                self._queues.release_runs(
                    session=session, items=batch, dead_cap=self._dead_cap, history=self._history, detail=how
                )
            )
            count += released.count
            if released.ended:
                self._report("runs_ended", runs=released.ended, how=how)
        return count
