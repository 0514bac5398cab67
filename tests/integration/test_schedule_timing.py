"""When schedules fire under a driven clock, by the roles and scripts that production runs: a test for each rule of time."""

from __future__ import annotations

from typing import Any

from supervisor.core.schedules.catchup import fire_at_ms
from supervisor.core.schedules.triggers import trigger_of
from supervisor.testing.cluster import Cluster
from supervisor.testing.definitions import schedule_of
from tenure import job

START = "2026-03-28T12:00:30+00:00"
BASE = {"job": "elsewhere", "overlap": "allow"}


def fired(cluster: Cluster, schedule: str = "a") -> list[str]:
    return [run.nominal.strftime("%d %H:%M:%S") for run in cluster.fired(schedule)]


def outage(factory: Any, hours: int, schedules: dict[str, dict[str, Any]]) -> Cluster:
    """Return a cluster whose only replica was gone for ``hours`` hours, and has led again for six minutes."""
    entries = {name: BASE | {"every": "1h"} | fields for name, fields in schedules.items()}
    cluster: Cluster = factory(replicas=1, lease="5m", schedules=entries, start=START)
    cluster.advance("1m")
    cluster.kill("r1")
    cluster.advance(f"{hours}h")
    cluster.restart("r1")
    cluster.advance("6m")
    return cluster


OUTAGES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "latest": ({"missed": "latest"}, [17]),
    "earliest": ({"missed": "earliest"}, [13]),
    "all": ({"missed": "all"}, [13, 14, 15, 16, 17]),
    "capped": ({"missed": "all", "max_catchup": 2}, [16, 17]),
    "all-window": ({"missed": "all", "catchup_window": "3h"}, [15, 16, 17]),
    "earliest-window": ({"missed": "earliest", "catchup_window": "3h"}, [15]),
    "skip": ({"missed": "skip"}, [17]),  # late by less than two leases of five minutes
    "skip-late": ({"missed": "skip", "phase": "45m"}, []),
    "too-late": ({"missed": "latest", "catchup_window": "1m"}, []),
    "excluded": ({"missed": "all", "exclude": ["* 13-14 * * *", "* 16 * * *"]}, [15, 17]),
}


def test_an_outage_is_made_up_for_as_the_policy_says(tenure_cluster: Any) -> None:
    """Five due times passed; each policy chooses among them, and none gives the schedule up."""
    cluster = outage(tenure_cluster, 5, {name: fields for name, (fields, _) in OUTAGES.items()})
    for name, (fields, hours) in OUTAGES.items():
        assert fired(cluster, name) == [f"28 {hour}:00:00" for hour in hours], fields
    cluster.advance("1h")
    for name, (fields, _) in OUTAGES.items():
        following = "28 17:45:00" if name == "skip-late" else "28 18:00:00"
        assert fired(cluster, name)[-1] == following, f"{fields} goes on as if nothing had been"


def test_a_single_due_time_fires_however_late(tenure_cluster: Any) -> None:
    """A day and a half; only a window forbids it, whatever the policy for several is."""
    yearly = {"every": None, "cron": "0 15 28 3 *"}
    policies = {missed: yearly | {"missed": missed} for missed in ("latest", "earliest", "all", "skip")}
    cluster = outage(tenure_cluster, 36, policies | {"window": yearly | {"catchup_window": "1d"}})
    assert {name: fired(cluster, name) for name in policies} == {name: ["28 15:00:00"] for name in policies}
    assert fired(cluster, "window") == []


def test_a_union_fires_each_time_once_and_bounds_include_their_ends(tenure_cluster: Any) -> None:
    """Every 20 and every 30 minutes share the hour; the first and the last instant count."""
    bounded = {"every": "20m", "start_at": "2026-03-28T12:30", "end_at": "2026-03-28T14:00"}
    when = [{"every": "30m"}, {"at": "2026-03-28T13:11:12.500Z"}, {"at": "2026-03-28T12:30Z"}]
    cluster = tenure_cluster(replicas=1, lease="5m", schedules={"a": BASE | bounded | {"when": when}}, start=START)
    cluster.advance("4h")
    assert fired(cluster) == [
        "28 12:30:00", "28 12:40:00", "28 13:00:00", "28 13:11:12", "28 13:20:00", "28 13:30:00", "28 13:40:00", "28 14:00:00",
    ]  # fmt: skip


def test_an_instant_fires_once_and_a_limit_of_runs_ends_a_schedule(tenure_cluster: Any) -> None:
    """Then both are completed; a take-over does not begin them again."""
    schedules = {
        "once": BASE | {"at": "2026-03-28T12:05:00Z"},
        "thrice": BASE | {"every": "1m", "phase": "10s", "max_runs": 3},
    }
    cluster = tenure_cluster(replicas=2, lease="5s", schedules=schedules, start=START)
    cluster.advance("6m")
    cluster.kill(cluster.leader)
    cluster.advance("2m")
    assert fired(cluster, "once") == ["28 12:05:00"]
    assert fired(cluster, "thrice") == ["28 12:01:10", "28 12:02:10", "28 12:03:10"]


def let_pass(cluster: Cluster, *, hours: int) -> None:
    """Let hours pass in which nothing is due, without a replica that would look each second."""
    cluster.kill("r1")
    cluster.advance(f"{hours}h")
    cluster.restart("r1")


def fixed(**policy: Any) -> dict[str, Any]:
    return BASE | {"cron": "30 2 * * *", "timezone": "Europe/Berlin"} | policy


def test_a_time_that_the_clock_skips_fires_as_its_policy_says(tenure_cluster: Any) -> None:
    """02:30 in Berlin around 29 March 2026, in UTC."""
    schedules = {gap: fixed(dst_gap=gap) for gap in ("run", "skip", "shift")}
    cluster = tenure_cluster(replicas=1, lease="5m", schedules=schedules, start="2026-03-29T00:00:30+00:00")
    cluster.advance("2h")
    let_pass(cluster, hours=22)
    cluster.advance("1h")
    assert fired(cluster, "run") == ["29 01:00:00", "30 00:30:00"]
    assert fired(cluster, "skip") == ["30 00:30:00"]
    assert fired(cluster, "shift") == ["29 01:30:00", "30 00:30:00"]


def test_a_time_that_comes_twice_fires_as_its_policy_says(tenure_cluster: Any) -> None:
    """02:30 in Berlin around 25 October 2026; what starts with a star follows real time: on both passes."""
    schedules = {overlap: fixed(dst_overlap=overlap) for overlap in ("first", "last", "both")}
    schedules["star"] = fixed(cron="30 * * * *", exclude=["* 0-1,3-23 * * *"])
    cluster = tenure_cluster(replicas=1, lease="5m", schedules=schedules, start="2026-10-24T23:50:30+00:00")
    cluster.advance("2h")
    let_pass(cluster, hours=23)
    cluster.advance("1h")
    assert fired(cluster, "first") == ["25 00:30:00", "26 01:30:00"]
    assert fired(cluster, "last") == ["25 01:30:00", "26 01:30:00"]
    assert fired(cluster, "both") == fired(cluster, "star") == ["25 00:30:00", "25 01:30:00", "26 01:30:00"]


def test_jitter_moves_the_fire_and_not_the_nominal_time(tenure_cluster: Any) -> None:
    """The runs are those of the grid; each was enqueued when the drawn delay had passed, on either replica."""
    modes = ("fixed", "per_fire")
    entries = {mode: BASE | {"every": "10m", "jitter": "5m", "jitter_mode": mode} for mode in modes}
    cluster = tenure_cluster(replicas=2, lease="10s", schedules=entries, start=START)
    cluster.advance("31m")
    cluster.kill(cluster.leader)
    cluster.advance("31m")
    for mode in modes:
        assert fired(cluster, mode)[:5] == [f"28 12:{minute}:00" for minute in (10, 20, 30, 40, 50)]
        definition = schedule_of(mode, entries[mode])
        for decision in cluster._world.server.decisions:
            if decision.schedule == mode:
                following = trigger_of(definition).next_ms(decision.nominal_ms)
                late_ms = decision.at_ms - fire_at_ms(definition, decision.nominal_ms, following)
                assert 0 <= late_ms < 12_000, "at once, or as soon as the other one leads"


@job("timing.work")
def work() -> None:
    """Be done at once; what matters is when it is asked to."""


def test_a_delay_counts_from_the_end_of_a_run(tenure_cluster: Any) -> None:
    """Ten minutes after it ended, however long it waited before; never beside an unfinished one."""
    entry = {"job": "timing.work", "after_completion": "10m", "exclude": ["* 13 * * *"]}
    cluster = tenure_cluster(replicas=1, lease="5m", schedules={"a": entry}, start="2026-03-28T12:00:00+00:00")
    ended = []
    for wait in ("11m", "25m", "11m", "30m"):
        cluster.advance(wait)
        assert len(cluster.run_pending()) == 1
        ended.append(cluster.now)
    nominals = [run.nominal for run in cluster.fired("a")]
    assert len(nominals) == 4
    delays = [round((nominal - end).total_seconds() / 60) for nominal, end in zip(nominals[1:], ended, strict=False)]
    assert delays == [10, 10, 10]
    cluster.advance("1h")
    assert len(cluster.fired("a")) == 5
    assert cluster.fired("a")[-1].nominal.strftime("%H:%M") == "14:00", "what is excluded is waited out"
