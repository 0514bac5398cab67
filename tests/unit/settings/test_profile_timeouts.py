"""Timeouts that a profile gives a job, and the soft timeout that ``@job`` says."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.jobs.registry import Registry, job
from supervisor.settings.schedules.complete import complete

PROFILES = "profiles: {short: {timeout: 10s}, long: {timeout: 400s}}\n"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [("", None), (", profile: long", 200.0), (", timeout: 500s", 200.0), (", profile: long, timeout: 1m", None)],
)
def test_a_soft_timeout_counts_wherever_there_is_room_for_it(
    desk: Any, monkeypatch: pytest.MonkeyPatch, fields: str, wanted: float | None
) -> None:
    """Also under a profile that a schedule picks, where that of the job leaves none: the job's was forgotten."""
    known = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", known)
    job("work", soft_timeout=200, profile="short")(lambda: None)
    desk.add(f"{PROFILES}workers: {{}}\nschedules: {{a: {{job: work, every: 1h{fields}}}}}\n")

    (found,) = complete(desk.load(), known)

    assert found.template.soft_timeout_s == wanted
