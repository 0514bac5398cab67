"""Task messages executed stage by stage, with the code of a service."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import SecretStr

from supervisor.clock import SystemClock
from supervisor.compat.cloudforet import jobs
from supervisor.compat.cloudforet.tasks import runtime
from supervisor.compat.cloudforet.tasks.redaction import REFERENCE
from supervisor.compat.cloudforet.tasks.schema import TaskError
from supervisor.compat.cloudforet.tasks.stages import StageFailedError, execute
from supervisor.roles.worker.attempt.context import Context, Interrupted
from supervisor.roles.worker.attempt.steps import Steps
from supervisor.settings.sections.cloudforet import CloudforetSettings
from supervisor.store.queues.run_records import Step
from supervisor.telemetry.run_context import bind_run, current_run
from tests.integration.roles.worker.signalled import Subject, in_s, own_handlers
from tests.kit.canary import CANARY

SERVICE = """
import asyncio
import signal
import sys
from subprocess import Popen

from supervisor.compat.cloudforet import BaseService, Locator, queue

done = []
broken = set()


class Ugly(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Work(BaseService):
    def one(self, params):
        done.append("one")
        self.transaction.add_rollback(done.append, "undo one")
        return {"secret": self.metadata["token"], "echo": f"<{self.metadata['token']}>"}

    def two(self, params):
        self.transaction.add_rollback(done.append, "undo two")
        if "two" in broken:
            raise ValueError(f"two failed for {params} with {self.metadata}")
        done.append("two")

    def three(self, params):
        done.append("three")

    def large(self, params):
        return "x" * 5000

    def ugly(self, params):
        raise Ugly

    def odd(self, params):
        return object()

    def leave(self, params):
        done.append("leave")
        self.transaction.add_rollback(done.append, "undo leave")
        sys.exit(f"no use of {self.metadata['token']}" if params else 0)

    def serve(self, params):
        async def serving():
            asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGQUIT)
            await asyncio.sleep(20)

        asyncio.run(serving())

    def put(self, params):
        done.append("put")
        return queue.put("other_q", {"stages": []})
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of a service that can be told to fail."""
    package = tmp_path / "old_stages"
    (package / "service").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "service" / "__init__.py").write_text(SERVICE)
    monkeypatch.syspath_prepend(str(tmp_path))
    runtime.configure(CloudforetSettings(packages=("old_stages",), token=SecretStr(CANARY)))
    assert jobs.__name__
    module = import_module("old_stages.service")
    module.done.clear()
    module.broken.clear()
    yield module
    runtime.configure(CloudforetSettings())


def stage(method: str, **changes: Any) -> dict[str, Any]:
    """Return a stage of the service."""
    metadata = {"token": CANARY, "x_domain_id": "domain-1"}
    found = {"locator": "SERVICE", "name": "Work", "metadata": metadata, "method": method, "params": {"params": {}}}
    return {**found, **changes}


def task(*methods: str, **changes: Any) -> dict[str, Any]:
    """Return a task of these methods."""
    return {"name": "t", "stages": [stage(method) for method in methods], **changes}


def context() -> Context:
    """Return the context of a run, as a test of a job makes it."""
    return Context(run_id="r", job="cloudforet.stp")


def test_stages_run_in_order_with_a_record_of_each(work: Any) -> None:
    """Its result is kept without the token, and without what is too large or no JSON."""
    records = execute(task("one", "two", "large", "odd"), context())
    assert work.done == ["one", "two"]
    assert [(each.stage, each.status) for each in records] == [
        (f"Work.{name}", "done") for name in ("one", "two", "large", "odd")
    ]
    results = [each.result for each in records]
    assert results == [{"secret": "***", "echo": "<***>"}, None, "<str of 5002 bytes>", "<object>"]
    assert all(each.duration_s >= 0 for each in records)


def test_a_run_without_a_trace_follows_that_of_its_task(work: Any) -> None:
    """What came out of a list of theirs: the first stage that has one says it, and a malformed one is none."""
    good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    traced = {"token": CANARY, "traceparent": good}
    mixed = {"stages": [stage("three", metadata={"traceparent": "no"}), stage("three", metadata=traced)]}
    bare, of_a_trace = context(), context()
    of_a_trace.traceparent = other = good.replace("4bf9", "5bf9")

    with bind_run(run="r", job="cloudforet.stp"):
        execute(mixed, bare)
        assert (current_run() or {})["trace_id"] == good[3:35]
    execute(mixed, of_a_trace)

    assert (bare.traceparent, of_a_trace.traceparent) == (good, other)


def test_the_first_failure_stops_a_task_that_does_not_say_otherwise(work: Any) -> None:
    """The error names the stage and quotes no secret; what the failed stage did is taken back, what was done stays."""
    work.broken.add("two")
    run = context()
    with pytest.raises(StageFailedError) as caught:
        execute(task("one", "two", "three", "three"), run)

    assert work.done == ["one", "undo two"]
    text = str(caught.value)
    assert "task 't': stage 2 of 4 (Work.two) failed: ValueError: two failed for {} with" in text
    assert "2 not tried, because stop_on_failure is set" in text
    assert CANARY not in f"{text} {caught.value.__cause__!r} {run.last_progress}"
    assert not caught.value.ends_run


def test_an_error_that_cannot_be_printed_is_one_all_the_same(work: Any) -> None:
    """Services raise whatever they like."""
    assert work.done == []
    with pytest.raises(StageFailedError, match=r"\(Work\.ugly\) failed: Ugly: it cannot be printed"):
        execute(task("ugly"), context())


def test_a_task_may_go_on_after_a_failure_and_has_failed_all_the_same(work: Any) -> None:
    """stop_on_failure false: every stage is tried, and the run is tried again for those that failed."""
    work.broken.add("two")
    with pytest.raises(StageFailedError, match=r"stage 2 of 3 \(Work\.two\) failed"):
        execute(task("one", "two", "three", stop_on_failure=False), context())
    assert work.done == ["one", "undo two", "three"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "Nobody"}, "there is no service Nobody; looked in old_stages.service"),
        ({"method": "nothing"}, "Work has no method 'nothing'"),
        ({"method": "__init__"}, "'__init__' is no name of a class or method that a task may call"),
        ({"name": "queue.put"}, "'queue.put' is no name of a class or method that a task may call"),
        ({"locator": "MANAGER"}, "there is no manager Work; looked in old_stages.manager"),
    ],
)
def test_what_is_not_there_is_not_looked_for_again(work: Any, changes: dict[str, Any], reason: str) -> None:
    """No attempt finds what the installed service does not have."""
    assert work.done == []
    with pytest.raises(StageFailedError) as caught:
        execute({"stages": [{**stage("one"), **changes}]}, context())
    assert reason in str(caught.value)
    assert caught.value.ends_run


def test_leaving_the_process_is_an_error_of_its_stage_and_tells_no_secret(work: Any) -> None:
    """``sys.exit(text)`` of a script that became a service: the next stage is tried, and the token is not shown."""
    leaving = stage("leave", params={"params": ["now"]})
    with pytest.raises(StageFailedError, match=r"\(Work\.leave\) failed: SystemExit: no use of \*\*\*") as caught:
        execute({"stages": [leaving, stage("three")], "stop_on_failure": False}, context())
    assert work.done == ["leave", "undo leave", "three"]
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_stage_that_exits_with_nothing_to_say_is_done(work: Any) -> None:
    """As any job that calls ``sys.exit()``; the stages after it are executed."""
    records = execute(task("leave", "three"), context())
    assert [each.status for each in records] == ["done", "done"]
    assert work.done == ["leave", "three"]


def test_a_stage_whose_event_loop_is_cut_off_by_a_stop_is_not_done(work: Any) -> None:
    """The run is given back, and a later attempt calls the stage again."""
    arguments = {"task": task("serve", "three"), "context": context()}
    with own_handlers() as interrupts, pytest.raises(Interrupted):
        interrupts.job(execute, arguments, run=Subject(), soft_ns=in_s(600))  # type: ignore[arg-type]
    assert work.done == []


@pytest.mark.parametrize("name", ["Popen", "Locator", "BaseService", "queue", "sys"])
def test_a_task_calls_no_class_that_its_module_only_imported(work: Any, name: str) -> None:
    """Whoever writes to a list may call services, and not whatever those are made with."""
    assert work.done == []
    with pytest.raises(StageFailedError, match=f"{name} is no class of cloudforet.packages") as caught:
        execute({"stages": [stage("get_info", name=name)]}, context())
    assert caught.value.ends_run


def test_a_message_that_was_encoded_twice_is_refused_without_its_content(work: Any) -> None:
    """Its text is all of it, metadata included."""
    assert work.done == []
    with pytest.raises(TaskError, match="it must be an object, got a string") as caught:
        jobs.stp(context(), message=json.dumps(json.dumps(task("one"))))
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("place", ["version", "name", "executionEngine"])
def test_a_reference_in_the_place_of_a_word_does_not_show_the_token(work: Any, place: str) -> None:
    """Whoever may enqueue a run writes its task; errors of runs are for all who may read."""
    assert work.done == []
    with pytest.raises(TaskError, match=rf"{place} must be .*, got an object") as caught:
        jobs.stp(context(), task=task("one", **{place: REFERENCE}))
    assert CANARY[:8] not in str(caught.value)


@pytest.mark.parametrize("place", ["locator", "name", "method"])
def test_a_reference_in_a_stage_calls_nothing_and_does_not_show_the_token(work: Any, place: str) -> None:
    """A long token was cut before it was masked, in errors and in the names of steps."""
    runtime.configure(CloudforetSettings(token=SecretStr(f"{CANARY}{'x' * 200}"), packages=("old_stages",)))
    with pytest.raises(TaskError, match=rf"stages\[0\]\.{place} must be a string, got an object") as caught:
        jobs.stp(context(), task={"stages": [{**stage("one"), place: REFERENCE}]})
    assert CANARY not in str(caught.value)
    assert work.done == []


def test_what_is_kept_of_a_task_shows_no_secret_wherever_its_producer_put_it(work: Any) -> None:
    """In its name, and as a number."""
    found = jobs.stp(context(), message=json.dumps(task("one", "three", name=f"of {CANARY}", executionEngine=CANARY)))
    assert (found["name"], found["executionEngine"]) == ("of ***", "***")
    assert CANARY not in str(found)
    assert work.done == ["one", "three"]


class Memory:
    """What is remembered of a run's steps from one attempt to the next, in place of Redis."""

    def __init__(self) -> None:
        self.steps: dict[str, Step] = {}

    def read(self, *, ttl_ms: int) -> Any:
        return lambda: dict(self.steps)

    def write(self, name: str, data: bytes, *, ttl_ms: int) -> Any:
        assert ttl_ms > 0
        return lambda: len(self.steps | {name: self.steps.setdefault(name, msgspec.json.decode(data, type=Step))})

    def run(self, call: Any, *, timeout_s: float | None = None) -> Any:
        assert timeout_s is None
        return call()

    def attempt(self, number: int) -> Context:
        """Return the context of one attempt of the run."""
        steps: Any = Steps(attempt=number, clock=SystemClock(), calls=self, runner=self)  # type: ignore[arg-type]
        return Context(run_id="r", job="cloudforet.stp", attempt=number, fence=number, steps=steps)


def test_a_retry_calls_no_stage_again_but_those_whose_tasks_never_came_into_being(work: Any) -> None:
    """A stage that is done stays done; what a stage put into a queue is there once, with the attempt that ends well."""
    memory, message = Memory(), task("one", "put", "two", "three")
    first, second = memory.attempt(1), memory.attempt(2)
    work.broken.add("two")
    with runtime.running(first), pytest.raises(StageFailedError):
        execute(message, first)
    assert work.done == ["one", "put", "undo two"]
    del memory.steps["3:Work.two"]  # failed: it is tried again

    work.broken.clear()
    with runtime.running(second):
        execute(message, second)
    assert work.done == ["one", "put", "undo two", "put", "two", "three"]
    assert second.children is not None
    (child,) = second.children.envelopes
    assert (child.template.job, child.template.queue) == ("cloudforet.stp", "other_q")
