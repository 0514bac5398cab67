"""The jobs of plugins in a real sync worker: how its timeouts and its stop end a call."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.jobs.registry import registry
from supervisor.core.model import Envelope, Kind
from supervisor.core.retry import Retry
from supervisor.plugins import jobs
from supervisor.plugins import registry as plugins
from supervisor.settings.sections.plugins import PluginSettings
from tests.integration.plugins.conftest import DATA, FAULTY, family
from tests.integration.roles.worker.forked import fork, kill_what_is_left
from tests.integration.roles.worker.worker_fixture import WorkerKit
from tests.kit.waiting import wait_until

NOTES = """
import json, os, sys
for text in sys.stdin:
    asked = json.loads(text)
    result = {"protocol": 1, "version": "1"} if asked["method"] == "hello" else None
    if asked["method"] == "run":
        open(sys.argv[1], "a").write("begun\\n")
        sys.stdin.read()  # until the host goes
    print(json.dumps({"id": asked["id"], "result": result}), flush=True)
"""


@pytest.fixture
def shop(server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A sync pool's workshop with two plugins: one that hangs and ignores SIGTERM, one that works."""
    assert jobs.run.__module__ == "supervisor.plugins.jobs"
    known = plugins.PluginRegistry()
    hanging = (sys.executable, str(FAULTY), "deaf")
    known.configure(
        {
            "deaf": PluginSettings(command=hanging, stop_timeout_s=0.1),
            "words": PluginSettings(command=("sh", str(DATA / "words.sh")), secrets={"token": "t"}),  # type: ignore[dict-item]
            "notes": PluginSettings(command=(sys.executable, "-c", NOTES, str(tmp_path / "notes"))),
        },
        {},
    )
    for module in (plugins, jobs):
        monkeypatch.setattr(module, "registry", known)
    before = family()
    yield WorkerKit(server, registry, Kind.SYNC)
    kill_what_is_left()
    wait_until(lambda: family() == before, what="every process of a plugin to be gone")


def put(shop: WorkerKit, run_id: str, plugin: str, task: dict[str, Any] | None = None, **template: Any) -> str:
    """Enqueue a run of a plugin."""
    base = registry.get("plugin.run").template({"plugin": plugin, "task": task or {}}, **template)
    return shop.put(Envelope(id=run_id, template=base))


def test_a_run_past_its_soft_timeout_ends_its_plugin_and_no_other(shop: WorkerKit) -> None:
    """The program that ignores SIGTERM is killed with its children; the worker takes the next run."""
    put(shop, "hangs", "deaf", soft_timeout_s=0.5, retry=Retry(attempts=1))
    put(shop, "works", "words", {"words": "a b"})
    found = fork(shop, ended=2).report()

    assert sorted(found.history) == [("hangs", "dead", 1), ("works", "ok", 1)]
    assert found.errors["hangs"]["type"] == "SoftTimeout"
    assert found.results["works"]["results"] == 2
    assert found.fsck == []


def test_a_worker_that_must_go_now_gives_the_run_back_and_ends_the_plugin(shop: WorkerKit, tmp_path: Path) -> None:
    """Uncharged: the run was not at fault, and runs again elsewhere."""
    put(shop, "interrupted", "notes")
    worker = fork(shop)
    wait_until((tmp_path / "notes").exists, what="the plugin to have begun")
    shop.ask_to_go()
    worker.signal(signal.SIGQUIT)
    found = worker.report()

    assert found.states == {"interrupted": "queued"}
    assert found.history == [("interrupted", "interrupted", 1)]
