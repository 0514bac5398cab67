"""An elector on a fake clock, whose questions the test answers one by one."""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec.structs import replace

from supervisor.core.effects import RunScript, Step
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.supervision.scoreboard import Board, board_words
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.agent.election.context import ElectionContext, ElectionTiming
from supervisor.roles.agent.election.elector import Elector
from supervisor.settings.sections.models import ElectionSettings
from supervisor.store.election.leases import CandidateInfo, LeaseCode, Leases, LeaseView
from supervisor.store.keys import Keys
from supervisor.store.scripts import script
from tests.kit.clock import FakeClock

S = 1000 * MILLISECOND_NS
NONCES = [f"{number:032x}" for number in range(1, 20)]
NOW_MS = 10**12  # in a reply: by the clock that the test has set
ME = CandidateInfo(replica="me", started_ms=500)


class Around:
    """The tree, as the test wants it."""

    def __init__(self) -> None:
        self.stopping = False
        self.scheduling = True
        self.scheduler_gone = True
        self.generation = 1  # of the scheduler
        self.failures = 0  # of it, within a minute
        self.turns = 0
        self.wakes = 0

    def is_stopping(self) -> bool:
        return self.stopping

    def can_schedule(self) -> bool:
        return self.scheduling

    def is_scheduler_gone(self) -> bool:
        return self.scheduler_gone

    def incarnation(self) -> int:
        return self.generation

    def crashes(self) -> int:
        return self.failures

    def progress(self) -> int:
        self.turns += 1
        return self.turns

    def term_changed(self) -> None:
        self.wakes += 1


def view(code: LeaseCode, **fields: Any) -> LeaseView:
    """Return a reply; by default the lease is another's, with 3 of 5 s left."""
    known: dict[str, Any] = {
        "epoch": 7, "nonce": "f" * 32, "holder": "other", "seq": 3, "remaining_ms": 3000, "duration_ms": 5000,
        "now_ms": NOW_MS, "genesis": "g", "last_event": "5-0",
    }  # fmt: skip
    return LeaseView(code=code, **{**known, **fields})


class Shown:
    """Presence, as the test wants it."""

    def __init__(self) -> None:
        self.epoch = 0
        self.confirmed = False
        self.refreshed = 0

    def show(self, epoch: int) -> None:
        self.epoch = epoch

    def is_shown(self, epoch: int) -> bool:
        return self.confirmed and self.epoch == epoch

    def refresh(self) -> None:
        self.refreshed += 1


class Scripted:
    """The generator, and what it asked last."""

    def __init__(
        self, board: Board | None = None, *, me: CandidateInfo = ME, signer: Any = None, **election: Any
    ) -> None:
        self.board = board or Board(
            memoryview(bytearray(8 * board_words(slots=1, inflight=1))).cast("Q"), slots=1, inflight=1
        )
        self.clock = FakeClock(wall_ms=NOW_MS + 1_000_000)
        self.around = Around()
        self.shown = Shown()
        settings = ElectionSettings(**election)
        self.told: list[tuple[str, dict[str, Any]]] = []
        nonces = iter(NONCES)
        self.context = ElectionContext(
            leases=Leases(Keys("test"), has_presence=settings.presence),
            board=self.board,
            clock=self.clock,
            me=me,
            timing=ElectionTiming.of(settings),
            presence=self.shown,
            on_data_loss=settings.on_data_loss,
            around=self.around,
            report=lambda event, **fields: self.told.append((event, fields)),
            rng=Random(1),
            new_nonce=lambda: next(nonces),
            signer=signer,
        )
        elector = Elector(self.context)
        self.standing = elector.memory
        self.steps = elector.run()
        self.step: Step | None = None
        self.is_over = False

    @property
    def script(self) -> str:
        """The script it asks for."""
        assert isinstance(self.step, RunScript), self.step
        return self.step.call.script

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments of the script it asks for."""
        assert isinstance(self.step, RunScript), self.step
        return self.step.call.args

    def begin(self) -> Step | None:
        """Run to the first step."""
        return self._advance(lambda: next(self.steps))

    def answer(self, value: Any = None, *, after_ns: int = 0) -> Step | None:
        """Answer the step ``after_ns`` later, and run to the next."""
        self.clock.now_ns += after_ns
        if isinstance(value, LeaseView) and value.now_ms == NOW_MS:
            value = replace(value, now_ms=self.clock.right_ms())
        return self._advance(lambda: self.steps.send(value))

    def refuse(self, *, after_ns: int = 0) -> Step | None:
        """Let the step fail, and run to the next."""
        self.clock.now_ns += after_ns
        return self._advance(lambda: self.steps.throw(StoreUnavailableError("away")))

    def refuse_subject(self) -> Step | None:
        """Let the step fail for what it is about, and run to the next."""
        return self._advance(lambda: self.steps.throw(StoreRefusedError("a key of this cluster holds another type")))

    def wait(self) -> Step | None:
        """Let the time pass that the step waits for; nothing is heard."""
        assert self.step is not None
        assert not isinstance(self.step, RunScript)
        self.clock.now_ns = max(self.clock.now_ns, self.step.until_ns)
        return self.answer([] if type(self.step).__name__ == "Listen" else None)

    def lead(self, *, epoch: int = 8) -> Scripted:
        """Answer the first campaign with a grant."""
        self.begin()
        self.grant(epoch=epoch)
        return self

    def grant(self, *, epoch: int = 8, after_ns: int = MILLISECOND_NS) -> Step | None:
        """Answer a campaign with a grant."""
        nonce = self.board.next_nonce or ""
        return self.answer(
            view(LeaseCode.GRANTED, epoch=epoch, nonce=nonce, holder="me", seq=0, remaining_ms=5000), after_ns=after_ns
        )

    def renewed(self, code: LeaseCode = LeaseCode.RENEWED, *, after_ns: int = MILLISECOND_NS) -> Step | None:
        """Answer a renewal."""
        term = self.board.term()
        return self.answer(view(code, epoch=term.epoch, nonce=term.nonce, holder="me"), after_ns=after_ns)

    def events(self) -> list[str]:
        """Return the names of what it told, without the answers."""
        return [event for event, _ in self.told if event not in {"election_answer", "candidates", "twins"}]

    def argument(self, name: str) -> Any:
        """Return one argument of the script it asks for."""
        assert isinstance(self.step, RunScript), self.step
        return script(self.step.call.script).argument(self.step.call, name)

    def to_renewal(self) -> Scripted:
        """Let time pass until it asks for a renewal, answering what it asks before."""
        while not (isinstance(self.step, RunScript) and self.script == "lease_renew"):
            self.answer([]) if isinstance(self.step, RunScript) else self.wait()
        return self

    def stand_by(self, *others: CandidateInfo, **fields: Any) -> Scripted:
        """Answer the first campaign with a denial, and the question for the candidates."""
        self.begin()
        self.answer(view(LeaseCode.DENIED, **fields))
        assert self.script == "hash_read"
        self.answer([replace(self.context.me, seen_ms=100_000), *others])
        return self

    def _advance(self, go: Any) -> Step | None:
        try:
            self.step = go()
        except StopIteration:
            self.step, self.is_over = None, True
        return self.step


def lost(elector: Scripted) -> list[str]:
    """Return the kinds of losses of data that were told."""
    return [fields["kind"] for event, fields in elector.told if event == "redis_lost_data"]
