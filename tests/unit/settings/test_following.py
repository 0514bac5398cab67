"""Schedules that follow others: the written form, and everything that is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from supervisor.core.errors import ConfigError
from supervisor.core.model import After
from supervisor.core.schedules.triggers import TriggerError, trigger_of
from supervisor.settings.schedules.complete import complete
from supervisor.settings.schedules.definitions import Validated, validate_schedules
from supervisor.store.queues.jobs import AnyJob
from supervisor.store.wire.definition import timing_digest


def validated(**entries: Any) -> Validated:
    return validate_schedules({name: {"job": "x", **entry} for name, entry in entries.items()}, known=AnyJob())


def refusals(**entries: Any) -> list[str]:
    return [str(problem).removeprefix("input: schedules.") for problem in validated(**entries).problems]


def test_a_follower_has_the_times_of_another_schedule() -> None:
    """It says so in words; by default the end must be ok."""
    load, report = validated(load={"every": "1h"}, report={"after": {"schedule": "load"}}).definitions
    assert report.after == After(schedule="load", outcome="ok")
    assert trigger_of(report).describe() == "after load has ended ok"
    assert timing_digest(report) != timing_digest(msgspec.structs.replace(report, after=After(schedule="other")))
    assert load.after is None


def test_a_version_that_does_not_know_of_followers_finds_no_trigger() -> None:
    """It sets the schedule aside with that reason, and neither fires nor completes it."""
    (report,) = validated(report={"after": {"schedule": "load"}}).definitions
    with pytest.raises(TriggerError, match="sets none of every"):
        trigger_of(msgspec.structs.replace(report, after=None))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"every": "1h"},
            "b.every: has no effect beside after, which takes the times of the other schedule; remove it",
        ),
        ({"when": [{"every": "1h"}]}, "b.when: has no effect beside after"),
        ({"exclude": ["2026-12-25"]}, "b.exclude: has no effect beside after"),
        ({"start_at": "2027-01-01T00:00Z"}, "b.start_at: has no effect beside after"),
        ({"jitter": "1m"}, "b.jitter: has no effect beside after"),
        ({"after": {"schedule": "a", "outcome": "good"}}, "b.after.outcome: must be ok, failed or any, got 'good'"),
        ({"after": {"schedule": "b"}}, "b.after.schedule: follows itself: b after b, so none of them is ever due"),
    ],
)
def test_what_makes_no_sense_beside_after_is_refused(fields: dict[str, Any], message: str) -> None:
    """With place, value and remedy."""
    (refusal,) = refusals(a={"every": "1h"}, b={"after": {"schedule": "a"}} | fields)
    assert message in refusal


def test_a_loop_is_refused_with_its_path() -> None:
    """Each of its schedules is named, those that follow it from outside are not."""
    after = {name: {"after": {"schedule": followed}} for name, followed in ("ab", "bc", "ca", "da")}
    assert [line.partition(",")[0] for line in refusals(**after)] == [
        "a.after.schedule: follows itself: a after b after c after a",
        "b.after.schedule: follows itself: b after c after a after b",
        "c.after.schedule: follows itself: c after a after b after c",
    ]


def test_a_configuration_has_whom_its_schedules_follow(desk: Any) -> None:
    """A typing mistake gets a suggestion; a schedule of another cluster is none of this one."""
    many = "".join(f"  f{n}: {{job: x, after: {{schedule: load}}}}\n" for n in range(101))
    text = (
        "version: 1\nworkers: {}\nschedules:\n  load: {job: x, every: 1h}\n  b: {job: x, after: {schedule: laod}}\n"
        f"  c: {{job: x, after: {{schedule: 'other:nightly'}}}}\n{many}"
    )
    desk.add(text)
    with pytest.raises(ConfigError) as caught:
        complete(desk.load(), AnyJob())  # type: ignore[arg-type]
    remedy = "follow one that it has; those of other clusters end unseen"
    told = [str(problem).replace(f"{desk.directory}/", "") for problem in caught.value.problems]
    assert told == [
        "tenure.yaml:5: schedules.b.after.schedule: 'laod' is no schedule of this configuration; did you mean load?",
        f"tenure.yaml:6: schedules.c.after.schedule: 'other:nightly' is no schedule of this configuration; {remedy}",
        "tenure.yaml:107: schedules.f100.after.schedule: 100 others follow 'load' already; follow one of those",
    ]
