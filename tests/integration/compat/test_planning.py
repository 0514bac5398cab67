"""Plans of scheduler classes, and ``queue.put`` and ``queue.get``."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from supervisor.compat.cloudforet import jobs, queue
from supervisor.compat.cloudforet.tasks import runtime
from supervisor.compat.cloudforet.tasks.names import NotImportableError
from supervisor.compat.cloudforet.tasks.planning import DIRECT_MAX, TASKS_MAX, PlanError, plan
from supervisor.compat.cloudforet.tasks.redaction import REFERENCE
from supervisor.compat.cloudforet.tasks.schema import TaskError
from supervisor.core.model import Envelope
from supervisor.roles.worker.attempt.context import Context
from supervisor.settings.sections.cloudforet import Bridge, CloudforetQueueSettings, CloudforetSettings
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.producer import connection as producers
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.runs import Queues
from tests.kit.canary import CANARY
from tests.kit.servers import Server

CLASSES = """
import sys

from supervisor.compat.cloudforet import HourlyScheduler, config

made = []


class Planned(HourlyScheduler):
    def create_task(self):
        return list(made)


class Broken(HourlyScheduler):
    def create_task(self):
        raise RuntimeError(f"cannot list domains with {config.get_global('TOKEN')}")


class Leaving(HourlyScheduler):
    def create_task(self):
        sys.exit(f"no domains for {config.get_global('TOKEN')}")


class Lonely(HourlyScheduler):
    def create_task(self):
        return {"stages": []}


class Endless(HourlyScheduler):
    def create_task(self):
        while True:
            yield {"stages": []}


class Due(HourlyScheduler):
    def create_task(self):
        return [{"stages": [], "name": f"hour {self.scheduled_at.hour}"}]


class NoScheduler:
    def __init__(self, queue):
        pass
"""
STAGE = {"locator": "SERVICE", "name": "A", "metadata": {"token": CANARY}, "method": "m", "params": {}}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What the scheduler makes."""
    assert jobs.__name__
    (tmp_path / "old_plans.py").write_text(CLASSES)
    monkeypatch.syspath_prepend(str(tmp_path))
    bridged = CloudforetQueueSettings(channel="theirs", bridge=Bridge.EMIT)
    runtime.configure(
        CloudforetSettings(
            packages=("old_plans", "old_gone"),
            token=SecretStr(CANARY),
            queues={"out_q": bridged},
        )
    )
    import old_plans  # type: ignore[import-not-found]  # noqa: PLC0415 - it is there from here on

    old_plans.made.clear()
    yield old_plans.made
    runtime.configure(CloudforetSettings())


def context() -> Context:
    """Return the context of a plan that was due at nine."""
    return Context(run_id="plan", job="cloudforet.plan", nominal_ms=9 * 3_600_000)


def children(of: Context) -> list[Envelope]:
    """Return what a run spawned."""
    return of.children.envelopes if of.children else []


def planned(name: str, to: str = "q") -> list[Envelope]:
    """Return what a class planned."""
    run = context()
    with runtime.running(run):
        plan(run, f"old_plans.{name}", to, {"interval": 1})
    return children(run)


def test_each_task_is_a_run_of_its_queue_and_the_token_a_reference(made: list[Any]) -> None:
    """All of them come into being with the end of the plan's run."""
    made += [{"stages": [STAGE], "name": "a", "executionEngine": "Other"}, {"stages": []}]
    first, second = planned("Planned")

    assert (first.template.job, first.template.queue, first.parent) == ("cloudforet.stp", "q", "plan")
    task = first.template.args["task"]
    assert task["stages"][0]["metadata"]["token"] == REFERENCE
    assert task["executionEngine"] == "Other"
    assert second.template.args == {"task": {"stages": []}}
    assert CANARY not in str([first, second])


def test_a_task_that_names_its_trace_is_a_run_of_it(made: list[Any]) -> None:
    """By ``traceparent`` in its metadata, as their services write it; else it is in the trace of the plan."""
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    made += [{"stages": [{**STAGE, "metadata": {"traceparent": trace}}]}, {"stages": []}]

    assert [each.traceparent for each in planned("Planned")] == [trace, ""]


def test_a_queue_with_their_workers_gets_its_tasks_by_way_of_a_run_that_pushes(made: list[Any]) -> None:
    """The push happens after the plan is acknowledged, on a worker of ours."""
    made += [{"stages": [STAGE]}]
    (pushing,) = planned("Planned", "out_q")
    assert (pushing.template.job, pushing.template.queue) == ("cloudforet.emit", "default")
    assert pushing.template.args["queue"] == "out_q"
    assert CANARY not in str(pushing)


def test_a_malformed_task_is_dead_with_its_reason_and_holds_up_no_other(made: list[Any]) -> None:
    """What is kept of it has no metadata."""
    made += [
        {"stages": []},
        {"stages": [{**STAGE, "locator": "X"}]},
        {"stages": [{1, 2}]},
        {"version": "v2", "stages": []},
    ]
    found = planned("Planned")

    refused = [each.template.args for each in found if each.template.job == "cloudforet.refused"]
    assert [each.template.job for each in found].count("cloudforet.stp") == 1
    assert "stages[0].locator must be one of SERVICE, MANAGER, got 'X'" in refused[0]["reason"]
    assert refused[0]["task"]["stages"][0]["metadata"] == "***"
    assert "it is no JSON" in refused[1]["reason"]
    assert "version must be one of v1" in refused[2]["reason"]
    assert CANARY not in str(found)
    with pytest.raises(TaskError, match="version must be"):
        jobs.refused(**refused[2])


@pytest.mark.parametrize(
    ("stage", "place"),
    [
        ({"metadata": {"authorization": f"Bearer {CANARY}"}}, "stages[0].metadata.authorization holds"),
        ({"params": {"params": {"all": [1, f"curl -H x:{CANARY}"]}}}, "stages[0].params.params.all[1] holds"),
        ({"params": {CANARY: 1}}, "a key of stages[0].params holds"),
        ({"locator": "X", "params": {"sys_key": CANARY, "note": f"x {CANARY}", CANARY: 1}}, "locator must be one of"),
    ],
)
def test_a_task_that_holds_the_token_elsewhere_is_refused_without_it(
    made: list[Any], produced: Producer, stage: dict[str, Any], place: str
) -> None:
    """Nobody would put it back there; the queue and the dead run, which people look at, are without it."""
    made.append(task := {"name": "t", "stages": [{**STAGE, **stage}]})
    (refused,) = planned("Planned")

    assert place in refused.template.args["reason"]
    assert refused.template.args["task"]["name"] == "t"
    assert CANARY not in str(refused)
    with pytest.raises(TaskError, match=re.escape(place)) as caught:
        queue.put_all("q", [{"stages": []}, task])
    assert CANARY not in str(caught.value)
    assert queue.get("q") is None


def test_a_plan_of_nothing_is_told_and_has_not_failed(made: list[Any]) -> None:
    """Most hours of a day nothing is due."""
    assert made == []
    run = context()
    assert plan(run, "old_plans.Planned", "q", {"interval": 1}) == {"tasks": 0, "skipped": "empty"}
    assert children(run) == []


def test_a_plan_that_fails_is_told_without_the_token(made: list[Any]) -> None:
    """It is tried again by the job's policy; its error and the cause of it are what people read."""
    assert made == []
    with pytest.raises(
        PlanError, match=r"Broken\.create_task failed: RuntimeError: cannot list domains with \*\*\*"
    ) as caught:
        plan(context(), "old_plans.Broken", "q", {"interval": 1})
    assert CANARY not in f"{caught.value.__cause__}"
    assert not caught.value.ends_run


def test_a_scheduler_that_leaves_the_process_has_failed_without_the_token(made: list[Any]) -> None:
    """``sys.exit`` in ``create_task`` is an error like any other, in the record as in the log."""
    assert made == []
    with pytest.raises(PlanError, match=r"Leaving\.create_task failed: SystemExit: no domains for \*\*\*") as caught:
        jobs.plan(context(), "old_plans.Leaving", "q", {"interval": 1})
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_one_task_that_is_no_list_is_told_as_such(made: list[Any]) -> None:
    """A mapping has keys to walk through, and none of them is a task."""
    assert made == []
    with pytest.raises(PlanError, match="it must return a list of tasks, and returned one dict"):
        planned("Lonely")


def test_tasks_that_cannot_become_runs_hold_up_no_other(made: list[Any]) -> None:
    """Too large, too deep, no JSON, in any number: the first hundred are kept with their reasons, all are counted."""
    deep: list[Any] = []
    for _ in range(450):
        deep = [deep]
    odd = [{**STAGE, "params": {"n": each}} for each in ("x" * 70_000, deep, "\ud800")]
    made += [{"stages": [{**STAGE, "locator": "X", "params": {"n": deep}}]}, *({"stages": [each]} for each in odd)]
    made += [{"stages": []}, *({"stages": 5} for _ in range(1500))]
    run = context()

    assert plan(run, "old_plans.Planned", "q", {"interval": 1})["refused"] >= 1502
    found = children(run)
    reasons = str([each.template.args for each in found if each.template.job == "cloudforet.refused"])
    assert "bytes, the limit is 61440; store the data elsewhere" in reasons
    assert "it is no JSON: UnicodeEncodeError" in reasons
    assert {"stages": []} in [each.template.args.get("task") for each in found]
    assert len(found) <= 110
    assert CANARY not in str(found)


def test_what_is_no_scheduler_is_not_tried_again(made: list[Any]) -> None:
    """The reason names the class."""
    assert made == []
    for name in ("old_plans.NoScheduler", "old_gone.Scheduler"):
        with pytest.raises(NotImportableError, match=name):
            plan(context(), name, "q", {})


def test_a_plan_knows_when_it_was_due(made: list[Any]) -> None:
    """However late it is made, so that a late plan plans for its own hour."""
    assert made == []
    (child,) = planned("Due")
    assert child.template.args["task"]["name"] == "hour 9"


def test_a_large_plan_goes_by_pages_and_an_endless_one_fails(made: list[Any]) -> None:
    """One acknowledgement carries a bounded number of children."""
    made += [{"stages": [STAGE], "name": str(number)} for number in range(DIRECT_MAX + 700)]
    pages = planned("Planned")
    assert {each.template.job for each in pages} == {"cloudforet.page"}
    assert CANARY not in str(pages)

    names: list[str] = []
    for number, page in enumerate(pages):
        run = Context(run_id=f"page-{number}", job="cloudforet.page")
        jobs.page(run, **page.template.args)
        names += [each.template.args["task"]["name"] for each in children(run)]
    assert names == [str(number) for number in range(DIRECT_MAX + 700)]
    with pytest.raises(PlanError, match=f"made over {TASKS_MAX} tasks"):
        planned("Endless")


@pytest.fixture
def produced(server: Server, made: list[Any]) -> Iterator[Producer]:
    """The producer of this process, on a server."""
    assert made == []
    producer = Producer(RedisSettings(), cluster=server.keys.cluster, open_store=server.store)
    producers.use(producer)
    yield producer
    producers.use(None)


def test_tasks_go_in_and_come_out_in_order(produced: Producer) -> None:
    """As ``queue.put`` and ``queue.get`` of Cloudforet: text or a mapping in, JSON out, the token in its place again."""
    queue.put("q", json.dumps({"stages": [STAGE], "name": "first"}))
    queue.put("q", {"stages": [], "name": "second"})
    held = produced.run(Queues(produced.keys).recent("q", 10))
    assert held == []

    first, second = queue.get("q"), queue.get("q")
    assert first is not None
    assert second is not None
    assert json.loads(first) == {"stages": [STAGE], "name": "first"}
    assert json.loads(second)["name"] == "second"
    assert queue.get("q") is None
    record = produced.run(Queues(produced.keys).recent("q", 10))
    assert [(each.outcome, each.note) for each in record] == [("ok", "taken by queue.get")] * 2
    assert produced.run(Queues(produced.keys).fsck("q")) == []


def test_a_malformed_task_is_refused_before_anything_is_queued(produced: Producer) -> None:
    """The producer hears of it, with the place, and none of a batch is in the queue."""
    with pytest.raises(TaskError, match="'stages' is required"):
        queue.put_all("q", [{"stages": []}, {}])
    with pytest.raises(TaskError, match="it is no JSON"):
        queue.put("q", "{")
    assert queue.get("q") is None


def test_a_scheduler_may_push_its_tasks_itself(produced: Producer, made: list[Any]) -> None:
    """``push_task``, as some services call it."""
    made += [{"stages": [], "name": "pushed"}]
    from old_plans import Planned  # noqa: PLC0415 - it is there since the fixture

    Planned("q", 1).push_task()
    taken = queue.get("q")
    assert taken is not None
    assert json.loads(taken)["name"] == "pushed"
    assert produced.keys


def test_a_run_pushes_to_no_list_but_that_of_a_queue_with_their_workers(produced: Producer, server: Server) -> None:
    """Its message has the token in it: a producer that enqueued one for a list of its own would read the token there."""
    assert produced
    raw = server.raw()
    task = {"stages": [{**STAGE, "metadata": {"token": dict(REFERENCE)}}]}
    lists = ("leak", "q", server.keys.queue("leak").prefix)
    for number, name in enumerate(lists):
        with pytest.raises(jobs.NoBridgeError, match="nothing was pushed") as caught:
            jobs.emit(Context(run_id=f"r{number}", job="cloudforet.emit"), task, queue=name)
        assert not getattr(caught.value, "ends_run", False)  # the next attempt may be on a replica that was updated
        assert raw.exists(name) == 0

    jobs.emit(Context(run_id="r", job="cloudforet.emit"), task, queue="out_q")

    assert json.loads(raw.lpop("theirs"))["stages"][0]["metadata"] == {"token": CANARY}


def test_a_task_with_a_reference_where_a_word_belongs_is_pushed_nowhere(produced: Producer, server: Server) -> None:
    """The problem of such a task quotes the word, and would show the token to all who may read errors."""
    assert produced
    with pytest.raises(TaskError, match="version must be one of v1, got an object") as caught:
        jobs.emit(Context(run_id="r", job="cloudforet.emit"), {"version": REFERENCE, "stages": []}, queue="out_q")
    assert CANARY not in str(caught.value)
    assert server.raw().exists("theirs") == 0
