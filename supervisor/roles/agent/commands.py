"""Carries commands of people from Redis to the parent, and its answer back.

Guarantees
    One at a time, oldest first; each is answered after the parent's reply, or with the reason it cannot be asked.
    Nothing is acted upon here: the parent decides the effects of a command (core/supervision/child_requests.py).
    With a key, only commands signed with it are carried, for this replica, and each id once: an agent that takes the
    place of another refuses commands older than itself. Reports need none.

Does not guarantee
    That an asker whose clock is ahead is obeyed once, should the agent die so soon after.
    That a request is seen while the tree is being stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from supervisor.core.effects import Call, Reporter
from supervisor.core.json_values import read_json
from supervisor.core.signing import FRESH_MS, Signer
from supervisor.core.supervision.child_requests import RequestAnswer as ParentAnswer
from supervisor.core.supervision.health import role_of
from supervisor.core.supervision.scoreboard import EVERY_SLOT, Row
from supervisor.core.supervision.states import SlotState, Verb
from supervisor.core.units import MILLISECOND_NS, SECOND_NS
from supervisor.roles.child import ChildContext, resident_kib
from supervisor.store.election.commands import Answer, Command, Commands, Word, WorkerReport

OBEYED_MAX = 10_000
PERIOD_NS = 1000 * MILLISECOND_NS
PENDING_PERIOD_NS = 20 * MILLISECOND_NS
PARENT_NS = 5000 * MILLISECOND_NS  # the parent looks at requests twice a second at least
RELOAD_NS = 120_000 * MILLISECOND_NS  # then whoever waits is told to look at the log

_VERBS: dict[Word, Verb] = {word: Verb[word.name] for word in Word if word is not Word.REPORT}
_OF_TREE = frozenset({Word.RELOAD, Word.STOP})
_REASONS = {
    ParentAnswer.NOT_ALLOWED: "this cannot be asked of that slot",
    ParentAnswer.NO_SUCH_SLOT: "there is no such slot",
    ParentAnswer.GENERATION_GONE: "that process is gone; `tenure worker list` shows the present ones",
    ParentAnswer.NOT_NOW: "not now: it starts or ends just now, or its pool has no room; try again",
}


@dataclass(slots=True)
class _Pending:
    """Command that the parent, or a reload, has not answered yet."""

    command_id: str
    command: Command
    number: int
    until_ns: int
    reload_ns: int = 0  # when a reload was asked for: one that began before may have read what it was; 0: none was


@dataclass(eq=False, kw_only=True)
class CommandDuty:
    """Looks for commands, asks the parent, answers."""

    call: Callable[[Call[Any]], Any]
    commands: Commands
    child: ChildContext  # the agent's: requests to the parent are written into its row
    report: Reporter
    signer: Signer | None = None  # verifies commands; None: all are obeyed

    name = "commands"

    def __post_init__(self) -> None:
        self._row, self._clock = self.child.row, self.child.clock
        self._slots = {name: index for index, name in enumerate(self.child.slot_names)}
        # What the agent before this one obeyed is not known here. The first of a tree has none before it.
        self._signed_from_ms = self._clock.wall_ms() if self._row.generation > 1 else 0
        self._verified = ""  # id of the last command that was signed well
        self._obeyed: dict[str, int] = {}  # ids of such that were answered: until when they are remembered
        self._pending: _Pending | None = None

    @property
    def period_ns(self) -> int:
        """Time until the next run."""
        return PERIOD_NS if self._pending is None else PENDING_PERIOD_NS

    def run(self, now_ns: int) -> None:
        """Continue the command under way, else take the next one."""
        if self._pending is not None:
            self._settle(self._pending, now_ns)
            return
        for command_id, body in self.call(self.commands.take(self.child.replica)):
            self._begin(command_id, body, now_ns)
            if self._pending is not None:
                return

    def _begin(self, command_id: str, body: bytes, now_ns: int) -> None:
        try:
            command = read_json(body, Command)
        except msgspec.DecodeError:
            self._answer(command_id, Answer(is_done=False, reason="this version does not know that command"))
            return
        if command.word is Word.REPORT:
            self._answer(command_id, Answer(is_done=True, workers=tuple(self._workers(now_ns))))
            return
        fields = {"word": command.word.value, "slot": command.slot or "all", "by": command.by}
        asked_ns = self._clock.elapsed_ns()  # after the question to Redis, which may have taken long
        problem = self._why_not_obeyed(command, command_id, now_ns) or self._ask(command)
        self.report("command_taken", **fields, refused=problem)
        if problem:
            self._answer(command_id, Answer(is_done=False, reason=problem))
            return
        pending = _Pending(command_id, command, self._row.request_number, now_ns + PARENT_NS)
        if command.word is Word.RELOAD:
            pending.reload_ns, pending.until_ns = asked_ns, now_ns + RELOAD_NS
        if command.word is Word.STOP:
            self._answer(command_id, Answer(is_done=True))  # said first: nobody may be left to say it afterwards
        self.child.wake_parent()
        if command.word is not Word.STOP:
            self._pending = pending

    def _why_not_obeyed(self, command: Command, command_id: str, now_ns: int) -> str:
        """Return why a command is none of an operator's, or was one; empty when it may be carried."""
        if self.signer is None:
            return ""
        self._obeyed = {each: until_ns for each, until_ns in self._obeyed.items() if until_ns > now_ns}
        if command_id in self._obeyed:
            return "it was obeyed before; send another"
        problem = command.fault(self.signer, self.child.replica, command_id, self._clock.wall_ms())
        if not problem and command.at_ms < self._signed_from_ms:
            problem = "it was signed before this agent started, and may have been obeyed; send another"
        if not problem and len(self._obeyed) >= OBEYED_MAX:
            return "too many commands within ten minutes; try again"
        self._verified = "" if problem else command_id
        return problem

    def _ask(self, command: Command) -> str:
        """Write the request words, all but the last; return why not, or an empty string."""
        index, generation = EVERY_SLOT, 0
        if command.slot:
            index = self._slots.get(command.slot, -1)
            if index < 0 or role_of(command.slot)[1] is None:
                return f"there is no worker {command.slot}; `tenure worker list` shows them"
            newest = self.child.board.rows[index].generation
            if not 0 <= command.generation <= newest:  # the board holds no other number
                return _REASONS[ParentAnswer.GENERATION_GONE]
            generation = command.generation or newest
        elif command.word in _OF_TREE:
            index = 0
        is_asked = self._row.request(_VERBS[command.word], index, generation)
        return "" if is_asked else "the parent has not seen the request before this one; try again"

    def _settle(self, pending: _Pending, now_ns: int) -> None:
        answer = self._answer_of(pending)
        if answer is None and now_ns >= pending.until_ns:
            answer = Answer(is_done=False, reason="no answer in time; the log of that replica says more")
        if answer is not None:
            self._answer(pending.command_id, answer)
            self._pending = None

    def _answer_of(self, pending: _Pending) -> Answer | None:
        row, header = self._row, self.child.board.header
        if row.handled_number < pending.number:
            return None
        if row.handled_number == pending.number and row.request_result != ParentAnswer.ACCEPTED:
            reason = _REASONS.get(ParentAnswer(row.request_result), "the parent refused")
            return Answer(is_done=False, reason=reason)
        if not pending.reload_ns:
            return Answer(is_done=True)
        if header.reload_began_ns < pending.reload_ns:
            return None
        if header.is_reload_refused:
            return Answer(is_done=False, reason="refused; the log of that replica names each problem (reload_problem)")
        return Answer(is_done=True)

    def _answer(self, command_id: str, answer: Answer) -> None:
        self.call(self.commands.answer(self.child.replica, command_id, answer))
        if command_id == self._verified:
            self._obeyed[command_id] = self._clock.elapsed_ns() + 2 * FRESH_MS * MILLISECOND_NS

    def _workers(self, now_ns: int) -> list[WorkerReport]:
        """Describe every worker row that is in use."""
        found = []
        for name, index in self._slots.items():
            row = self.child.board.rows[index]
            pool = role_of(name)[1]
            if pool is not None and row.is_used:
                found.append(_described(name, pool, row, now_ns))
        return found


def _described(name: str, pool: str, row: Row, now_ns: int) -> WorkerReport:
    state = SlotState(row.state)
    if not state.has_process:
        shown = "quiet" if row.is_quiet else state.name.lower()
        return WorkerReport(slot=name, pool=pool, state=shown, generation=row.generation)
    shown = "draining" if state is SlotState.STOPPING else state.name.lower()
    return WorkerReport(
        slot=name,
        pool=pool,
        state=shown,
        generation=row.generation,
        pid=row.pid,
        busy=row.busy,
        done=row.done,
        rss_kib=resident_kib(row.pid),
        age_s=round(max(0, now_ns - row.started_ns) / SECOND_NS, 1),
    )
