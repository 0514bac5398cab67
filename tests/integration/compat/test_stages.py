"""Task messages executed stage by stage, with the code of a service."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import SecretStr

from supervisor.clock import SystemClock
from supervisor.compat.cloudforet import jobs, place
from supervisor.compat.cloudforet.stages import StageFailedError, execute
from supervisor.roles.worker.context import Context
from supervisor.roles.worker.stepping import Steps
from supervisor.settings.cloudforet_settings import CloudforetSettings
from supervisor.store.steps import Step
from tests.canary import CANARY

SERVICE = """
from supervisor.compat.cloudforet import BaseService, queue

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
    place.configure(CloudforetSettings(packages=("old_stages",), token=SecretStr(CANARY)))
    assert jobs.__name__
    module = import_module("old_stages.service")
    module.done.clear()
    module.broken.clear()
    yield module
    place.configure(CloudforetSettings())


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


class Memory:
    """What is remembered of a run's steps from one attempt to the next, in place of Redis."""

    def __init__(self) -> None:
        self.steps: dict[str, Step] = {}

    def read(self) -> Any:
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
    with place.running(first), pytest.raises(StageFailedError):
        execute(message, first)
    assert work.done == ["one", "put", "undo two"]
    del memory.steps["3:Work.two"]  # failed: it is tried again

    work.broken.clear()
    with place.running(second):
        execute(message, second)
    assert work.done == ["one", "put", "undo two", "put", "two", "three"]
    assert second.children is not None
    (child,) = second.children.envelopes
    assert (child.template.job, child.template.queue) == ("cloudforet.stp", "other_q")
