"""Calls about many schedules, of which Redis may refuse some: the batch is halved until those are isolated.

Guarantees
    One refused part never keeps the others of its batch from being answered. Parts keep their order within a queue.
    A batch of n parts costs at most 2n - 1 calls. When a queue had ``ALONE_MAX`` parts refused one after the other
    and none accepted, its other parts count as refused without being sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from supervisor.core.election.term import Term
from supervisor.core.errors import StoreRefusedError
from supervisor.roles.effects import Steps
from supervisor.roles.scheduler.fenced_client import Asking
from supervisor.store.scripts import Call

P = TypeVar("P")

ALONE_MAX = 4
REFUSED_MS = 60_000
"""How long what Redis refused alone is left alone."""

REFUSED_MAX = 100_000


class BatchReply(NamedTuple, Generic[P]):
    """Parts that were asked about together, and the reply; or why Redis refuses them."""

    parts: Sequence[P]
    reply: Any
    error: str = ""


def ask_split(
    asking: Asking,
    term: Term,
    parts: Sequence[P],
    call_of: Callable[[Sequence[P]], Call[Any]],
    *,
    queue_of: Callable[[P], str] = lambda _: "",
    meanwhile: Callable[[], None] | None = None,
) -> Steps[list[BatchReply[P]]]:
    """Ask about ``parts`` in one call, and in smaller ones if Redis refuses that.

    Raises:
        TermOverError: the board has another term, or the tree stops.
        FencedError: Redis has another term.
    """
    pending, answers = [list(parts)], []
    refused: Counter[str] = Counter()  # parts of each queue in a row
    error = ""
    while pending:
        asked = pending.pop()
        hopeless = [part for part in asked if refused[queue_of(part)] >= ALONE_MAX]
        if hopeless:
            answers.append(BatchReply(hopeless, None, error))
            asked = [part for part in asked if refused[queue_of(part)] < ALONE_MAX]
        if not asked:
            continue
        try:
            reply = yield from asking.ask(term, call_of(asked), meanwhile)
        except StoreRefusedError as refusal:
            error, meanwhile = str(refusal), None
            if len(asked) == 1:
                refused[queue_of(asked[0])] += 1
                answers.append(BatchReply(asked, None, error))
            else:
                asked.sort(key=queue_of)
                middle = len(asked) // 2
                pending += [asked[middle:], asked[:middle]]
        else:
            answers.append(BatchReply(asked, reply))
            for part in asked:
                refused.pop(queue_of(part), None)
    return answers


class _PutOff(NamedTuple):
    until_ms: int
    is_planned: bool  # whether its place in the plan of Redis can be moved


class PutOff:
    """Schedules that Redis refuses, each left alone for a minute. Those that never came back are forgotten first."""

    def __init__(self) -> None:
        self._known: dict[str, _PutOff] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, schedule: object) -> bool:
        return schedule in self._known

    def add(self, schedules: Sequence[str], now_ms: int, *, is_planned: bool = True) -> list[str]:
        """Leave ``schedules`` alone from now on; return those that were not known to be refused."""
        new = [schedule for schedule in schedules if schedule not in self._known]
        for schedule in schedules:
            self._known[schedule] = _PutOff(now_ms + REFUSED_MS, is_planned)
        while len(self._known) > REFUSED_MAX:
            del self._known[next(iter(self._known))]
        return new

    def drop(self, schedule: str) -> bool:
        """Forget ``schedule``: it was accepted, or is gone. Return whether it was known."""
        return self._known.pop(schedule, None) is not None

    def until_ms(self, schedule: str, now_ms: int) -> int | None:
        """Return until when ``schedule`` is left alone; None: it is not, or its time is over."""
        known = self._known.get(schedule)
        if known is None or known.until_ms <= now_ms:
            return None
        return min(known.until_ms, now_ms + REFUSED_MS)  # the clock may have been set back

    def is_planned(self, schedule: str) -> bool:
        """Return whether the place of ``schedule`` in the plan can be moved."""
        return self._known[schedule].is_planned
