"""Plans schedules anew whose plan was made under another version of the time zone database.

Guarantees
    A due time that new zone data moves to an earlier instant is fired then, once a leader has the data.
    A crash half-way leaves the former version beside the plan, so the next leader begins again.

Does not guarantee
    Anything while replicas with different data lead in turn: each plans by its own.
"""

from __future__ import annotations

from supervisor.core.election.term import Term
from supervisor.core.errors import StoreRefusedError
from supervisor.roles.effects import Steps
from supervisor.roles.scheduler.fenced_client import Asking
from supervisor.store.schedules.fire import Schedules


class Rezoning:
    """Goes through the stored schedules once a term, page by page, if the version differs."""

    def __init__(self, schedules: Schedules, asking: Asking, version: str) -> None:
        self._schedules = schedules
        self._asking = asking
        self._version = version  # empty: it is not asked about
        self._cursor: str | None = None

    def begin(self) -> None:
        """Start a term."""
        self._cursor = "0" if self._version else None

    def work(self, term: Term) -> Steps[bool]:
        """Ask about one page; False when there is none left in this term, or Redis refuses.

        Raises:
            TermOverError: the board has another term, or the tree stops.
            FencedError: Redis has another term.
        """
        if self._cursor is None:
            return False
        call = self._schedules.rezone(epoch=term.epoch, nonce=term.nonce, version=self._version, cursor=self._cursor)
        try:
            cursor, count = yield from self._asking.ask(term, call)
        except StoreRefusedError as error:
            self._asking.report("reading_refused", what="zones", error=str(error))
            self._cursor = None
            return False
        self._cursor = None if cursor == "0" else cursor
        if count:
            self._asking.report("schedules_rezoned", count=count, version=self._version)
        return True
