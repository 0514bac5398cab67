"""Schedules that take the name of an older one: who may, and what is refused."""

from __future__ import annotations

import pytest

from supervisor.core.jobs.registry import Registry, job
from supervisor.settings.schedules.definitions import CHUNK, validate_schedules

ENTRY = {"job": "noop", "every": "1h"}


def noop() -> None:
    """Be a job."""


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Return a registry of its own with one job."""
    own = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", own)
    job("noop")(noop)
    return own


def test_a_schedule_cannot_take_the_name_of_one_that_is_still_there(known: Registry) -> None:
    """Both would own its progress; also when they lie far apart."""
    found = validate_schedules({"b": ENTRY, "a": {**ENTRY, "renamed_from": "b"}}, known=known)
    assert ["'b' is another schedule, still defined" in str(problem) for problem in found.problems] == [True]
    far = {f"s{n}": ENTRY for n in range(CHUNK + 1)} | {"z": {**ENTRY, "renamed_from": "s0"}}
    found = validate_schedules(far, known=known)
    assert [problem.path for problem in found.problems] == ["schedules.z.renamed_from"]


@pytest.mark.parametrize("between", [0, CHUNK])
def test_two_schedules_cannot_be_the_new_name_of_one(known: Registry, between: int) -> None:
    """The progress of the old one goes to whichever is declared first; the other would begin anew, silently."""
    heir = {**ENTRY, "renamed_from": "old"}
    found = validate_schedules({"a": heir} | {f"s{n}": ENTRY for n in range(between)} | {"z": heir}, known=known)
    (problem,) = found.problems
    assert problem.path == "schedules.z.renamed_from"
    assert "'old' was renamed to 'a'" in problem.message
