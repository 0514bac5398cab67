"""Drives what works step by step against a server, with lost questions, lost replies and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from supervisor.core.effects import RunScript, Steps
from supervisor.core.election.lease import Term
from supervisor.core.errors import StoreUnavailableError, TenureError
from supervisor.core.units import MILLISECOND_NS
from supervisor.store.election.leases import LeaseView
from tests.kit.builders import StoreCalls

STEPS_MAX = 5000


class Worker(Protocol):
    def work(self, term: Term) -> Steps[bool]: ...


def term_of(view: LeaseView) -> Term:
    """Return the term as the board shows it, trusted for ever."""
    return Term(view.epoch, view.nonce, 1 << 62)


class Stepper:
    """A clock, a report, and the answers of a server."""

    def __init__(self, world: StoreCalls) -> None:
        self.world = world
        self.now_ns = 0
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[str] = []
        self.before: Callable[[str], None] = lambda _script: None
        self.lose_reply: Callable[[int], bool] = lambda _number: False

    def elapsed_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return int(self.world.raw.time()[0]) * 1000

    def report(self, event: str, **fields: Any) -> None:
        self.told.append((event, fields))

    def events(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.told if name == event]

    def once(self, worker: Worker, term: Term) -> bool:
        """Let ``worker`` ask what it asks in one call."""
        steps = worker.work(term)
        answer: Any = None
        error: TenureError | None = None
        while True:
            try:
                step = steps.throw(error) if error is not None else steps.send(answer)
            except StopIteration as stop:
                return bool(stop.value)
            assert isinstance(step, RunScript)
            answer, error = None, None
            try:
                answer = self._answer(step)
            except TenureError as raised:
                error = raised

    def _answer(self, step: RunScript) -> Any:
        self.before(step.call.script)
        self.asked.append(step.call.script)
        answer = self.world.run(step.call)
        if self.lose_reply(len(self.asked)):
            raise StoreUnavailableError("the reply was lost")
        return answer

    def until(self, is_done: Callable[[], bool], worker: Worker, term: Term, *, pass_ms: int = 100) -> None:
        """Let ``worker`` work until ``is_done``; time passes while it has nothing to do."""
        for _ in range(STEPS_MAX):
            if is_done():
                return
            if not self.once(worker, term):
                self.now_ns += pass_ms * MILLISECOND_NS
        raise AssertionError(f"not done after {STEPS_MAX} steps: {self.asked[-10:]}")
