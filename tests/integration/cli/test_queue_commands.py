"""``tenure runs``, ``queue`` and ``dead`` as a user types them, against a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from supervisor.core.model import Outcome
from tests.integration.cli.conftest import ClusterWithJobs, Result
from tests.kit.builders import StoreCalls, envelope

pytestmark = pytest.mark.server
S = "r.1/worker-io-0/1"
Invoke = Callable[..., Result]


@pytest.fixture
def world(desk: ClusterWithJobs) -> StoreCalls:
    """A cluster with a session, two runs that wait, one that runs, one that is delayed, and one that is dead."""
    world = desk.world
    world.open(S)
    world.enqueue(envelope("running"), envelope("dead", args={"token": "s3cret"}))
    world.fetch(S)
    error = {"type": "ValueError", "message": "no such tenant", "worker": S, "traceback": "File x\npassword=hunter2"}
    world.ack(S, "dead", Outcome.DEAD, error=error, job="tests.noop", history_note="ValueError: no such tenant")
    world.enqueue(envelope("a"), envelope("b", job="tests.other", args={"key": "s3cret"}))
    world.enqueue(envelope("later"), delays_ms=[60_000])
    return world


def rows(result: Result) -> list[dict[str, Any]]:
    """Return what a command printed with ``-o json``, whatever its exit code."""
    found: list[dict[str, Any]] = json.loads(result.out)
    return found


def test_cancelling_says_what_it_found(world: StoreCalls, invoke: Invoke) -> None:
    """And exits by it."""
    done = invoke("runs", "cancel", "a", "running", "--yes", "--reason", "not needed", "-o", "json")
    assert done.code == 0
    assert [row["result"] for row in rows(done)] == [
        "cancelled: it had not begun",
        "attempt 1 runs: asked to end",
    ]
    again = invoke("runs", "cancel", "a", "--yes", "-o", "json")
    assert (again.code, rows(again)[0]["result"]) == (0, "had ended: cancelled")
    killed = invoke("runs", "cancel", "running", "--yes", "--kill", "--grace", "5s", "-o", "json")
    assert rows(killed)[0]["result"] == "attempt 1 runs: asked to end, and killed after 5s"
    dead = invoke("runs", "cancel", "dead", "--yes", "-o", "json")
    assert (dead.code, rows(dead)[0]["result"]) == (3, "is dead already; see `tenure dead drop`")
    unknown = invoke("runs", "cancel", "never", "--yes", "--queue", "default", "-o", "json")
    assert (unknown.code, rows(unknown)[0]["result"]) == (1, "unknown")
    assert world.state("running") == "running"


@pytest.mark.parametrize("words", [("cancel", "--yes"), ("requeue",), ("set-priority", "high")])
def test_an_id_that_no_run_can_have_is_a_mistake_of_usage(
    world: StoreCalls, invoke: Invoke, words: tuple[str, ...]
) -> None:
    """It is named, with what an id may hold, and nothing is done to the others."""
    refused = invoke("runs", *words, "a", "b c")
    assert (refused.code, "run id 'b c' must be 1 to 255 printable" in refused.err) == (2, True)
    assert world.state("a") == "queued"


def test_a_person_is_asked_before_something_goes(world: StoreCalls, invoke: Invoke) -> None:
    """No is an answer."""
    for command in (
        ("runs", "cancel", "a"),
        ("queue", "purge", "default"),
        ("queue", "move", "default", "shell"),
        ("dead", "drop", "--all"),
        ("dead", "requeue", "dead"),
    ):
        assert invoke(*command, stdin="n\n").code == 1, command
    assert (world.state("a"), world.state("dead")) == ("queued", "dead")


def test_without_anybody_to_ask_the_way_out_is_named(world: StoreCalls, invoke: Invoke) -> None:
    """A script sees no question: what it has to give, and that nothing was done."""
    refused = invoke("runs", "cancel", "a")
    assert (refused.code, world.state("a")) == (1, "queued")
    assert "nothing was done; give --yes where there is no terminal" in refused.err


def test_the_turn_of_a_run_is_changed(world: StoreCalls, invoke: Invoke) -> None:
    """It may start now, and before others."""
    done = invoke("runs", "requeue", "later", "-o", "json")
    assert (done.code, rows(done)[0]["result"]) == (0, "ready now")
    refused = invoke("runs", "requeue", "later", "dead", "-o", "json")
    assert refused.code == 3
    assert [row["result"] for row in rows(refused)] == ["is ready already", "is dead; see `tenure dead requeue`"]
    assert invoke("runs", "requeue", "never").code == 1
    changed = invoke("runs", "set-priority", "high", "b", "-o", "json")
    assert rows(changed) == [{"run": "b", "queue": "default", "was": "normal", "place": "ready"}]
    assert invoke("runs", "set-priority", "low", "never").code == 1
    assert world.fetch(S) == ["b", "a", "later"]


def test_a_run_is_shown_without_the_values_of_its_arguments(world: StoreCalls, invoke: Invoke) -> None:
    """Any of them may be a secret."""
    for command in (("runs", "show", "b"), ("dead", "show", "dead"), ("runs", "show", "dead")):
        shown = invoke(*command, "-o", "json")
        assert shown.code == 0
        assert shown.json()["arguments"] == (["key"] if "b" in command else ["token"])
        assert "s3cret" not in shown.out
        assert "hunter2" not in shown.out


def test_a_blocked_run_says_what_it_waits_for(world: StoreCalls, invoke: Invoke) -> None:
    """The key, and who holds it."""
    limits = {"concurrency": "k", "concurrency_max": 1, "rate_count": 5, "rate_per_ms": 1000}
    world.enqueue(envelope("one", **limits), envelope("two", **limits))
    world.fetch(S)
    world.raw.set(world.keys.progress("two"), '3 {"done":7}')
    shown = invoke("runs", "show", "two", "-o", "json").json()
    assert shown["state"] == "blocked"
    assert shown["waits_for"] == "concurrency key tests.noop:k, held by one in queue default"
    assert shown["limits"] == ["c1:tests.noop:k", "r5/1000:tests.noop:"]
    assert shown["progress"] == {"done": 7}


def test_queues_are_listed_and_shown(world: StoreCalls, invoke: Invoke) -> None:
    """With what waits by kind and priority, pauses, totals and pace."""
    (row,) = rows(invoke("queue", "list", "-o", "json"))
    assert row["served"] == "no"
    assert world.run(world.sessions.open("r.1/worker-io-0/2", {"kind": "async", "queues": "default"}))
    assert invoke("queue", "show", "default", "-o", "json").json()["served"] == "async"
    for words in (("queue", "list"), ("queue", "show", "default"), ("status",)):
        assert "SERVED" in invoke(*words).out
    assert [row[name] for name in ("ready", "blocked", "running", "later", "dead")] == [2, 0, 1, 1, 1]
    assert invoke("queue", "pause", "default", "--reason", "it moves").code == 0
    shown = invoke("queue", "show", "default", "-o", "json").json()
    assert {"kind": "async", "priority": "normal", "ready": 2} in shown["lists"]
    assert shown["paused"] == "it moves"
    assert shown["paused_by"]
    assert "it moves" in invoke("queue", "show", "default").out
    assert rows(invoke("queue", "resume", "default", "default", "-o", "json")) == [
        {"queue": "default", "result": "resumed"}
    ]
    unknown = invoke("queue", "pause", "defualt")
    assert unknown.code == 1
    assert "did you mean default?" in unknown.err


def test_a_queue_that_cannot_be_read_hides_no_other(world: StoreCalls, invoke: Invoke) -> None:
    """It is named, and the exit code tells a script."""
    world.enqueue(envelope("c", queue="broken"))
    world.raw.set(world.keys.queue("broken").run, "another program's")
    listed = invoke("queue", "list", "-o", "json")
    assert (listed.code, [row["queue"] for row in rows(listed)]) == (1, ["default"])
    assert "queue broken: " in listed.err
    status = json.loads(invoke("status", "-o", "json").out)
    assert [row["queue"] for row in status["queues"]] == ["default"]


@pytest.mark.parametrize(
    ("key", "words", "seen"),
    [
        ("hist", ("runs", "list"), "dead"),
        ("run", ("runs", "list", "--running"), "running"),
        ("dead", ("dead", "list"), "dead"),
        ("dead", ("dead", "requeue", "--all", "--yes"), "dead"),
    ],
)
def test_runs_of_a_queue_that_cannot_be_read_hide_no_others(
    world: StoreCalls, invoke: Invoke, key: str, words: tuple[str, ...], seen: str
) -> None:
    """One key of another program made the list of all queues an error, and nothing dead could be requeued."""
    world.enqueue(envelope("c", queue="broken"))
    world.raw.set(getattr(world.keys.queue("broken"), key), "another program's")
    listed = invoke(*words, "-o", "json")
    assert (listed.code, [row["run"] for row in rows(listed)]) == (1, [seen])
    assert "queue broken: " in listed.err
    alone = invoke(*words, "--queue", "broken", "-o", "json")
    assert (alone.code == 0, "another type" in alone.err) == (False, True)


def test_a_queue_is_moved_and_purged(world: StoreCalls, invoke: Invoke) -> None:
    """All that waits, or the runs of one job."""
    world.enqueue(*(envelope(f"many{n}", job="tests.many") for n in range(250)))
    assert rows(invoke("queue", "purge", "default", "--job", "tests.other", "--yes", "-o", "json"))[0]["ended"] == 1
    world.enqueue(envelope("a", queue="shell"))
    moved = invoke("queue", "move", "default", "shell", "--yes", "-o", "json")
    assert moved.code == 3, "one stays, because the target has its id"
    assert rows(moved) == [{"from": "default", "to": "shell", "moved": 251, "stayed": 1}]
    assert rows(invoke("queue", "purge", "shell", "--yes", "-o", "json"))[0]["ended"] == 252
    assert (world.fsck(), world.fsck("shell")) == ([], [])
    assert world.state("running") == "running"


def test_dead_runs_are_listed_by_what_killed_them(world: StoreCalls, invoke: Invoke) -> None:
    """By job, reason, any part of the error, and time."""
    for options, count in (
        ((), 1),
        (("--job", "tests.noop", "--queue", "default", "--reason", "valueerror", "--error", "hunter"), 1),
        (("--job", "tests.other"), 0),
        (("--error", "timeout"), 0),
        (("--before", "-1h"), 0),
        (("--before", "+1h"), 1),
    ):
        listed = invoke("dead", "list", *options, "-o", "json")
        assert len(rows(listed)) == count, options
    (row,) = rows(invoke("dead", "list", "-o", "json"))
    assert (row["reason"], row["worker"]) == ("ValueError: no such tenant", S)
    assert world.state("dead") == "dead"


def test_dead_runs_are_requeued_and_dropped(world: StoreCalls, invoke: Invoke) -> None:
    """By id or by filter; none is meant by chance."""
    assert invoke("dead", "drop", "--yes").code == 2
    assert invoke("dead", "drop", "never", "--yes").code == 1
    done = invoke("dead", "requeue", "--error", "tenant", "--yes", "-o", "json")
    assert (done.code, rows(done)) == (0, [{"run": "dead", "queue": "default", "result": "requeued"}])
    assert world.state("dead") == "queued"
    assert invoke("dead", "show", "dead").code == 1
    world.fetch(S)
    world.ack(S, "dead", Outcome.DEAD)
    dropped = invoke("dead", "drop", "--all", "--note", "old", "--yes", "-o", "json")
    assert [row["result"] for row in rows(dropped)] == ["dropped"]
    assert invoke("dead", "drop", "--all", "--yes").out.strip() == "no dead run matches"


def test_fsck_says_what_is_wrong_and_mends_it(world: StoreCalls, invoke: Invoke) -> None:
    """Exit 3 as long as something is."""
    assert invoke("queue", "fsck").out.strip() == "nothing is wrong in 1 queue"
    world.raw.delete(world.keys.queue("default").ready(envelope("x").template.kind, 1))
    found = invoke("queue", "fsck", "default")
    assert found.code == 3
    assert "in no place" in found.out
    mended = invoke("queue", "fsck", "--fix", "-o", "json")
    assert mended.code == 0
    assert {row["what"] for row in rows(mended)} == {"a", "b"}
    assert invoke("queue", "fsck").code == 0
    assert sorted(world.fetch(S)) == ["a", "b"]


def test_fsck_verifies_the_queues_beside_one_that_cannot_be(world: StoreCalls, invoke: Invoke) -> None:
    """That one is told as a fault, and so are holders of unique keys that lie in it."""
    broken, sound = world.keys.queue("abroken"), world.keys.queue("default")
    world.enqueue(envelope("x", queue="abroken", unique="u"))
    world.raw.delete(sound.ready(envelope("x").template.kind, 1), broken.data)
    world.raw.set(broken.data, "x")
    mended = invoke("queue", "fsck", "--fix", "-o", "json")
    assert mended.code == 3
    assert [(row["queue"], row["what"], bool(row["done"])) for row in rows(mended)] == [
        ("abroken", "queue", False), ("default", "a", True), ("default", "b", True), ("", "unique keys", False),
    ]  # fmt: skip
    assert sorted(world.fetch(S)) == ["a", "b"]


def test_a_run_is_found_behind_a_thousand_that_ended_later(world: StoreCalls, invoke: Invoke) -> None:
    """A busy queue ends so many in a second, and is set to remember ten thousand."""
    line = f"old|ok|1|{S}|1795055400000|1795055400250|tests.noop|"
    later = [f"new-{n}|ok|1|{S}|1795055401000|1795055401000|tests.noop|" for n in range(1500)]
    world.raw.rpush(world.keys.queue("default").hist, line, *later)

    shown = invoke("runs", "show", "old", "-o", "json").json()

    assert (shown["state"], shown["queue"], shown["history"][0]["duration"]) == ("finished", "default", "250ms")
