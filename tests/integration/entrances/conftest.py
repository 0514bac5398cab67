"""A cluster whose configuration has every option in every place, and the command and the API beside it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from supervisor.app.jobs import prepare_jobs
from supervisor.core.jobs.registry import registry
from supervisor.core.schedules import declared
from supervisor.settings.loader import Loaded, load
from supervisor.store.producer import connection
from supervisor.store.wire.envelope import unpack
from tests.integration.cli.conftest import Result, invoke
from tests.integration.entrances.option_table import (
    OPTIONS,
    Case,
    Seen,
    cases,
    job_lines,
    profiles,
    schedule_fields,
)
from tests.integration.roles.web.api_client import line
from tests.integration.roles.web.conftest import Tree, tree
from tests.kit.builders import StoreCalls
from tests.kit.isolation import forget_jobs_of_tests
from tests.kit.servers import RealServer, Server

__all__ = ["invoke", "tree"]

MODULE = "tentrances"
CLUSTER = "c1"  # of the API's child


class Stage:
    """One cluster, its configuration, and what came to lie in Redis."""

    def __init__(self, world: StoreCalls, url: str, directory: Path, *, has_default: bool) -> None:
        self.world = world
        self.directory = directory
        self.has_default = has_default
        redis = f"{{url: '{url}', connect_timeout: 20s, command_timeout: 20s}}"  # long, for a busy machine
        self.base = f"version: 1\ncluster: {CLUSTER}\nredis: {redis}\nworkers: {{}}\n"
        self.profiles = profiles(has_default=has_default)
        self.file = directory / "tenure.yaml"
        self._known = frozenset(registry._jobs)

    @cached_property
    def schedules(self) -> dict[str, dict[str, Any]]:
        """Return the schedule of each case."""
        return {case.name: schedule_fields(case) for case in cases(of_schedules=True)}

    def write_module(self, *, declares: bool = False) -> None:
        """Write the module of the jobs, with their schedules if asked."""
        jobs = {case.job: case for case in cases(of_schedules=True)}
        lines = ["from tenure import Retry, job, schedule", ""]
        for job, case in jobs.items():
            for name, fields in self.schedules.items() if declares else ():
                if fields["job"] == job:
                    given = {key: value for key, value in fields.items() if key != "job"}
                    lines.append(f"@schedule(name={name!r}, **{given!r})")
            lines.append(job_lines(case))
        (self.directory / f"{MODULE}.py").write_text("\n".join(lines))
        importlib.invalidate_caches()

    def write_configuration(self, *, jobs: bool = True, schedules: bool = False) -> None:
        """Write the configuration, which lists the module and has the schedules if asked."""
        text = self.base + self.profiles + (f"jobs: [{MODULE}]\n" if jobs else "")
        self.file.write_text(text + (f"schedules: {json.dumps(self.schedules)}\n" if schedules else ""))

    def load(self) -> Loaded:
        """Read the configuration, as a replica does."""
        return load(files=[self.file], environ={}, flags={})

    def import_jobs(self) -> None:
        """Import the jobs as a replica or a program does, and have them follow the profiles."""
        self.write_module()
        self.write_configuration()
        prepare_jobs(self.load())

    def publish_jobs(self, *, under_profiles: bool = True) -> None:
        """Publish the jobs as replicas do, whose configuration has these profiles or none, and forget them here."""
        self.import_jobs()
        if not under_profiles:
            registry.use({})
        cards = {name: card for name, card in registry.cards().items() if name not in self._known}
        self.world.run(self.world.sessions.publish_jobs(cards))
        forget_jobs_of_tests(self._known)
        registry.use({})
        self.write_configuration(jobs=False)

    def runs(self) -> dict[str, Seen]:
        """Return the runs that lie in queues, by id."""
        found = {}
        for queue in self.world.run(self.world.queues.names()):
            for run_id, data in self.world.raw.hgetall(self.world.keys.queue(queue).data).items():
                envelope = unpack(data)
                found[run_id.decode()] = Seen(envelope.template, envelope)
        return found

    def defined(self) -> dict[str, Seen]:
        """Return the schedules that were applied, by id."""
        stored = self.world.stored().items()
        return {name: Seen(each.definition.template, definition=each.definition) for name, each in stored}

    def judge(self, found: dict[str, Seen], each: list[Case], *, but: frozenset[str] = frozenset()) -> None:
        """Fail unless each case has the value of the one precedence, but for options that an entrance decides itself."""
        asked = [case for case in each if case.option not in but]
        wrong = {}
        for case in asked:
            wanted, seen = case.expected(has_default=self.has_default), OPTIONS[case.option].seen(found[case.name])
            if seen != wanted:
                wrong[case.name] = f"{seen!r}, not {wanted!r}"
        assert asked
        assert wrong == {}


@pytest.fixture(params=[True, False], ids=["default", "built-in"])
def stage(
    request: pytest.FixtureRequest, real_server: RealServer, tmp_path: Path, invoke: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stage]:  # fmt: skip
    """An empty cluster, with a ``default`` that says all options, or with none."""
    del invoke  # it restores the registry, and the working directory
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(declared.schedules, "_by_function", {})
    monkeypatch.syspath_prepend(str(tmp_path))
    server = Server(real_server)
    server.keys = type(server.keys)(CLUSTER)
    world = StoreCalls(server)
    world.raw.flushall()
    yield Stage(world, real_server.url, tmp_path, has_default=request.param)
    connection.use(None)
    sys.modules.pop(MODULE, None)
    world.raw.close()
    server.close()


@pytest.fixture
def api(stage: Stage, tree: Tree, tmp_path: Path) -> Callable[[], Tree]:
    """Start a web child with the configuration, and the jobs that are imported by then."""

    def start() -> Tree:
        tokens = tmp_path / "tokens"
        tokens.write_text(line("owner", "admin"))
        settings = stage.load().settings
        tree.redis_url = settings.redis.url.get_secret_value()
        tree.settings = settings.model_copy(
            update={"web": settings.web.model_copy(update={"tokens_file": str(tokens)})}
        )
        tree.start()
        return tree

    return start
