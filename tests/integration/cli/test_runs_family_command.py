"""What ``tenure runs show`` tells of the runs below a run and of its steps, and ``job run``."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Outcome
from supervisor.store.queues.run_records import StepCalls
from tests.integration.cli.conftest import ClusterWithJobs, Result
from tests.integration.store.fanout.test_store_tallies import child, end, follow
from tests.kit.builders import StoreCalls, envelope

pytestmark = pytest.mark.server
S = "r.1/worker-io-0/1"
Invoke = Callable[..., Result]


@pytest.fixture
def world(desk: ClusterWithJobs) -> StoreCalls:
    """A run with three children, of which one finished and one is dead."""
    world = desk.world
    world.open(S)
    world.enqueue(envelope("p"))
    world.fetch(S)
    children = [child("p", key) for key in "abc"]
    world.turn(S, acks=[end("p", Outcome.OK, *children, counts={"pages": 1}, then=[follow("p/then")])])
    world.fetch(S)
    errors = [["quota", "password=hunter2"]]
    world.turn(S, acks=[end("p/a", counts={"made": 3}), end("p/b", Outcome.DEAD, errors=errors)])
    return world


def test_a_run_is_shown_with_the_sums_of_all_below_it(world: StoreCalls, invoke: Invoke) -> None:
    """How many are left, how the others ended, what they counted, why they failed; no secret of theirs."""
    assert world.state("p/c") == "running"
    shown = json.loads(invoke("runs", "show", "p", "-o", "json").out)["below"]
    assert shown == {
        "total": 3,
        "remaining": 1,
        "ok": 1,
        "dead": 1,
        "counts": {"made": 3, "pages": 1},
        "errors": 1,
        "first_errors": [{"run": "p/b", "code": "quota", "message": "password=***"}],
        "then": ["p/then"],
    }
    record = json.loads(invoke("runs", "show", "p/c", "-o", "json").out)
    assert (record["parent"], "limits" in record, "below" in record) == ("p", False, False)


def test_runs_that_may_have_run_before_are_told_apart(world: StoreCalls, invoke: Invoke) -> None:
    """While they wait, in work and dead: who cleans up after a loss of data looks for these."""
    world.enqueue(*(msgspec.structs.replace(envelope(name), maybe_duplicate=True) for name in ("again", "gone")))
    world.enqueue(envelope("once"))
    shown = [json.loads(invoke("runs", "show", run, "-o", "json").out) for run in ("again", "once")]
    assert [record.get("maybe_duplicate") for record in shown] == [True, None]
    world.fetch(S)
    world.turn(S, acks=[end("gone", Outcome.DEAD)])
    running = json.loads(invoke("runs", "list", "--running", "-o", "json").out)
    assert {row["run"]: row["maybe_duplicate"] for row in running} == {"p/c": False, "again": True, "once": False}
    (dead,) = (row for row in json.loads(invoke("dead", "list", "-o", "json").out) if row["run"] == "gone")
    assert dead["maybe_duplicate"]
    assert json.loads(invoke("dead", "show", "gone", "-o", "json").out)["maybe_duplicate"]


def test_what_is_below_a_run_is_shown_when_newer_runs_have_pushed_it_out_of_the_history(
    world: StoreCalls, invoke: Invoke
) -> None:
    """The root of 10,000 runs: its own line goes with the first of them, its sums stay."""
    world.raw.delete(world.keys.queue("default").hist, world.keys.result("p"))
    shown = json.loads(invoke("runs", "show", "p", "-o", "json").out)
    assert (shown["run"], shown["state"], shown["below"]["total"]) == ("p", "forgotten", 3)
    assert invoke("runs", "show", "never").code == 1


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_result_that_is_nested_too_deeply_is_told(world: StoreCalls, invoke: Invoke, form: str) -> None:
    """No worker writes one; who does must not keep the rest of the run from being shown."""
    world.raw.set(world.keys.result("p"), b"[" * 100_000 + b"]" * 100_000)
    shown = invoke("runs", "show", "p", "-o", form)
    assert (shown.code, "nested deeper than 100 levels" in shown.out) == (0, True)
    world.raw.set(world.keys.result("p"), b"\xff{")
    assert "not shown" in invoke("runs", "show", "p", "-o", form).out


def test_a_run_is_shown_with_its_steps(world: StoreCalls, invoke: Invoke) -> None:
    """Which are done, which failed and why, in their order."""
    fence = f"{S}|1|{world.fetched_ms('p/c')}"
    calls = StepCalls(world.keys, run_id="p/c", queue="default", fence=fence, born="0")
    first = b'{"status":"done","number":1,"attempt":1,"ended_ms":1000,"duration_ms":7,"result":{"token":"s3cret"}}'
    second = b'{"status":"failed","number":2,"attempt":1,"error":"ValueError: no"}'
    assert world.run(calls.write("fetch", first, ttl_ms=60_000)) == 1
    assert world.run(calls.write("charge", second, ttl_ms=60_000)) == 1
    steps = json.loads(invoke("runs", "show", "p/c", "-o", "json").out)["steps"]
    assert [(step["step"], step["status"]) for step in steps] == [("fetch", "done"), ("charge", "failed")]
    assert (steps[0]["duration_ms"], steps[0]["result"], steps[1]["error"]) == (7, {"token": "***"}, "ValueError: no")


def test_job_run_enqueues_as_enqueue_does(world: StoreCalls, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two words for one thing: a run of either is the same but for its id and time."""
    monkeypatch.setattr(
        "supervisor.app.jobs.registry", Registry()
    )  # this process may have imported jobs for other tests
    assert world.run(world.sessions.open("r.1/worker-io-0/2", {"kind": "async", "queues": "default"}))
    for run_id, words in {
        "one": ("job", "run", "mail.send", "--param", "to=kim", "--queue", "default", "--id", "one"),
        "two": ("enqueue", "mail.send", "to=kim", "--queue", "default", "--id", "two"),
    }.items():
        done = invoke(*words)
        assert (done.out.strip(), done.err) == (run_id, "")
    found = [
        (view.state, view.queue, view.envelope.template)
        for view in (world.run(world.queues.show(run_id)) for run_id in ("one", "two"))
    ]
    assert found[0] == found[1]
    refused = invoke("job", "run", "mail.send", "--param", "to")
    assert (refused.code, "is not NAME=VALUE" in refused.err) == (2, True)
    refused = invoke("enqueue", "mail.send", "to=kim", "to=lee")
    assert (refused.code, "to is given twice" in refused.err) == (2, True)
    refused = invoke("enqueue", "mail.send", 'to={"a": 1, "a": 2}')
    assert (refused.code, "the key 'a' stands twice" in refused.err) == (2, True)
