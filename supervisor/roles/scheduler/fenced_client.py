"""Fenced calls of the scheduler: under a term that is trusted at that moment, retried until answered."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from supervisor.clock import Clock
from supervisor.core.election.lease import retry_delay_ns
from supervisor.core.election.term import Term
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError, TenureError
from supervisor.core.supervision.scoreboard import Board
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.effects import Reporter, RunScript, Sleep, Steps
from supervisor.store.scripts import Call

ASK_TIMEOUT_NS = 1000 * MILLISECOND_NS  # below the limit after which the parent calls it hung

VAIN_NS = 45_000 * MILLISECOND_NS
"""How long Redis may refuse every call of one script before another replica is to lead."""


class TermOverError(TenureError):
    """The board has another term than the one being served, or the tree stops."""


class Asking:
    """Sends calls for whoever decides."""

    def __init__(
        self,
        *,
        board: Board,
        clock: Clock,
        is_stopping: Callable[[], bool],
        report: Reporter,
        rng: Random,
        idle_ns: int,
    ) -> None:
        self.board = board
        self.clock = clock
        self.is_stopping = is_stopping
        self.report = report
        self.idle_ns = idle_ns
        self._rng = rng
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
                yield Sleep(self.clock.elapsed_ns() + retry_delay_ns(failures, self._rng.random()))
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
