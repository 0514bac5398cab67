"""The wall clock of one machine decides nothing: with a step of it, a cluster decides what it decides without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from supervisor.core.model import Kind, Outcome
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.schedules.control import Control
from supervisor.store.schedules.definitions import Change, Definitions
from supervisor.store.wire.poll import Ack
from supervisor.testing.cluster import Cluster
from supervisor.testing.definitions import schedule_of

HOURS_3_S = 10_800.0
TICK = {"job": "demo", "every": "10s", "overlap": "allow", "missed": "all", "catchup_window": "1m"}
HELD = {"job": "demo", "queue": "held", "every": "30s"}
SCHEDULES: dict[str, dict[str, Any]] = {
    "tick": TICK,
    "punctual": TICK | {"every": "20s", "missed": "skip", "catchup_window": "20s"},
    "paused": TICK,
    "owed": TICK | {"on_resume": "catchup"},
    "waits": HELD | {"overlap": "buffer_one", "catchup_window": "1m"},
    "gives-way": HELD | {"overlap": "cancel_other", "cancel_grace": "20s"},
}
MOMENTS_S = (5.0, 14.9, 24.0, 29.9, 30.01, 59.9, 60.01, 72.0, 79.5, 84.0, 89.9, 90.01)
CASES = [(1, HOURS_3_S), (2, HOURS_3_S), (2, -HOURS_3_S)]
SHARED = [(*case, MOMENTS_S[number :: 2 * len(CASES)]) for number, case in enumerate(CASES)]
ALL = [pytest.param(*case, MOMENTS_S, marks=pytest.mark.long) for case in CASES]
"""Half of the moments, each with one of the cases, in every run of the tests; each with each in the long ones."""
END_S = 130.0


class Life:
    """Two minutes of a cluster: what people and workers do at fixed times, and what was decided."""

    def __init__(self, replicas: int) -> None:
        self.cluster = Cluster(replicas=replicas, schedules=SCHEDULES)
        self.server = self.cluster._world.server
        self.run_ids: dict[str, str] = {}
        self.todo: list[tuple[float, Callable[[], None]]] = [
            (12, lambda: self.upsert("once", at="2026-01-01T00:00:15Z", every=None, retain_completed="1m")),
            (22, self.pause),
            (32, lambda: self.upsert("new", every="1h", run_on_create=True)),
            (40, self.take),
            (75, self.finish),
            (END_S, lambda: None),
        ]

    def live(self, step_at_s: float, step_s: float) -> tuple[list[str], list[str], list[str]]:
        """Return what was decided, which schedules there are at the end, and which of them are paused."""
        try:
            for at_s, act in sorted([*self.todo, (step_at_s, lambda: self.step(step_s))], key=lambda each: each[0]):
                self.cluster.advance(at_s - self.cluster._world.now_ns / 1e9)
                act()
        finally:
            self.cluster.close()
        start_ms = self.cluster._world.start_ms
        decided = [
            f"{each.schedule} {each.code} {'' if each.code == 'INITIAL' else each.nominal_ms - start_ms} {each.missed}"
            for each in self.server.decisions
        ]
        keys, raw = self.server.keys, self.server.store.raw
        return sorted(decided), sorted(raw.hkeys(keys.schedule_def)), sorted(raw.hkeys(keys.schedule_paused))

    def step(self, seconds: float) -> None:
        self.cluster.step_wall_clock(self.cluster.leader, seconds)

    def call(self, call: Any) -> Any:
        reply = self.server.execute(call)
        self.cluster._world.executed()
        return reply

    def upsert(self, name: str, **fields: Any) -> None:
        definition = schedule_of(name, {"job": "demo", "overlap": "allow", **fields})
        self.call(Definitions(self.server.keys).upsert([Change(definition=definition)], wall_ms=1))

    def pause(self) -> None:
        self.call(Control(self.server.keys).pause(["paused", "owed"], reason="", by="a person", for_ms=60_000))

    def take(self) -> None:
        """A worker begins the first run of both, and heeds no request to stop."""
        self.call(Sessions(self.server.keys).open("w", {}))
        taken = self.call(Queues(self.server.keys).turn(seq=1, want=2, **TURN)).runs
        self.run_ids = {each.envelope.schedule: each.envelope.id for each in taken}

    def finish(self) -> None:
        ack = Ack(run_id=self.run_ids["waits"], queue="held", attempt=1, outcome=Outcome.OK, schedule="waits")
        self.call(Queues(self.server.keys).turn(seq=2, want=0, acks=[ack], **TURN))


TURN: dict[str, Any] = {"session": "w", "kind": Kind.SYNC, "queues": ["held"], "want_suspect": False}


@pytest.mark.share(3)
@pytest.mark.parametrize(("replicas", "step_s", "moments_s"), [*SHARED, *ALL])
def test_a_step_of_the_leaders_clock_at_any_moment_changes_nothing_but_lateness(
    replicas: int, step_s: float, moments_s: Sequence[float]
) -> None:
    """Pauses, graces, windows, retention, initial runs: all are Redis' time, which does not step."""
    wanted = Life(replicas).live(0.5, 0.0)
    assert len(wanted[0]) > 40
    assert wanted[1:] == ([b"gives-way", b"new", b"owed", b"paused", b"punctual", b"tick", b"waits"], [])
    for at_s in moments_s:
        found = Life(replicas).live(at_s, step_s)
        assert found[1:] == wanted[1:], f"stepped at {at_s} s"
        assert found[0] == wanted[0], f"stepped at {at_s} s: {sorted(set(found[0]) ^ set(wanted[0]))}"
