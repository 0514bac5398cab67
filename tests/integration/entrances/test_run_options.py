"""One precedence for the options of a run, by whatever entrance it comes."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import tenure
from supervisor.clock import SystemClock
from supervisor.core.jobs.registry import job, registry
from supervisor.roles.agent import maintenance
from supervisor.roles.worker.attempt.invocation import spawn
from supervisor.roles.worker.attempt.run_output import Children
from supervisor.settings.sections.pipeline import ProfileSettings
from supervisor.store.producer.options import ChildOptions
from supervisor.store.queues.bridges import Bridges
from tenure import Context
from tests.integration.cli.conftest import Result
from tests.integration.entrances.conftest import MODULE, Stage
from tests.integration.entrances.option_table import OPTIONS, Case, Seen, call_options, cases
from tests.integration.roles.web.api_client import ask
from tests.integration.roles.web.conftest import Tree

pytestmark = [pytest.mark.server]

RUNS = list(cases(of_schedules=False))


def test_the_table_has_every_option() -> None:
    """Of ``@job``, of a profile and of a call, but for those that name, time or wrap a run."""
    written = " ".join(option.job for option in OPTIONS.values())
    of_job = set(inspect.signature(job).parameters) - {"name", "without", "profile"}
    of_profile = {field.removesuffix("_s") for field in ProfileSettings.model_fields} - {"hooks"}
    of_call = set(ChildOptions.__annotations__) - {"traceparent"}

    assert {name for name in of_job if f"{name}=" not in written} == set()
    assert {name for name, option in OPTIONS.items() if option.profile} == of_profile
    assert {name for name, option in OPTIONS.items() if "call" in option.values} == of_call


def function_of(case: Case) -> Any:
    """Return the function of the job."""
    return getattr(importlib.import_module(MODULE), case.job.replace("-", "_"))


def by_function(case: Case) -> None:
    tenure.enqueue(function_of(case), run_id=case.name, **call_options(case))


def by_name(case: Case) -> None:
    tenure.enqueue(case.job, run_id=case.name, **call_options(case))


def by_job_call(case: Case) -> None:
    function_of(case).options(run_id=case.name, **call_options(case)).enqueue()


def in_bulk(case: Case) -> None:
    tenure.enqueue_many(case.job, [{}], run_id=lambda _: case.name, **call_options(case))


def from_a_loop(case: Case) -> None:
    asyncio.run(tenure.enqueue_async(case.job, run_id=case.name, **call_options(case)))


def from_a_job(case: Case) -> None:
    Context(run_id="r", job="j", producer=tenure.connect()).enqueue(case.job, run_id=case.name, **call_options(case))


@pytest.mark.parametrize("entrance", [by_function, by_name, by_job_call, in_bulk, from_a_loop, from_a_job])
def test_a_program_that_names_the_configuration(stage: Stage, entrance: Callable[[Case], None]) -> None:
    """It imports the jobs; nobody but ``connect`` tells it the profiles."""
    stage.import_jobs()
    registry.use({})
    tenure.connect(config=stage.file)
    for case in RUNS:
        entrance(case)
    stage.judge(stage.runs(), RUNS)
    assert {run_id: is_in_time(run) for run_id, run in stage.runs().items() if not is_in_time(run)} == {}


def is_in_time(run: Seen) -> bool:
    """Return whether the moment by which a run must begin follows from its option."""
    assert run.envelope is not None
    deadline_s = run.template.start_deadline_s
    late_ms = None if deadline_s is None else run.envelope.enqueued_ms + round(1000 * deadline_s)
    return run.envelope.not_after_ms == late_ms


@pytest.mark.parametrize("entrance", [by_name, in_bulk, from_a_loop])
def test_a_program_that_knows_jobs_as_they_are_published(stage: Stage, entrance: Callable[[Case], None]) -> None:
    """Under the profiles of the replicas that run them."""
    stage.publish_jobs()
    tenure.connect(config=stage.file)
    for case in RUNS:
        entrance(case)
    stage.judge(stage.runs(), RUNS)


@pytest.mark.parametrize("is_imported", [True, False])
def test_the_command(stage: Stage, invoke: Callable[..., Result], *, is_imported: bool) -> None:
    """With the modules, and without them."""
    if is_imported:
        stage.write_module()
        stage.write_configuration()
    else:
        stage.publish_jobs()
    for case in RUNS:
        given = [word for name, value in call_options(case).items() for word in (f"--{name}", value)]
        assert invoke("enqueue", case.job, "--id", case.name, "--force", *given).code == 0
    stage.judge(stage.runs(), RUNS)


@pytest.mark.parametrize("is_imported", [True, False])
def test_the_api(stage: Stage, api: Callable[[], Tree], *, is_imported: bool) -> None:
    """Of a replica that has the modules, and of one that has not."""
    if is_imported:
        stage.import_jobs()
    else:
        stage.publish_jobs()
    web = api()
    for case in RUNS:
        body = {"run_id": case.name, "force": True, **call_options(case)}
        assert ask(web, "POST", f"/api/v1/jobs/{case.job}/runs", "owner", body)[0] == 201
    stage.judge(stage.runs(), RUNS)


@pytest.mark.parametrize("way", ["spawn", "then", "planner"])
def test_a_job_that_has_children(stage: Stage, way: str) -> None:
    """By ``spawn``, by ``then``, and by what a planner yields."""
    stage.import_jobs()
    found: dict[str, Seen] = {}
    for case in RUNS:
        children = Children("r", registry=registry, wall_ms=SystemClock().wall_ms)
        context = Context(run_id="r", job="j", children=children)
        if way == "planner":
            spawn((case.job, {}, call_options(case)), context)
        else:
            getattr(context, way)(case.job, **call_options(case))
        (envelope,) = children.envelopes or children.following
        found[case.name] = Seen(envelope.template, envelope)
    stage.judge(found, RUNS)
    if way != "then":  # which the script lets start, that reads no envelope
        assert all(map(is_in_time, found.values()))


@pytest.mark.parametrize("is_reloaded", [True, False])
def test_a_message_of_a_bridge(stage: Stage, monkeypatch: pytest.MonkeyPatch, *, is_reloaded: bool) -> None:
    """Of an agent that started with these profiles, and of one that had none before a reload."""
    stage.import_jobs()
    cards = registry.cards()
    if is_reloaded:
        registry.use({})
    here = [case for case in RUNS if "call" not in case.places and case.option != "limits"]
    found: dict[str, Seen] = {}
    for case in here:
        for constant in ("RUN_JOB", "REFUSED_JOB"):
            monkeypatch.setattr(maintenance, constant, case.job)
        duty = maintenance.Ingest(
            call=stage.world.run, bridges=Bridges(stage.world.keys), channels={case.name: "list"}, registry=registry,
            clock=SystemClock(), report=lambda _event, **_fields: None,
        )  # fmt: skip
        if is_reloaded:
            duty.follow(cards)
        stage.world.raw.rpush("list", "{}")
        duty.run(0)
        found[case.name] = stage.runs()[f"stp:{case.name}:1"]
    stage.judge(found, here, but=frozenset({"queue"}))
    assert all(map(is_in_time, found.values()))


def test_a_dead_run_that_is_requeued_is_as_it_was(stage: Stage, invoke: Callable[..., Result]) -> None:
    """Requeueing gives it attempts, and changes no option of it."""
    stage.import_jobs()
    tenure.connect(config=stage.file)
    list(map(by_name, RUNS))
    before = stage.runs()
    for run_id, run in before.items():
        keys, template = stage.world.keys.queue(run.template.queue), run.template
        stage.world.raw.lrem(keys.ready(template.kind, template.priority), 0, run_id)
        stage.world.raw.zadd(keys.dead, {run_id: 1})
    assert invoke("dead", "requeue", "--all", "--yes").code == 0
    assert stage.runs() == before
