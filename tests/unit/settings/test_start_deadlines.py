"""The start deadline of scheduled runs: that of the schedule, else of ``@job``, else of the profile that is picked."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.jobs.registry import Registry, job
from supervisor.settings.schedules.complete import complete

PROFILES = "profiles: {default: {start_deadline: 5m}, bulk: {start_deadline: 1h}, tight: {start_deadline: 30s}}\n"


@pytest.mark.parametrize("name", ["plain", "bulky", "patient"])
@pytest.mark.parametrize("profile", [None, "bulk", "tight", "default"])
def test_a_scheduled_run_has_the_start_deadline_of_its_job_else_of_its_profile(
    desk: Any, monkeypatch: pytest.MonkeyPatch, name: str, profile: str | None
) -> None:
    """Also where ``default``, or the profile that the job picks, has another: such a run had none."""
    known = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", known)
    job("plain")(lambda: None)
    job("bulky", profile="bulk")(lambda: None)
    job("patient", start_deadline="2h")(lambda: None)
    entry = f"job: {name}, every: 1h" + ("" if profile is None else f", profile: {profile}")
    desk.add(PROFILES + f"workers: {{}}\nschedules: {{a: {{{entry}}}, b: {{{entry}, start_deadline: 7s}}}}\n")

    own, written = complete(desk.load(), known)

    goes_by = profile or ("bulk" if name == "bulky" else "default")
    wanted = 7200 if name == "patient" else {"default": 300, "bulk": 3600, "tight": 30}[goes_by]
    assert (own.start_deadline_ms, own.template.start_deadline_s) == (1000 * wanted, wanted)
    assert written.start_deadline_ms == 7000
