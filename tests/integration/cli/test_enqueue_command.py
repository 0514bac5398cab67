"""``tenure enqueue``: queues that nobody serves, and runs that it waits for, whose end ``runs show`` tells later."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Outcome
from supervisor.store.queues.control import QueueControl
from tests.integration.cli.conftest import ClusterWithJobs, Result
from tests.kit.builders import StoreCalls
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.server
S = "r.1/worker-io-0/1"
LONG = "60s"
Invoke = Callable[..., Result]
SEND = ("enqueue", "mail.send", "to=kim", "--id", "r1")


@pytest.fixture
def world(desk: ClusterWithJobs, monkeypatch: pytest.MonkeyPatch) -> StoreCalls:
    """A cluster with published jobs, without a worker."""
    monkeypatch.setattr("supervisor.app.jobs.registry", Registry())  # other tests may have imported jobs here
    return desk.world


def serve(world: StoreCalls, queues: str = "default") -> None:
    assert world.run(world.sessions.open(S, {"kind": "async", "queues": queues}))


@pytest.mark.parametrize("words", [SEND, ("job", "run", "mail.send", "--param", "to=kim", "--id", "r1")])
def test_a_named_queue_that_nobody_serves_is_refused_unless_it_is_forced(
    world: StoreCalls, invoke: Invoke, words: tuple[str, ...]
) -> None:
    """It is most likely a typing mistake, and a run in it would wait for ever."""
    serve(world, "mail")
    refused = invoke(*words, "--queue", "nowhere")
    assert (refused.code, refused.out) == (3, "")
    assert "no live worker takes runs from queue nowhere; correct the name" in refused.err
    assert "--force" in refused.err
    assert world.run(world.queues.names()) == []
    forced = invoke(*words, "--queue", "nowhere", "--force")
    assert (forced.code, forced.out) == (0, "r1\n")
    assert forced.err.startswith("warning: no live worker takes runs from queue nowhere, so the run waits; start a")
    served = invoke(*words, "--queue", "mail")
    assert (served.code, served.err) == (0, "")


def test_a_run_in_the_queue_of_its_job_waits_for_workers_with_a_warning(world: StoreCalls, invoke: Invoke) -> None:
    """Nobody chose the queue, and its workers may start later; the same where the configuration here has a pool."""
    early = invoke("enqueue", "report.make")
    assert (early.code, len(early.out.split())) == (0, 1)
    assert "warning: no replica of cluster" in early.err
    assert "start one: `tenure run`" in early.err
    serve(world, "mail")
    for words in (("enqueue", "report.make"), (*SEND, "--queue", "default")):
        waits = invoke(*words)
        assert (waits.code, "no live worker takes runs from queue" in waits.err) == (0, True)


@contextmanager
def worker(world: StoreCalls, end: Callable[[], object]) -> Iterator[None]:
    """Do ``end`` as soon as somebody waits for run r1."""

    def work() -> None:
        wait_until(lambda: world.raw.hexists(world.keys.awaited, "r1"), what="somebody to wait")
        end()

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()


def ends(world: StoreCalls, outcome: Outcome = Outcome.OK, **fields: Any) -> Callable[[], object]:
    def end() -> None:
        assert world.fetch(S) == ["r1"]
        now_ms = world.run(world.queues.counts("default")).now_ms
        world.ack(S, "r1", outcome, job="mail.send", started_ms=now_ms - 5, ended_ms=now_ms, **fields)

    return end


def test_a_run_that_is_awaited_prints_its_result(world: StoreCalls, invoke: Invoke) -> None:
    """The id first, for whoever loses patience; then JSON. It can be shown later, too."""
    serve(world)
    with worker(world, ends(world, result=b'{"sent":[1,2]}', result_ttl_ms=60_000)):
        done = invoke(*SEND, "--wait", LONG)
    assert (done.code, done.err) == (0, "")
    run_id, _, result = done.out.partition("\n")
    assert (run_id, json.loads(result)) == ("r1", {"sent": [1, 2]})
    shown = invoke("runs", "show", "r1", "-o", "json").json()
    assert [shown[name] for name in ("state", "job", "outcome", "result")] == [
        "finished", "mail.send", "ok", {"sent": [1, 2]},
    ]  # fmt: skip
    again = invoke(*SEND, "--wait", LONG)
    assert (again.code, again.out) == (0, done.out), "a repeated command waits for the same run"


def test_a_run_without_a_result_prints_null(world: StoreCalls, invoke: Invoke) -> None:
    """Most jobs return nothing."""
    serve(world)
    with worker(world, ends(world)):
        done = invoke(*SEND, "--wait", LONG)
    assert (done.code, done.out) == (0, "r1\nnull\n")


def test_a_run_that_fails_while_it_is_awaited_exits_with_1(world: StoreCalls, invoke: Invoke) -> None:
    """With the job's error, which can be shown later, masked."""
    serve(world)
    error = {"type": "ValueError", "message": "no tenant, password=hunter2", "attempt": 1}
    with worker(world, ends(world, Outcome.DEAD, error=error, history_note="ValueError: no tenant")):
        done = invoke(*SEND, "--wait", LONG)
    assert (done.code, done.out) == (1, "r1\n")
    assert done.err.startswith("tenure: run r1 failed at attempt 1: ValueError: no tenant")
    shown = invoke("runs", "show", "r1", "-o", "json").json()
    assert (shown["state"], shown["error"]["type"]) == ("dead", "ValueError")
    assert "hunter2" not in done.err + json.dumps(shown)
    assert invoke("dead", "drop", "r1", "--yes").code == 0
    dropped = invoke("runs", "show", "r1", "-o", "json").json()
    assert (dropped["outcome"], dropped["error"]["type"]) == ("dropped", "dropped")


def test_a_run_that_is_cancelled_while_it_is_awaited_exits_with_1(world: StoreCalls, invoke: Invoke) -> None:
    """There will be no result."""
    serve(world)
    with worker(world, lambda: world.run(QueueControl(world.keys).cancel([("", "r1")], by="kim", reason="wrong"))):
        done = invoke(*SEND, "--wait", LONG)
    assert (done.code, "run r1 was cancelled" in done.err) == (1, True)


def test_a_wait_that_is_over_exits_with_3_and_the_run_goes_on(world: StoreCalls, invoke: Invoke) -> None:
    """A script tells a slow run from a failed one."""
    serve(world)
    done = invoke(*SEND, "--wait", "10ms")
    assert (done.code, done.out) == (3, "r1\n")
    assert "run r1 has not ended after 0.01 s, it is waiting" in done.err
    assert world.state("r1") == "queued"
    assert invoke(*SEND, "--wait", "400d").code == 2
