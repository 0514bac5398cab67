"""Schedules that code declares: they fire as a configuration's do, also while two versions of the code run."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.errors import ConfigError
from supervisor.core.jobs.registry import registry
from supervisor.core.schedules import declared
from supervisor.testing.definitions import definitions_of

CODE = """
from tenure import job, schedule

ran = []

@schedule(every="{every}", overlap="allow", args={{"what": "{every}"}})
@job("declared.tick")
def tick(what: str) -> None:
    ran.append(what)
"""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Write a version of the job module, and import it as a process of its own would."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("_jobs", "_by_function"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    monkeypatch.setattr(registry, "_policies", registry._policies)

    def write(code: str) -> Any:
        sys.modules.pop("tdeclaring", None)
        monkeypatch.setattr(declared.schedules, "_by_function", {})
        (tmp_path / "tdeclaring.py").write_text(code)
        importlib.invalidate_caches()
        return importlib.import_module("tdeclaring")

    yield write
    sys.modules.pop("tdeclaring", None)


def test_a_declared_schedule_fires_in_a_test_that_lists_its_module(
    tenure_cluster: Any, written: Callable[[str], Any]
) -> None:
    """The application's own code, without a copy of its schedules in the test; the test's own replace them."""
    module = written(CODE.format(every="10s"))
    cluster = tenure_cluster(replicas=1, jobs=["tdeclaring"])

    cluster.advance("25s")
    cluster.run_pending()

    assert [fired.nominal.second for fired in cluster.fired("declared.tick")] == [10, 20]
    assert set(module.ran) == {"10s"}


def test_a_schedule_of_the_test_replaces_the_declared_one(tenure_cluster: Any, written: Callable[[str], Any]) -> None:
    """As the configuration does."""
    written(CODE.format(every="10s"))
    entry = {"job": "declared.tick", "every": "15s", "overlap": "allow", "args": {"what": "test"}}
    cluster = tenure_cluster(replicas=1, jobs=["tdeclaring"], schedules={"declared.tick": entry})

    cluster.advance("31s")

    assert [fired.nominal.second for fired in cluster.fired()] == [15, 30]


def test_a_module_that_cannot_be_used_is_told(written: Callable[[str], Any]) -> None:
    """In the words of the configuration."""
    written(CODE.format(every="soon"))

    with pytest.raises(
        ConfigError, match=r"tdeclaring\.py:6: schedules\[\"declared\.tick\"\]\.every: is not a duration"
    ):
        definitions_of({}, jobs=["tdeclaring"])


def test_the_newest_code_that_a_live_replica_has_decides(tenure_cluster: Any, written: Callable[[str], Any]) -> None:
    """A rolling update and its roll-back: an old replica that leads neither restores nor removes a schedule."""
    written(CODE.format(every="10s"))
    cluster = tenure_cluster(replicas=2, jobs=["tdeclaring"])
    old = cluster._replicas["r2"].definitions
    cluster.advance("12s")
    written(CODE.format(every="30s"))
    new = definitions_of({}, jobs=["tdeclaring"])
    cluster._replicas["r1"].definitions = new
    cluster.restart("r1")
    cluster.advance("30s")
    if cluster.leader != "r1":
        cluster.resign(to="r1")
    cluster.advance("30s")
    cluster.resign(to="r2")
    assert cluster.leader == "r2", "the leader has the old code"

    begin = cluster.now
    cluster.advance("2m")
    assert {fired.nominal.second % 30 for fired in cluster.fired() if fired.nominal > begin} == {0}

    cluster._replicas["r1"].definitions = old
    cluster.restart("r1")
    cluster.advance("30s")
    begin = cluster.now
    cluster.advance("1m")
    assert {fired.nominal.second for fired in cluster.fired() if fired.nominal > begin} == {0, 10, 20, 30, 40, 50}


def test_a_schedule_that_the_new_code_lacks_is_removed(tenure_cluster: Any, written: Callable[[str], Any]) -> None:
    """Deleted beside its job, it is deleted in the cluster."""
    other = '@schedule(every="20s", overlap="allow", name="other", args={"what": "other"})\n@job'
    written(CODE.format(every="10s").replace("@job", other))
    cluster = tenure_cluster(replicas=1, jobs=["tdeclaring"])
    cluster.advance("21s")
    assert {fired.schedule for fired in cluster.fired()} == {"declared.tick", "other"}
    written(CODE.format(every="10s"))
    cluster._replicas["r1"].definitions = definitions_of({}, jobs=["tdeclaring"])
    cluster.restart("r1")
    cluster.advance("30s")
    begin = cluster.now
    cluster.advance("1m")

    assert {fired.schedule for fired in cluster.fired() if fired.nominal > begin} == {"declared.tick"}
