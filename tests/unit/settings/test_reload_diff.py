"""What follows from a changed configuration: every setting has one effect, and nothing is ignored."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.reload.diff import EFFECTS, POOL_EFFECTS, ConfigDifference, Effect, compare, named
from supervisor.settings.loader import Loaded
from supervisor.settings.schema import ShapeKind, settings_shape
from supervisor.settings.sections.models import PoolSettings, Settings
from tests.kit.tables import table

POOLS = {"io": {"kind": "async", "processes": 2}, "cpu": {"kind": "sync"}}
RUNNING: dict[str, Any] = {"workers": POOLS, "log": {"level": "info"}}


def diff(changes: dict[str, Any], *, has_other_schedules: bool = False, capacity: int = 5) -> ConfigDifference:
    """Return what a reload with ``changes`` over RUNNING does."""
    origins = {"web.port": "tenure.yaml:3", "workers.io.processes": "tenure.yaml:7", "workers": "tenure.yaml:5"}
    loaded = Loaded(Settings.model_validate(RUNNING | changes), origins, ())
    return compare(
        Settings.model_validate(RUNNING),
        loaded,
        has_other_schedules=has_other_schedules,
        fits=lambda pool, count: "" if count <= capacity else f"pool {pool} has {capacity} rows",
        runs_at_once_max=200,
    )


def pool(**changes: Any) -> dict[str, Any]:
    """Return the pools with ``changes`` to io."""
    return {"workers": POOLS | {"io": POOLS["io"] | changes}}


def test_every_setting_has_exactly_one_effect() -> None:
    """A new setting must say what a reload does about it, before anybody relies on it."""
    leaves = {
        ".".join(path)
        for path in settings_shape().paths()
        if settings_shape().at(path).kind is not ShapeKind.SECTION  # type: ignore[union-attr]
    }
    classified = {leaf for leaf in leaves if leaf in EFFECTS or leaf.partition(".")[0] in EFFECTS}

    assert leaves == classified
    assert not [leaf for leaf in leaves if leaf in EFFECTS and "." in leaf and leaf.partition(".")[0] in EFFECTS]
    assert set(POOL_EFFECTS) == {name.removesuffix("_s") for name in PoolSettings.model_fields}


def test_nothing_changed_is_nothing_to_do() -> None:
    """Most reloads are of a file that somebody else touched."""
    assert diff({}) == ConfigDifference()


@table(
    ("changes", "path"),
    [
        ({"cluster": "other"}, "cluster"),
        ({"data_dir": "/elsewhere"}, "data_dir"),
        ({"redis": {"url": "redis://other"}}, "redis.url"),
        ({"election": {"priority": 3}}, "election.priority"),
        ({"web": {"host": "0.0.0.0"}}, "web.host"),
        ({"queues": {"history": 5}}, "queues.history"),
        ({"log": {"file": "a.log"}}, "log.file"),
        (pool(kind="sync"), "workers.io.kind"),
        ({"workers": {"io": POOLS["io"]}}, "workers.cpu"),
        ({"workers": POOLS | {"new": {"kind": "sync"}}}, "workers.new"),
    ],
)
def test_what_cannot_change_in_a_running_tree_is_refused_by_name(changes: dict[str, Any], path: str) -> None:
    """Silence would leave somebody to believe that it had been applied."""
    (problem,) = diff(changes).problems

    assert problem.path == path
    assert problem.remedy == "restart this replica; others go on meanwhile"


def test_a_problem_names_the_line_and_shows_no_value() -> None:
    """Where to look; a value could be a password."""
    (problem,) = diff({"web": {"port": 4711}}).problems

    assert str(problem).startswith("tenure.yaml:3: web.port: cannot change while the tree runs; restart")
    assert "4711" not in str(problem)


def test_all_problems_come_at_once() -> None:
    """Somebody who changed ten things wants one answer."""
    found = diff({"cluster": "other", "web": {"port": 1}} | pool(processes=9))

    assert [problem.path for problem in found.problems] == ["cluster", "web.port", "workers.io.processes"]
    assert found.problems[2].message == "pool io has 5 rows"


def test_a_count_scales_and_other_pool_settings_roll_that_pool_alone() -> None:
    """Workers that need not change keep their warm caches."""
    found = diff(pool(processes=4, queues=["a"], recycle_age="1h"))

    assert found.processes == {"io": 4}
    assert found.rolled == {"io"}
    assert found.changed == ["workers.io.processes", "workers.io.queues", "workers.io.recycle_age"]
    assert diff(pool(processes=4)).rolled == set()


@pytest.mark.parametrize("changes", [{"jobs": ["jobs.shell"]}, {"supervision": {"hang_timeout": "20s"}}])
def test_what_every_worker_knows_rolls_every_pool(changes: dict[str, Any]) -> None:
    """They import the jobs, and keep their waits below the hang limit."""
    assert diff(changes).rolled == {"io", "cpu"}


@pytest.mark.parametrize(
    ("changes", "effect"),
    [
        ({"log": {"level": "debug"}}, Effect.LOG),
        ({"scheduler": {"catchup_rate": 7}}, Effect.SCHEDULER),
        ({"supervision": {"grace": "5s"}}, Effect.PARENT),
        ({"calendars": {"de": {"dates": ["2030-12-25"]}}}, Effect.WEB),  # which applies schedules that name it
    ],
)
def test_the_rest_follows_without_touching_a_worker(changes: dict[str, Any], effect: Effect) -> None:
    """No run is disturbed by a log level."""
    found = diff(changes)

    assert found.effects == {effect}
    assert (found.rolled, found.processes, found.problems) == (set(), {}, [])


def test_schedules_count_as_completed_not_as_written() -> None:
    """A job's new default changes its schedules; another order of keys in the file does not."""
    assert diff({"schedules": {"a": {"job": "j", "every": "1s"}}}).changed == []
    assert diff({}, has_other_schedules=True).effects == {Effect.SCHEDULES}


def test_a_flood_of_changes_is_cut() -> None:
    """It goes into one line of the log."""
    assert named([str(i) for i in range(25)])[-1] == "and 5 more"
    assert named(["a"]) == ["a"]
