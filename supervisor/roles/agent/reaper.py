"""Gives the runs of dead worker processes back to their queues.

Guarantees
    The session is shut off first, so that nothing the dead process sent can still
    acknowledge; its runs go back next; it is forgotten last. A reaper that dies in between
    leaves the session in ``dying``, where the next one finds it. Two reapers at once are
    harmless: a run goes back once.

Does not guarantee
    Fair blame for a session that another reaper left behind: its runs count as interrupted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from supervisor.core.blame import Death, HeldRun, assign
from supervisor.core.board import Inflight
from supervisor.core.model import Release
from supervisor.roles.steps import Report
from supervisor.store.queues import RELEASE_MAX, Queues
from supervisor.store.scripts import Call
from supervisor.store.sessions import Sessions


class Reaper:
    """Reclaims sessions through ``run``, which sends one call and returns its reply."""

    def __init__(
        self,
        *,
        run: Callable[[Call[Any]], Any],
        sessions: Sessions,
        queues: Queues,
        dead_cap: int,
        history: int,
        report: Report,
    ) -> None:
        self._run = run
        self._sessions = sessions
        self._queues = queues
        self._dead_cap = dead_cap
        self._history = history
        self._report = report

    def reclaim(
        self, session: str, *, death: Death, table: Iterable[Inflight] = (), counter: int | None = None, now_ns: int = 0
    ) -> bool:
        """Condemn ``session``, give back what it holds, bury it; return False if it beat since ``counter`` was read."""
        if not self._run(self._sessions.condemn(session, counter)):
            return False
        entries = tuple(table)
        reasons: Counter[str] = Counter()
        for queue in self._run(self._queues.names()):
            reasons += self._give_back(session, queue, entries, death, now_ns)
        self._run(self._sessions.bury(session))
        if reasons:
            total = reasons.total()
            self._report("session_reclaimed", session=session, runs=total, death=death.value, reasons=dict(reasons))
        return True

    def sweep_orphans(self) -> None:
        """Give back runs of sessions that are neither open nor dying: nobody else ever would."""
        for queue in self._run(self._queues.names()):
            cursor = "0"
            while True:
                page = self._run(self._queues.orphans(queue=queue, cursor=cursor))
                by_session: dict[str, list[tuple[str, str, Release]]] = {}
                for session, run_id, _attempt in page.items:
                    by_session.setdefault(session, []).append((queue, run_id, Release.INTERRUPTED))
                for session, items in by_session.items():
                    self._release(session, items)
                    reasons = {Release.INTERRUPTED.value: len(items)}
                    self._report("session_reclaimed", session=session, runs=len(items), death="orphan", reasons=reasons)
                cursor = page.cursor
                if cursor == "0":
                    break

    def _give_back(
        self, session: str, queue: str, table: tuple[Inflight, ...], death: Death, now_ns: int
    ) -> Counter[str]:
        """Give back what ``session`` holds of one queue, page by page to the end."""
        reasons: Counter[str] = Counter()
        cursor = "0"
        while True:
            page = self._run(self._queues.held(session=session, queue=queue, cursor=cursor))
            held = [HeldRun(run_id, attempt) for run_id, attempt in page.items]
            blame = assign(held, table, death=death, now_ns=now_ns)
            self._release(session, [(queue, run_id, how) for run_id, how in blame.items()])
            reasons.update(how.value for how in blame.values())
            cursor = page.cursor
            if cursor == "0":
                return reasons

    def _release(self, session: str, items: list[tuple[str, str, Release]]) -> None:
        for start in range(0, len(items), RELEASE_MAX):
            batch = items[start : start + RELEASE_MAX]
            call = self._queues.release_runs(
                session=session, items=batch, dead_cap=self._dead_cap, history=self._history
            )
            self._run(call)
