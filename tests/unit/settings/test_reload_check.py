"""The check of a changed configuration, as its throw-away child runs it."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.core.errors import ConfigError, Problem
from supervisor.core.supervision.reload import PROBLEMS_MAX, ReloadPlan
from supervisor.reload.audiences import Audience
from supervisor.reload.check import ConfigCheck
from supervisor.reload.config_memfd import Handover
from supervisor.settings.loader import Loaded
from supervisor.settings.sections.models import Settings


@pytest.fixture
def handover() -> Iterator[Handover]:
    """Both buffers, empty."""
    made = Handover()
    yield made
    made.close()


class RunningConfiguration:
    """A running tree's configuration and the files beside it."""

    def __init__(self, handover: Handover, **running: Any) -> None:
        self.wanted: dict[str, Any] = {}
        self.problems: list[Problem] = []
        self.handover = handover
        handover.start(Settings.model_validate(running))
        self.check = ConfigCheck(
            definitions=(),
            runs_at_once_max=200,
            handover=handover,
            load=self._load,
            prepare=lambda loaded: (loaded, ()),
        )

    def _load(self) -> Loaded:
        if self.problems:
            raise ConfigError(self.problems)
        return Loaded(Settings.model_validate(self.wanted), {}, ())

    def run(self, number: int = 1, in_effect: int = 0) -> tuple[bool, ReloadPlan]:
        """Run one check; return whether it can be carried out, and the plan."""
        self.check.open(number, in_effect)
        is_good = self.check.run(number, in_effect, lambda _pool, _count: "")
        packed = self.check.plan(number)
        assert packed is not None
        return is_good, msgspec.json.decode(packed, type=ReloadPlan)


def test_a_good_change_is_planned_and_handed_over(handover: Handover) -> None:
    """The parent does what the plan says; children read the settings themselves."""
    desk = RunningConfiguration(handover)
    desk.wanted = {"log": {"level": "debug"}, "supervision": {"grace": "5s"}, "scheduler": {"catchup_rate": 7}}

    is_good, plan = desk.run()

    assert is_good
    assert plan.changed == ("scheduler.catchup_rate", "supervision.grace", "log.level")
    assert plan.limits is not None
    assert plan.limits.grace_s == 5.0
    assert (plan.log_level, plan.restarts) == ("debug", ("scheduler", "web"))
    assert handover.reader(Audience.AGENT).settings(1).log.level == "debug"


def test_an_unchanged_configuration_plans_nothing(handover: Handover) -> None:
    """No process is replaced because somebody sent a signal."""
    assert RunningConfiguration(handover).run() == (True, ReloadPlan())


def test_each_reload_is_compared_with_what_runs_not_with_the_start(handover: Handover) -> None:
    """Going back to the first configuration is a change too."""
    desk = RunningConfiguration(handover)
    desk.wanted = {"log": {"level": "debug"}}
    desk.run(1, in_effect=0)
    assert desk.run(2, in_effect=1)[1].changed == ()
    desk.wanted = {}
    assert desk.run(3, in_effect=1)[1].changed == ("log.level",)


def test_a_bad_configuration_is_refused_with_its_lines(handover: Handover) -> None:
    """The same words that a start would have used; and of a flood, the first hundred."""
    desk = RunningConfiguration(handover)
    desk.problems = [Problem(f"tenure.yaml:{line}", "x", "is wrong") for line in range(PROBLEMS_MAX + 5)]

    is_good, plan = desk.run()

    assert not is_good
    assert plan.problems[0] == "tenure.yaml:0: x: is wrong"
    assert (len(plan.problems), plan.problem_count) == (PROBLEMS_MAX, PROBLEMS_MAX + 5)
    assert plan.changed == ()


def test_no_plan_holds_a_secret(handover: Handover) -> None:
    """The parent logs it."""
    desk = RunningConfiguration(handover)
    desk.wanted = {"redis": {"url": "redis://:hunter2@h"}}

    is_good, plan = desk.run()

    assert not is_good
    assert "hunter2" not in repr(plan)


def test_changed_code_is_named_because_it_does_not_run(
    handover: Handover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who edits a job and reloads must not look for the mistake in the job."""
    module = types.ModuleType("old_job")
    module.__file__ = str(tmp_path / "old_job.py")
    (tmp_path / "old_job.py").write_text("")
    monkeypatch.setitem(sys.modules, "old_job", module)
    desk = RunningConfiguration(handover, jobs=["old_job"])
    desk.wanted = {"jobs": ["old_job"]}
    os.utime(module.__file__, (1, 1))
    assert desk.run(1)[1] == ReloadPlan()

    os.utime(module.__file__, (1 << 33, 1 << 33))
    assert desk.run(2)[1] == ReloadPlan(stale=("old_job",))


def test_why_a_reload_is_refused_names_no_secret(handover: Handover) -> None:
    """The parent writes the first reason into its status for systemd, which every user of the machine can read."""
    desk = RunningConfiguration(handover)
    dsn = "postgres://app:hunter2@db/prod"
    desk.problems = [
        Problem("jobs.0", "files", f"cannot be imported: OSError: no answer from {dsn}", "mend the module")
    ]

    (told,) = desk.run()[1].problems

    assert "hunter2" not in told
    assert "cannot be imported: OSError: no answer from postgres://***@db/prod" in told
