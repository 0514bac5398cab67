"""``tenure schedule`` as a user types it, in this process, against a real server on which the test plays the leader."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from supervisor.cli.main import main
from supervisor.core.jobs.job_spec import JobCard
from supervisor.core.jobs.registry import registry
from supervisor.core.model import Kind, Template
from supervisor.roles.scheduler.backfill import Backfills
from supervisor.store.schedules.backfills import BackfillCalls, BackfillState
from supervisor.store.schedules.reads import Inspection, Views
from tests.kit.builders import StoreCalls
from tests.kit.isolation import forget_jobs_of_tests
from tests.kit.servers import RealServer, Server
from tests.kit.stepper import Stepper, term_of

HOUR_MS = 3_600_000
START_MS = 1_793_491_200_000  # 2026-11-01T00:00Z
YAML = """\
nightly:
  job: mail.send
  cron: "30 2 * * *"
  timezone: Europe/Berlin
  args: {to: kim, day: "{{ date }}"}
  labels: {team: mail}
  description: Mail of the night
hourly: {job: report.make, every: 1h, labels: {team: reports}}
reports/daily: {job: report.make, every: 1d, jitter: 1h, labels: {team: reports}}
"""


class Result(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


class ClusterWithJobs:
    """A cluster in which two jobs are published, and the command beside it."""

    def __init__(self, world: StoreCalls, directory: Path, invoke: Callable[..., Result]) -> None:
        self.world = world
        self.directory = directory
        self._invoke = invoke
        cards = {
            "mail.send": JobCard(
                template=Template(job="mail.send", kind=Kind.ASYNC), required=["to"], optional=["day"]
            ),
            "report.make": JobCard(template=Template(job="report.make", kind=Kind.SYNC, queue="reports")),
        }
        published = {name: msgspec.json.encode(card).decode() for name, card in cards.items()}
        world.run(world.sessions.publish_jobs(published))

    def tenure(self, *arguments: str, stdin: str = "") -> Result:
        return self._invoke("schedule", *arguments, stdin=stdin)

    def write(self, name: str, text: str) -> str:
        (self.directory / name).write_text(text)
        return name

    def show(self, name: str) -> Inspection:
        return self.world.run(Views(self.world.keys).inspect([name]))[0]

    def decided(self, name: str, *, mark_ms: int, state: str = "") -> None:
        """Stand in for the leader: it decided until ``mark_ms``, and planned the schedule for later."""
        keys, raw = self.world.keys, self.world.raw
        raw.hset(keys.schedule_mark, name, mark_ms)
        raw.zadd(keys.schedule_next, {name: 4_000_000_000_000})
        if state:
            raw.hset(keys.schedule_state, name, state)

    def serve_backfills(self) -> None:
        """Do as the leader does until no backfill is under way."""
        stepper, calls = Stepper(self.world), BackfillCalls(self.world.keys)
        term = term_of(self.world.lead())
        role = Backfills(self.world.keys, clock=stepper, report=stepper.report)

        def is_idle() -> bool:
            return all(each.state is not BackfillState.ACTIVE for each in self.world.run(calls.all()))

        stepper.until(is_idle, role, term)


@pytest.fixture
def invoke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Result]]:
    """Run the command here; it ends as a process would, by SystemExit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("supervisor.cli.main._leave", sys.exit)  # threads of other tests are no reason to end all

    def run(*arguments: str, stdin: str = "") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Result(ended.value.code, out, err)

    known, policies = frozenset(registry._jobs), registry.policies
    yield run
    forget_jobs_of_tests(known)
    registry.use(policies)  # a command that imports jobs sets its own


@pytest.fixture
def desk(real_server: RealServer, tmp_path: Path, invoke: Callable[..., Result]) -> Iterator[ClusterWithJobs]:
    """An empty cluster."""
    server = Server(real_server)
    world = StoreCalls(server)
    world.raw.flushall()
    redis = f'{{url: "{real_server.url}", connect_timeout: 20s, command_timeout: 20s}}'  # long, for a busy machine
    config = f"version: 1\ncluster: {server.keys.cluster}\nredis: {redis}\n"
    (tmp_path / "tenure.yaml").write_text(config)
    yield ClusterWithJobs(world, tmp_path, invoke)
    world.raw.close()
    server.close()


@pytest.fixture
def applied(desk: ClusterWithJobs) -> ClusterWithJobs:
    """A cluster with three schedules."""
    assert desk.tenure("apply", "-f", desk.write("s.yaml", YAML)).code == 0
    return desk


def queued(desk: ClusterWithJobs) -> list[str]:
    return sorted(each.decode() for each in desk.world.raw.hkeys(desk.world.keys.queue("reports").data))
