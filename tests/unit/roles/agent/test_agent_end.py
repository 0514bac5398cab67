"""The end of the agent, within what its parent allows for it, whatever Redis does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from supervisor.core.effects import Call
from supervisor.core.errors import EXIT_OK, StoreRefusedError, StoreUnavailableError
from supervisor.core.supervision.scoreboard import Board, board_words
from supervisor.core.supervision.states import Phase, SlotState
from supervisor.reload.config_memfd import Brief
from supervisor.roles.agent import main as agent_main
from supervisor.roles.agent.main import Agent
from supervisor.roles.agent.reporting import AgentReport
from supervisor.roles.child import ChildContext
from supervisor.settings.sections.models import Settings, SupervisionSettings
from supervisor.settings.sections.queues import QueueSettings
from tests.kit.clock import FakeClock

SLOTS = ("agent", "scheduler", "web", "worker-io-0")
ANSWER_S = 0.9


class SlowRedis:
    """Answers each call after nearly a second, or not at all, and is asked to end at one of them."""

    def __init__(self, clock: FakeClock, *, end_at: int, by: signal.Signals) -> None:
        self.clock = clock
        self.end_at, self.by = end_at, by
        self.calls, self.asked_ns = 0, 0
        self.published: list[tuple[Any, ...]] = []

    def run(self, call: Call[Any], *, timeout_s: float) -> Any:
        """Let the time of one call pass."""
        self.calls += 1
        if self.calls == self.end_at:
            self.asked_ns = self.clock.elapsed_ns()
            signal.raise_signal(self.by)
        self.clock.advance(min(ANSWER_S, timeout_s))
        if timeout_s < ANSWER_S:
            raise StoreUnavailableError(f"{call.script}: no answer")
        raise StoreRefusedError(f"{call.script}: a key of another type")

    def close(self) -> None:
        """Close nothing."""


class Holding:
    """An elector whose release is not answered."""

    is_holding, answered_ns, failure = True, 0, None

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def start(self) -> None:
        """Begin nothing."""

    wake = start

    def bring(self, _digest: str) -> None:
        """Announce nothing."""

    def is_alive(self) -> bool:
        """Go on for as long as anybody looks."""
        return True

    def join(self, timeout_s: float) -> None:
        """Let that time pass."""
        self.clock.advance(timeout_s)


class Told(AgentReport):
    """A report that keeps each decision."""

    def __init__(self, clock: FakeClock, told: list[dict[str, Any]]) -> None:
        super().__init__(clock)
        self.told = told

    def __call__(self, event: str, **fields: Any) -> None:
        """Keep it."""
        self.told.append({"event": event, **fields})


class Stage:
    """An agent in this process, beside a worker that died."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **redis: Any) -> None:
        self.clock, self.told = FakeClock(), list[dict[str, Any]]()
        words = memoryview(bytearray(8 * board_words(slots=len(SLOTS), inflight=4))).cast("Q")
        self.board = Board(words, slots=len(SLOTS), inflight=4)
        self.board.header.phase = Phase.READY
        self.board.rows[3].state, self.board.rows[3].generation = SlotState.BACKOFF, 1
        self.board.rows[3].ended_generation = 1
        self.redis = SlowRedis(self.clock, **redis)
        monkeypatch.setattr(Agent, "_connect", lambda *_args, **_route: self.redis)
        monkeypatch.setattr(agent_main, "ElectorThread", lambda *_args, **_parts: Holding(self.clock))
        monkeypatch.setattr(agent_main, "AgentReport", lambda clock: Told(clock, self.told))

    def end(self, *, grace_s: float = 20.0, lists: Any = None, queues: Any = None, **reloaded: Any) -> float:
        """Let it run until it is asked to end; return the seconds that the end took."""
        child = ChildContext(
            settings=Settings.model_validate(
                {
                    "supervision": SupervisionSettings(grace_s=grace_s),
                    "cloudforet": {"queues": lists or {}},
                    "queues": queues or QueueSettings(),
                }
            ),
            replica="r1",
            name="agent",
            slot=0,
            generation=1,
            board=self.board,
            slot_names=SLOTS,
            parent_pid=os.getpid(),
            clock=self.clock,
            redis_url="redis://nowhere.invalid",
            **reloaded,
        )
        assert Agent(child, ()).run() == EXIT_OK
        assert self.redis.asked_ns
        return (self.clock.elapsed_ns() - self.redis.asked_ns) / 1e9


@pytest.fixture(autouse=True)
def _quiet_parent() -> Iterator[None]:
    """Its announcements reach this process, also before and after it listens."""
    former = signal.signal(signal.SIGURG, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGURG, former)


@pytest.mark.parametrize("end_at", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("by", "grace_s", "parent_allows_s"),
    [(signal.SIGTERM, 20.0, 5.0), (signal.SIGTERM, 1.0, 3.65), (signal.SIGQUIT, 20.0, 0.15)],
)
def test_all_that_is_left_to_do_shares_one_deadline(
    monkeypatch: pytest.MonkeyPatch, by: signal.Signals, grace_s: float, parent_allows_s: float, end_at: int
) -> None:
    """Each duty waited for its own: the agent was killed, and its tree ended with 1, although nothing was lost."""
    stage = Stage(monkeypatch, end_at=end_at, by=by)
    call_under_way_s = ANSWER_S if by is signal.SIGQUIT else 0  # its time was set before
    assert stage.end(grace_s=grace_s) < parent_allows_s + call_under_way_s

    ended = stage.told[-1]
    assert (ended["event"], ended["unreclaimed"]) == ("agent_ended", True)
    unanswered = [each["error"] for each in stage.told if each["event"] == "election_unanswered"]
    assert unanswered, "of these the log has the first"


class PublishingRedis(SlowRedis):
    """One that takes what is published."""

    def run(self, call: Call[Any], *, timeout_s: float) -> Any:
        """Note the jobs."""
        if call.script == "jobs_publish":
            self.published.append(call.args)
        return None if call.script in {"queues_bound", "jobs_publish"} else super().run(call, timeout_s=timeout_s)

    def command(self, *_parts: object) -> None:
        """Take the name of the cluster."""


def test_an_agent_that_starts_after_a_reload_publishes_the_jobs_that_the_reload_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It published those of the start: with former timeouts, and without those of modules that were added since."""
    stage = Stage(monkeypatch, end_at=2, by=signal.SIGTERM)
    stage.redis = PublishingRedis(stage.clock, end_at=2, by=signal.SIGTERM)
    stage.board.header.config_epoch = 3

    followed: list[Any] = []
    ingest: Any = type("_Ingest", (), {"name": "ingest", "period_ns": 1, "run": lambda *_: None})
    ingest.__init__ = lambda _self, **_parts: None
    ingest.follow = lambda _self, cards: followed.append(cards)
    monkeypatch.setattr(agent_main, "Ingest", ingest)

    class Reloaded:
        def brief(self, number: int) -> Brief:
            return Brief("digest", {f"job.of.{number}": "{}"})

    stage.end(config_epoch=3, handover=Reloaded(), lists={"q": {"bridge": "ingest"}})

    assert ["job.of.3" in args for args in stage.redis.published] == [True]
    assert followed == [{"job.of.3": "{}"}], "and makes runs of SpaceONE's messages by them"


class LaggingRedis(SlowRedis):
    """One that answers well, but late, and has the names of many queues."""

    ANSWER_S, QUEUES = 0.3, 50

    def __init__(self, clock: FakeClock, **asked: Any) -> None:
        super().__init__(clock, **asked)
        self.beaten_s: list[float] = []
        self.trimmed = 0

    def run(self, call: Call[Any], *, timeout_s: float) -> Any:
        """Note each beat of the sessions."""
        if call.script not in {"session_beat", "queue_trim", "set_read"}:
            return super().run(call, timeout_s=timeout_s)
        self.clock.advance(self.ANSWER_S)
        if call.script == "session_beat":
            self.beaten_s.append(self.clock.elapsed_ns() / 1e9)
        self.trimmed += call.script == "queue_trim"
        return [f"q{number}" for number in range(self.QUEUES)] if call.script == "set_read" else []


def test_sessions_are_beaten_between_the_calls_of_any_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention asked fifty times in a row: with answers of 0.3 s every live worker was taken for a lost machine's."""
    stage = Stage(monkeypatch, end_at=60, by=signal.SIGTERM)
    stage.redis = redis = LaggingRedis(stage.clock, end_at=60, by=signal.SIGTERM)
    stage.board.rows[3].state, stage.board.rows[3].ended_generation = SlotState.RUNNING, 0

    stage.end(queues=QueueSettings(history_age_s=86_400.0))

    pauses_s = [after - before for before, after in pairwise(redis.beaten_s)]
    assert redis.trimmed >= redis.QUEUES
    assert max(pauses_s) < QueueSettings().beat_period_s + 2 * ANSWER_S
