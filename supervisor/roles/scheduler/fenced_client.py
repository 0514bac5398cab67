"""Fenced calls of the scheduler: under a term that is trusted at that moment, retried until answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

from supervisor.clock import Clock
from supervisor.core.effects import Call, Reporter, RunScript, Sleep, Steps
from supervisor.core.election.lease import Term, retry_delay_ns
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError, TenureError
from supervisor.core.supervision.scoreboard import Board
from supervisor.core.units import MILLISECOND_NS

ASK_TIMEOUT_NS = 1000 * MILLISECOND_NS  # below the limit after which the parent calls it hung

VAIN_NS = 45_000 * MILLISECOND_NS
"""How long Redis may refuse every call of one script before another replica is to lead."""


def ask_once(call: Call[Any]) -> Steps[Any]:
    """Send ``call`` and return its reply; of an error its caller makes what it will."""
    return (yield RunScript(call, ASK_TIMEOUT_NS))


class TermOverError(TenureError):
    """The board has another term than the one being served, or the tree stops."""


@dataclass(eq=False, kw_only=True)
class FencedClient:
    """Sends calls for whoever decides."""

    board: Board
    clock: Clock
    is_stopping: Callable[[], bool]
    report: Reporter
    rng: Random
    idle_ns: int
    show_life: Callable[[], None]
    """Shows the parent that this process does not hang; done between two schedules, whose due times may take long."""

    def __post_init__(self) -> None:
        self._refused_since_ns: dict[str, int] = {}  # by script; until it is answered again
        self._has_given_way = False  # for a refusal, since the last fire that Redis accepted

    def ask(self, term: Term, call: Call[Any], meanwhile: Callable[[], None] | None = None) -> Steps[Any]:
        """Send ``call`` until it is answered, while ``term`` is trusted.

        ``meanwhile`` may be done while an answer is awaited, once for each time it is sent, or not at all.

        Raises:
            TermOverError: the board has another term, or the tree stops.
            FencedError: Redis has another term.
            StoreRefusedError: Redis refuses the subject of the call; the same again would be refused again.
        """
        failures = 0
        while True:
            yield from self.await_trust(term)
            try:
                answer = yield RunScript(call, ASK_TIMEOUT_NS, meanwhile)
            except (StoreUnavailableError, StoreRefusedError) as error:
                if isinstance(error, StoreRefusedError):
                    self._note_refusal(term, call.script)
                    if not error.concerns_client:
                        raise
                failures += 1
                self.report("scheduler_unanswered", script=call.script, failures=failures, error=str(error))
                yield Sleep(self.clock.elapsed_ns() + retry_delay_ns(failures, self.rng.random()))
            else:
                self._refused_since_ns.pop(call.script, None)
                self._has_given_way = self._has_given_way and call.script != "fire"
                return answer

    def _note_refusal(self, term: Term, script: str) -> None:
        """Ask the agent to let another replica lead if ``script`` has been refused for too long.

        The fault may be of this replica alone: its rights, its version. It gives way once, so that replicas
        that all meet the same refusal do not pass the lease around for ever.
        """
        self.report("scheduler_refused", script=script)
        since_ns = self._refused_since_ns.setdefault(script, self.clock.elapsed_ns())
        if not self._has_given_way and self.clock.elapsed_ns() - since_ns >= VAIN_NS:
            self._has_given_way = True
            self._refused_since_ns.clear()
            self.board.header.vain_epoch = term.epoch

    def await_trust(self, term: Term) -> Steps[None]:
        """Return while ``term`` is trusted; wait out a lapse of it, and a hold.

        Raises:
            TermOverError: the board has another term, or the tree stops.
        """
        while True:
            current = self.board.term()
            if self.is_stopping() or not same(current, term):
                raise TermOverError(f"epoch {term.epoch} is over")
            if current.is_trusted(self.clock.elapsed_ns()) and not self.board.header.is_held:
                return
            yield Sleep(self.clock.elapsed_ns() + self.idle_ns)


def same(left: Term, right: Term) -> bool:
    """Return whether both are one term, however long each is trusted."""
    return (left.epoch, left.nonce) == (right.epoch, right.nonce)


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
    client: FencedClient,
    term: Term,
    parts: Sequence[P],
    call_of: Callable[[Sequence[P]], Call[Any]],
    *,
    queue_of: Callable[[P], str] = lambda _: "",
    meanwhile: Callable[[], None] | None = None,
) -> Steps[list[BatchReply[P]]]:
    """Ask about ``parts`` in one call, and in smaller ones if Redis refuses that.

    Guarantees
        One refused part never keeps the others of its batch from being answered. Parts keep their order within a queue.
        A batch of n parts costs at most 2n - 1 calls. When a queue had ``ALONE_MAX`` parts refused one after the other
        and none accepted, its other parts count as refused without being sent.

    Raises:
        TermOverError: the board has another term, or the tree stops.
        FencedError: Redis has another term.
    """
    pending, answers = [list(parts)], []
    refused: Counter[str] = Counter()  # parts of each queue in a row
    error = ""
    while pending:
        asked = pending.pop()
        hopeless = [part for part in asked if refused[queue_of(part)] >= ALONE_MAX] if refused else []
        if hopeless:
            answers.append(BatchReply(hopeless, None, error))
            asked = [part for part in asked if refused[queue_of(part)] < ALONE_MAX]
        if not asked:
            continue
        try:
            reply = yield from client.ask(term, call_of(asked), meanwhile)
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
            for queue in map(queue_of, asked if refused else ()):
                refused.pop(queue, None)
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
