"""Runs beside the due times, `run_on_create` and `on_change: run_now`: an earlier run of the same id, dead or unfinished."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.jobs.registry import job
from supervisor.store.queues.runs import Queues
from tenure import Context

broken: set[str] = set()
fences: list[int] = []


@job("extra_runs.mendable")
def mendable(ctx: Context) -> None:
    """Fail until it is mended."""
    fences.append(ctx.fence)
    if broken:
        raise RuntimeError("broken")


@pytest.fixture(autouse=True)
def mended() -> Any:
    """Leave the job mended to the next test."""
    yield
    broken.clear()
    fences.clear()


TICK = {"job": "extra_runs.mendable", "every": "30d"}
HOURLY: dict[str, Any] = {"job": "extra_runs.mendable", "every": "1h", "retries": 0}
MONTHLY: dict[str, Any] = HOURLY | {"every": "30d", "on_change": "run_now"}


def outcomes(here: Any, run_id: str) -> list[str]:
    """Return what the history of the queue says of a run, the oldest first."""
    entries = here.run(Queues(here.views.keys).recent("default"))
    return [entry.outcome for entry in entries if entry.run_id == run_id][::-1]


def skipped(here: Any, name: str = "x") -> int:
    return int((here.show(name).state or b"0 0").split()[1])


def deploy(here: Any, *every: str, **fields: Any) -> None:
    """Deploy definitions one after the other, the timing alone differs."""
    for each in every:
        here.upsert("x", **MONTHLY | {"every": each} | fields)
        here.cluster.advance(2)


def begin_again(here: Any, **fields: Any) -> None:
    """Delete the schedule, and create it when it is remembered no more."""
    here.run(here.definitions.delete([("x", None)]))
    here.cluster.advance(2)
    here.cluster._world.server.store.raw.delete(here.views.keys.schedule_gone)  # as it is after more than a day
    here.upsert("x", **HOURLY | {"run_on_create": True} | fields)
    here.cluster.advance(2)


@pytest.mark.parametrize("overlap", ["skip", "allow"])
def test_a_change_back_to_a_timing_whose_run_died_runs_at_once(desk: Any, overlap: str) -> None:
    """The deploy of a broken job is taken back, and made again once it is mended: the dead run kept the new one away."""
    here = desk(tick=TICK)
    deploy(here, "30d", "20d", overlap=overlap)
    broken.add("20d")
    (died,) = here.cluster.run_pending()
    broken.clear()
    deploy(here, "30d", overlap=overlap)
    here.cluster.run_pending()
    deploy(here, "20d", overlap=overlap)
    (ended,) = here.cluster.run_pending()

    assert (ended.run_id, ended.outcome) == (died.run_id, "ok")
    assert outcomes(here, died.run_id) == ["dead", "dropped", "ok"]
    assert skipped(here) == 0
    first, *_, last = fences
    assert last > first, "systems that the job writes to refuse a fence that is not larger"


@pytest.mark.parametrize("fields", [{"overlap": "allow"}, {"overlap": "skip", "max_running": 5}], ids=["allow", "skip"])
def test_a_change_back_to_a_timing_whose_run_is_unfinished_is_counted_as_skipped(
    desk: Any, fields: dict[str, Any]
) -> None:
    """There was a change without a run, and no number told."""
    here = desk(tick=TICK)
    deploy(here, "30d", "20d", "30d", **fields)
    assert skipped(here) == 0
    deploy(here, "20d", **fields)

    assert skipped(here) == 1
    assert len(here.queued()) == 2


@pytest.mark.parametrize("overlap", ["skip", "allow"])
def test_a_schedule_that_begins_anew_runs_though_its_first_run_had_died(desk: Any, overlap: str) -> None:
    """The log said that it ran."""
    here = desk(tick=TICK)
    here.upsert("x", **HOURLY, run_on_create=True, overlap=overlap)
    here.cluster.advance(2)
    broken.add("x")
    here.cluster.run_pending()
    broken.clear()
    begin_again(here, overlap=overlap)
    (ended,) = here.cluster.run_pending()

    assert (ended.run_id, ended.outcome) == ("x!initial", "ok")
    assert outcomes(here, "x!initial") == ["dead", "dropped", "ok"]


@pytest.mark.parametrize("overlap", ["skip", "allow"])
def test_a_schedule_that_begins_anew_beside_its_unfinished_first_run_says_skipped(desk: Any, overlap: str) -> None:
    """One id is one run: the new life gets none, and the log and the numbers say so."""
    here = desk(tick=TICK)
    here.upsert("x", **HOURLY, run_on_create=True, overlap=overlap)
    here.cluster.advance(2)
    begin_again(here, overlap=overlap)

    decisions = [each for each in here.cluster._world.server.decisions if each.schedule == "x"]
    assert [(each.code.value, each.run_id) for each in decisions] == [("INITIAL", "x!initial"), ("SKIPPED", "")]
    assert skipped(here) == 1
    assert here.queued().count("x!initial") == 1
