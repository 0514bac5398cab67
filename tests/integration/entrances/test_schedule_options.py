"""One precedence for the options of scheduled runs, by whatever entrance the schedule comes, and however it is run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from supervisor.app.jobs import prepare_jobs
from supervisor.core.effects import drive
from supervisor.core.jobs.registry import registry
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.manual_runs import BACKFILL, extra_run
from supervisor.operations.schedule_control import trigger
from supervisor.store.queues.runs import Queues
from supervisor.store.schedules.definitions import Change, Definitions
from supervisor.store.wire.envelope import unpack
from tests.integration.cli.conftest import Result
from tests.integration.entrances.conftest import Stage
from tests.integration.entrances.option_table import Seen, cases
from tests.integration.roles.web.api_client import ask
from tests.integration.roles.web.conftest import Tree

pytestmark = [pytest.mark.server]

SCHEDULES = list(cases(of_schedules=True))
PAGE = 100


def seen(definitions: Sequence[ScheduleDef]) -> dict[str, Seen]:
    """Return definitions by id."""
    return {each.id: Seen(each.template, definition=each) for each in definitions}


@pytest.mark.parametrize("is_declared", [True, False])
def test_of_the_configuration_and_of_the_code(stage: Stage, *, is_declared: bool) -> None:
    """By ``schedules:``, and by ``@schedule``."""
    stage.write_module(declares=is_declared)
    stage.write_configuration(schedules=not is_declared)
    stage.judge(seen(prepare_jobs(stage.load()).definitions), SCHEDULES)


JOBS = ["imported", "published", "published under others"]


@pytest.mark.parametrize("jobs", JOBS)
def test_applied_by_the_command(stage: Stage, invoke: Callable[..., Result], jobs: str) -> None:
    """By the configuration that it is given, whatever the replicas that published the jobs have."""
    if jobs == "imported":
        stage.write_module()
        stage.write_configuration()
    else:
        stage.publish_jobs(under_profiles=jobs == "published")
    (stage.directory / "s.json").write_text(json.dumps(stage.schedules))
    assert invoke("schedule", "apply", "-f", "s.json").code == 0
    stage.judge(stage.defined(), SCHEDULES)


@pytest.mark.parametrize("jobs", JOBS[1:])
def test_applied_by_the_api(stage: Stage, api: Callable[[], Tree], jobs: str) -> None:
    """By the configuration of the replica that is asked."""
    stage.publish_jobs(under_profiles=jobs == "published")
    web, names = api(), list(stage.schedules)
    for start in range(0, len(names), PAGE):
        page = {name: stage.schedules[name] for name in names[start : start + PAGE]}
        code, answer = ask(web, "POST", "/api/v1/schedules", "owner", {"schedules": page})
        assert (code, answer["created"]) == (200, len(page))
    stage.judge(stage.defined(), SCHEDULES)


def runs_of(found: dict[str, Any], definitions: Sequence[ScheduleDef]) -> dict[str, Seen]:
    """Return the run of each schedule, beside its definition, which has what concerns no single run."""
    by_id = {each.id: each for each in definitions}
    return {name: Seen(run.template, run, by_id[name]) for name, run in found.items()}


@pytest.mark.parametrize("way", ["trigger", "backfill"])
def test_run_beside_the_plan(stage: Stage, way: str) -> None:
    """By hand, and for the past."""
    stage.write_module()
    stage.write_configuration(schedules=True)
    definitions, world = prepare_jobs(stage.load()).definitions, stage.world
    if way == "backfill":
        given: Any = {"nominal_ms": 10_000, "cause": BACKFILL, "wall_ms": 1}
        stage.judge(
            runs_of({each.id: extra_run(each, run_id="r", **given) for each in definitions}, definitions), SCHEDULES
        )
        return
    for start in range(0, len(definitions), PAGE):
        page = [Change(definition=each) for each in definitions[start : start + PAGE]]
        world.run(Definitions(world.keys).upsert(page, wall_ms=1))
    for each in definitions:
        drive(trigger(world.keys, each.id, key="by-hand", wall_ms=1), world.run)
    runs = {each.envelope.schedule: each.envelope for each in stage.runs().values()}
    stage.judge(runs_of(runs, definitions), SCHEDULES)


def test_fired_in_a_simulated_cluster(stage: Stage, tenure_cluster: Any) -> None:
    """The scheduler's own runs, in the cluster that users test with; afterwards jobs are as they were."""
    stage.import_jobs()
    before = registry.policies
    registry.use({})
    profiles = stage.load().settings.model_dump(mode="json", by_alias=True)["profiles"]
    cluster = tenure_cluster(replicas=1, schedules=stage.schedules, profiles=profiles)
    cluster.advance("11s")
    server = cluster._world.server
    found = {}
    for queue in server.store.run(Queues(server.keys).names()):
        for data in server.store.raw.hgetall(server.keys.queue(queue).data).values():
            run = unpack(data)
            found[run.schedule] = run
    stage.judge(runs_of(found, server.definitions()), SCHEDULES)
    registry.use(before)
