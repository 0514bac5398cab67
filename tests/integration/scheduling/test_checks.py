"""The checks of a profile, asked by the leader about due times: what is kept back, what is remembered of it."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from structlog.testing import capture_logs

from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Check, Exclusion, Kind, ScheduleDef, Template
from supervisor.core.schedules.checks import FireRefusal
from supervisor.roles.scheduler.fire_items import DecisionTime, items, prepare
from supervisor.roles.scheduler.firing import Decided
from supervisor.roles.scheduler.main import SchedulerReport
from supervisor.roles.scheduler.schedule_cache import CompiledSchedule
from supervisor.store.schedules.reads import ScheduleState, Views
from supervisor.store.wire.fire import FireCode, What
from supervisor.telemetry.metrics import HOOK_ANSWERS
from supervisor.testing.cluster import Cluster

HOUR = 3_600_000
START = "2026-01-01T00:00:00+00:00"
NIGHT = {"blackout": {"windows": ["* 2-4 * * *"]}}


def cluster_of(hooks: dict[str, Any], *, replicas: int = 1, **fields: Any) -> Cluster:
    """Return a cluster with an hourly schedule of a profile with ``hooks``."""
    schedule = {"job": "demo", "every": "1h", "overlap": "allow", "profile": "p", **fields}
    return Cluster(
        replicas=replicas, schedules={"hourly": schedule}, profiles={"p": {"hooks": hooks}}, lease="300s", start=START
    )


def hours(cluster: Cluster) -> list[int]:
    """Return the hours that fired, from the first of January on."""
    return [(fired.nominal.day - 1) * 24 + fired.nominal.hour for fired in cluster.fired("hourly")]


def decisions(cluster: Cluster) -> list[tuple[str, tuple[str, ...], int]]:
    """Return the latest decisions, the oldest first: code, reasons, count."""
    server = cluster._world.server
    found = server.execute(Views(server.keys).inspect(["hourly"]))[0]
    stretches = ScheduleState.parse(found.state).stretches
    return [(stretch.code, stretch.reasons, stretch.count) for stretch in reversed(stretches)]


def test_a_blackout_keeps_due_times_back_and_the_history_says_so() -> None:
    """They are decided, not late: nothing of them is caught up afterwards."""
    with closing(cluster_of({"enabled": ["blackout"], "config": NIGHT})) as cluster:
        cluster.advance("8h1m")

        assert hours(cluster) == [1, 5, 6, 7, 8]
        assert decisions(cluster) == [("F", (), 1), ("M", ("blackout",), 3), ("F", (), 4)]


@pytest.mark.long
def test_checks_hold_across_a_change_of_the_leader() -> None:
    """A quota counts due times of the plan, so the next leader counts the same."""
    hooks = {"enabled": ["quota"], "config": {"quota": {"runs": 3, "per": "6h"}}}
    with closing(cluster_of(hooks, replicas=2)) as cluster:
        cluster.advance("1h")
        cluster.kill(cluster.leader)
        cluster.advance("9h1m")

        assert hours(cluster) == [1, 2, 6, 7, 8]


def test_what_was_missed_and_what_is_kept_back_are_told_apart() -> None:
    """After an outage the policy chooses first; checks are asked about what it chose."""
    with closing(cluster_of({"enabled": ["blackout"], "config": NIGHT}, missed="all", max_catchup=4)) as cluster:
        cluster.advance("1m")
        cluster.kill("r1")
        cluster.advance("6h")
        cluster.restart("r1")
        cluster.advance("1h")

        assert hours(cluster) == [5, 6, 7]
        kept_back = [(reasons, count) for code, reasons, count in decisions(cluster) if code == "M"]
        assert kept_back == [(("blackout", "cap"), 3), (("blackout",), 1)]


def test_a_closed_profile_fires_nothing_and_opens_by_itself() -> None:
    """``closed`` with an instant is a maintenance window for everything of the profile."""
    hooks = {"enabled": ["closed"], "config": {"closed": {"reason": "migration", "until": "2026-01-01T03:30:00Z"}}}
    with closing(cluster_of(hooks)) as cluster:
        cluster.advance("5h1m")

        assert hours(cluster) == [4, 5]


def known(*checks: Check, **fields: Any) -> CompiledSchedule:
    """Return an hourly schedule as the leader knows it."""
    template = Template(job="demo", kind=Kind.SYNC)
    return CompiledSchedule(
        ScheduleDef(id="hourly", template=template, every_ms=HOUR, checks=checks, **fields), 1, is_dynamic=False
    )


def test_each_due_time_of_a_chain_is_asked_about() -> None:
    """And the chain keeps its watermarks, so that a batch can be sent twice."""
    blackout = Check(hook="blackout", exclude=(Exclusion(from_ms=2 * HOUR, until_ms=3 * HOUR),), reason="freeze")
    ready = prepare("hourly", known(blackout, missed="all", max_catchup=3), 0)
    assert ready is not None

    chain = items(ready, DecisionTime(4 * HOUR, 10_000), 10)

    assert [(item.what, item.mark_ms // HOUR, item.nominal_ms // HOUR, item.missed, item.why) for item in chain] == [
        (What.MISSED, 0, 2, 2, "bc"),
        (What.DUE, 2, 3, 0, ""),
        (What.DUE, 3, 4, 0, ""),
    ]
    assert chain[0].refusal == FireRefusal("blackout", "b", "freeze")


def test_a_schedule_without_checks_asks_nothing() -> None:
    """Its due time is one item, as it always was."""
    ready = prepare("hourly", known(), 0)
    assert ready is not None
    assert ready.known.checks is None
    assert [item.what for item in items(ready, DecisionTime(HOUR, 10_000), 10)] == [What.DUE]


def test_a_refusal_is_counted_and_told_with_its_hook() -> None:
    """On a line ``fire_rejected``, not as a missed run that somebody should worry about."""
    ready = prepare("hourly", known(Check(hook="closed", reason="migration")), 0)
    assert ready is not None
    (item,) = items(ready, DecisionTime(HOUR, 10_000), 10)
    before = HOOK_ANSWERS.labels("closed", "gate", "reject")._value.get()

    with capture_logs() as logs:
        SchedulerReport()("fires", decided=[Decided(item, FireCode.MISSED, 5)])

    (line,) = logs
    assert (line["event"], line["hook"], line["point"], line["reason"]) == (
        "fire_rejected", "closed", "gate", "migration",
    )  # fmt: skip
    assert HOOK_ANSWERS.labels("closed", "gate", "reject")._value.get() == before + 1


@pytest.fixture(autouse=True)
def _no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.testing.definitions.registry", Registry())
