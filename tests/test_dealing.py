"""The tests of a group run in one worker of pytest, and a share of the cases of a test in every run."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kit.dealing import Dealing, name_groups, tell_briefly
from tests.kit.shares import deal


@pytest.mark.xdist_group("alone")
def test_the_scheduler_knows_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    """Otherwise each worker has some of its tests, and prepares what one could prepare for all."""
    item = copy.copy(request.node)
    name_groups([item])

    scheduler: Any = object.__new__(Dealing)
    assert scheduler._split_scope(item.nodeid) == "alone"


def test_a_worker_tells_once_of_a_test_that_passes() -> None:
    """Each message costs both sides as much as a small test; failures, and what takes long, are told of every phase."""
    sent: list[tuple[str, Any]] = []
    interactor = SimpleNamespace(sendevent=lambda name, **fields: sent.append((name, fields.get("data"))))
    tell_briefly(interactor)
    reports = [
        {"when": when, "outcome": outcome, "duration": duration}
        for when in ("setup", "call", "teardown")
        for outcome, duration in (("passed", 0.01), ("passed", 1.0), ("failed", 0.01), ("skipped", 0.01))
    ]

    interactor.sendevent("logstart", nodeid="a")
    for each in reports:
        interactor.sendevent("testreport", data=each)
    interactor.sendevent("logfinish", nodeid="a")
    interactor.sendevent("runtest_protocol_complete", item_index=1)

    told = [each for each in reports if each != {"when": each["when"], "outcome": "passed", "duration": 0.01}]
    assert sent == [
        *(("testreport", each) for each in reports if each in told or each["when"] == "call"),
        ("runtest_protocol_complete", None),
    ]


class Case:
    """A case of a test, as far as dealing goes."""

    def __init__(self, number: int, *marks: str) -> None:
        self.nodeid = f"tests/test_some.py::test_some[{number}]"
        self.marks = list(marks)

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.name)


@pytest.mark.parametrize(("count", "step", "left"), [(7, 3, {2, 3}), (2, 3, {1}), (1, 2, {1}), (0, 2, {0})])
def test_every_case_is_dealt_and_each_test_keeps_one(count: int, step: int, left: set[int]) -> None:
    """Those that are long already are not counted."""
    cases: list[Any] = [
        Case(2 * number + is_long, *["long"] * is_long) for number in range(count) for is_long in (0, 1)
    ]

    deal(cases, step)

    assert sum(case.marks == [] for case in cases) in left
    assert all(case.marks in ([], ["long"]) for case in cases)
