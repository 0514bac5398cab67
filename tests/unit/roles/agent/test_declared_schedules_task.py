"""Replicas with other schedules than those in place are told."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.effects import Call
from supervisor.roles.agent import declared_schedules
from supervisor.roles.agent.declared_schedules import PERIOD_NS, REMEDY, DeclaredSchedulesTask
from supervisor.store.keys import Keys
from supervisor.store.schedules.definitions import Definitions

OWN, OTHER = "a" * 64, "b" * 64


class Gauge:
    """Keeps what it was set to."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def set(self, value: int) -> None:
        self.values.append(value)


class Bench:
    """The task, and a set in place that the test chooses."""

    def __init__(self) -> None:
        self.applied, self.asked = "", 0
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.task = DeclaredSchedulesTask(
            run=self._answer,
            definitions=Definitions(Keys("test")),
            digest=OWN,
            report=lambda event, **fields: self.told.append((event, fields)),
        )

    def _answer(self, call: Call[Any]) -> Any:
        self.asked += 1
        return call.parse([b"x" * 64, b"3", *((b"#applied", self.applied.encode()) if self.applied else ())])

    def look(self, applied: str, times: int = 1) -> None:
        self.applied = applied
        for _ in range(times):
            self.task.run(0)


@pytest.fixture
def gauge(monkeypatch: pytest.MonkeyPatch) -> Gauge:
    found = Gauge()
    monkeypatch.setattr(declared_schedules, "CONFIG_SCHEDULES_IN_PLACE", found)
    return found


def test_a_set_that_is_not_in_place_for_over_a_minute_is_told_once(gauge: Gauge) -> None:
    """A rolling deploy differs for a while; after that only one set fires, and which changes with the leader."""
    bench = Bench()
    bench.look(OTHER)
    assert (bench.told, gauge.values, PERIOD_NS) == ([], [], 60 * 10**9)
    bench.look(OTHER, times=5)
    assert bench.told == [("schedules_differ", {"own": "a" * 12, "in_place": "b" * 12, "remedy": REMEDY})]
    assert gauge.values == [0]


def test_a_set_that_came_into_place_ends_it(gauge: Gauge) -> None:
    """Then a later difference is another one."""
    bench = Bench()
    for applied in (OTHER, OWN, OTHER, OWN):
        bench.look(applied)
    assert (bench.told, gauge.values) == ([], [1, 1])
    bench.look(OTHER, times=2)
    bench.look(OWN)
    bench.look(OTHER, times=2)
    assert len(bench.told) == 2
    assert gauge.values == [1, 1, 0, 1, 0]


def test_while_none_is_in_place_nothing_is_claimed(gauge: Gauge) -> None:
    """Before the first declaration, and during one."""
    bench = Bench()
    bench.look("", times=3)
    assert (bench.told, gauge.values) == ([], [])


def test_a_replica_without_schedules_asks_nothing(gauge: Gauge) -> None:
    """It declares none when it leads."""
    bench = Bench()
    bench.task.bring("")
    bench.look(OTHER, times=3)
    assert (bench.told, gauge.values, bench.asked) == ([], [], 0)


def test_a_reload_starts_the_minute_anew(gauge: Gauge) -> None:
    """One of all replicas takes a while."""
    bench = Bench()
    bench.look(OTHER)
    bench.task.bring("c" * 64)
    bench.look(OTHER)
    assert bench.told == []
    bench.look(OTHER)
    assert [fields["own"] for _, fields in bench.told] == ["c" * 12]
