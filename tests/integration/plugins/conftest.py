"""Plugins of one worker process, a server, and schedules that run them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.plugins import jobs, program
from supervisor.plugins import registry as plugins
from supervisor.plugins.host import PluginHost
from supervisor.plugins.registry import PluginRegistry
from supervisor.roles.worker.attempt.context import Context
from supervisor.settings.sections.models import RedisSettings
from supervisor.settings.sections.plugins import PluginSettings
from supervisor.store.plugins import PluginRecord, Plugins
from supervisor.store.producer import connection, producer
from supervisor.store.schedules.definitions import Change, Definitions
from supervisor.store.schedules.reads import Pause, Views
from tests.kit.builders import schedule
from tests.kit.canary import CANARY
from tests.kit.clock import ShiftedClock
from tests.kit.servers import Server
from tests.kit.waiting import wait_until

DATA = Path(__file__).resolve().parents[2] / "data/plugins"
FAULTY = DATA / "faulty.py"


class PluginCalls:
    """A worker's plugins, called as its jobs do."""

    def __init__(self, server: Server, registry: PluginRegistry) -> None:
        self.server = server
        self.store = server.store()
        self.registry = registry
        self.clock = ShiftedClock()
        self.told: list[tuple[str, str]] = []
        self.host = PluginHost(registry, self.clock, tell=lambda reason, note="", **_: self.told.append((reason, note)))
        self.producer = producer.Producer(
            RedisSettings(), cluster=server.keys.cluster, open_store=server.store, open_async_store=server.async_store
        )
        self._settings: dict[str, PluginSettings] = {}
        self.references: dict[tuple[str | int, ...], str] = {}

    def configure(self, name: str, **settings: Any) -> None:
        """Add a plugin to the configuration."""
        self._settings[name] = PluginSettings.model_validate(settings)
        self.registry.configure(self._settings, self.references)

    def faulty(self, fault: str, name: str = "faulty", **settings: Any) -> None:
        """Add a program that does one thing wrong."""
        command = (sys.executable, str(FAULTY), fault, *settings.pop("more", ()))
        self.configure(name, **{"command": command, "stop_timeout_s": 0.2, "secrets": {"key": CANARY}} | settings)

    def schedule(self, name: str, plugin: str, job: str = "plugin.run", **args: Any) -> None:
        """Store a schedule that runs a plugin."""
        template = Template(job=job, kind=Kind.SYNC, args={"plugin": plugin, **args})
        definition: ScheduleDef = schedule(name, template=template)
        self.store.run(Definitions(self.server.keys).upsert([Change(definition=definition)], wall_ms=1))

    def context(self, *, schedule: str | None = None, remaining_s: float | None = None) -> Context:
        """Return the context of a run."""
        deadline_ns = None if remaining_s is None else self.clock.elapsed_ns() + round(remaining_s * 1e9)
        return Context(
            run_id="a-run",
            job="plugin.run",
            schedule=schedule,
            clock=self.clock,
            producer=self.producer,
            deadline_ns=deadline_ns,
        )

    def run(self, plugin: str, *, schedule: str | None = None, **args: Any) -> Any:
        """Execute ``plugin.run``."""
        return jobs.run(self.context(schedule=schedule), self.host, plugin=plugin, **args)

    def pause(self, name: str) -> Pause | None:
        """Return what holds a schedule."""
        record = self.store.run(Views(self.server.keys).inspect([name]))[0].record
        assert record is not None
        return record.pause

    def record(self, plugin: str) -> PluginRecord:
        """Return what the cluster knows of a plugin that is used with one set of options."""
        (found,) = (each for each in self.store.run(Plugins(self.server.keys).read()) if each.plugin == plugin)
        return found

    def reasons(self) -> list[str]:
        """Return what was told of the host, in order."""
        return [reason for reason, _ in self.told]


@pytest.fixture
def desk(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginCalls]:
    """A worker's plugins and a server; no process of a plugin may be left when the host has closed."""
    registry = PluginRegistry()
    for module in (plugins, jobs):
        monkeypatch.setattr(module, "registry", registry)
    monkeypatch.setattr(program, "ENDING_S", 20.0)  # a guard on a busy machine may say nothing for the usual 1 s
    before = family()
    found = PluginCalls(server, registry)
    connection.use(found.producer)
    yield found
    found.host.close()
    connection.use(None)
    wait_until(lambda: family() <= before, "the processes of plugins, which were killed, to be gone")


def family() -> set[int]:
    """Return every process below this one that is alive."""
    found: set[int] = set()
    for each in psutil.Process(os.getpid()).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it ended since it was listed
            if each.status() != psutil.STATUS_ZOMBIE:
                found.add(each.pid)
    return found


Configure = Callable[..., None]
