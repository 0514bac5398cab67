"""What operators do over HTTP: to queues, runs, dead runs, worker processes and the leader."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from supervisor.core.model import Kind, Outcome, ScheduleDef, Template
from supervisor.roles.web.api import control, reads
from supervisor.roles.web.api.routes import PATH
from supervisor.roles.web.handlers import PAGE_S
from supervisor.store.election.commands import Answer, Command, Commands, Word
from supervisor.store.plugins import PluginRecord, Plugins
from supervisor.store.schedules.definitions import Change, Definitions
from tests.integration.roles.web.api_client import KEYS, SESSION, ask
from tests.kit.builders import StoreCalls, envelope
from tests.kit.waiting import wait_until

REPLICA = SESSION.partition("/")[0]


@pytest.fixture
def briefly_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A web child that awaits answers of replicas briefly: what is left of a page's 5 s is for a busy machine."""
    monkeypatch.setattr(control, "ANSWER_S", 0.4)
    monkeypatch.setattr(reads, "REPORT_WAIT_S", 0.4)


def kill(world: StoreCalls, *run_ids: str) -> None:
    """Let runs be executed and given up."""
    world.enqueue(*map(envelope, run_ids))
    world.fetch(SESSION)
    for run_id in run_ids:
        error = {"type": "ValueError", "message": "no tenant", "traceback": "password=hunter2"}
        world.ack(SESSION, run_id, Outcome.DEAD, error=error, job="tests.noop")


def change(api: Any, path: str, body: Any = None, *, who: str = "driver") -> tuple[int, Any]:
    """Ask for a change; return status and JSON."""
    return ask(api, "POST", f"{PATH}{path}", who, {} if body is None else body)


def read(api: Any, path: str) -> Any:
    """Return what a reader is shown."""
    code, shown = ask(api, "GET", f"{PATH}{path}", "reader")
    assert code == 200, shown
    return shown


def test_a_queue_is_paused_resumed_and_purged(api: Any, world: StoreCalls) -> None:
    """Under the name of the token; an unknown name is refused with the nearest, and nothing is made by it."""
    world.enqueue(envelope("a"), envelope("b", job="tests.other"))

    paused = {"queue": "default", "result": "paused", "new": True}
    assert change(api, "/queues/default/pause", {"reason": "moving"}) == (200, paused)
    counts = world.run(world.queues.counts("default"))
    assert (counts.paused, counts.paused_by) == ("moving", "driver@http")
    assert change(api, "/queues/default/resume")[1]["result"] == "resumed"
    assert change(api, "/queues/default/resume")[1]["result"] == "running"
    assert change(api, "/queues/default/purge", {"job": "tests.other"}) == (200, {"queue": "default", "ended": 1})
    assert (world.state("a"), world.state("b")) == ("queued", "finished")

    code, refused = change(api, "/queues/defualt/pause")
    assert (code, "did you mean default?" in refused["error"]) == (404, True)
    assert change(api, "/queues/default/pause", {"reason": "x" * 201})[0] == 400
    assert world.run(world.queues.names()) == ["default"]


def test_runs_are_listed_started_now_and_given_another_priority(api: Any, world: StoreCalls) -> None:
    """What the commands do, with the former place in the answer."""
    world.enqueue(envelope("later"), delays_ms=[60_000])
    world.enqueue(envelope("busy"))
    world.fetch(SESSION)
    world.enqueue(envelope("done"))
    world.fetch(SESSION)
    world.ack(SESSION, "done", job="tests.noop", history_note="password=hunter2")

    assert [each["run"] for each in read(api, "/runs?state=running")["runs"]] == ["busy"]
    (ended,) = read(api, "/runs?queue=default")["runs"]
    assert (ended["run"], ended["outcome"], ended["job"]) == ("done", "ok", "tests.noop")
    assert "hunter2" not in json.dumps(ended)
    assert change(api, "/runs/later/priority", {"priority": "high"})[1]["place"] == "later"
    assert change(api, "/runs/later/requeue") == (200, {"run": "later", "queue": "default", "place": "later"})
    assert change(api, "/runs/later/requeue")[1]["place"] == "ready"
    assert change(api, "/runs/later/priority", {"priority": "urgent"})[0] == 400
    assert change(api, "/runs/never/requeue")[0] == 404
    assert ask(api, "GET", f"{PATH}/runs?queue=none", "reader")[0] == 404


def test_runs_that_may_have_run_before_are_told_apart(api: Any, world: StoreCalls) -> None:
    """In work, alone and dead; of a run that ended nothing is known of it."""
    flagged = [msgspec.structs.replace(envelope(name), maybe_duplicate=True) for name in ("again", "gone")]
    world.enqueue(*flagged, envelope("once"))
    world.fetch(SESSION)
    running = read(api, "/runs?state=running")["runs"]
    assert {each["run"]: each["maybe_duplicate"] for each in running} == {"again": True, "gone": True, "once": False}
    assert [read(api, f"/runs/{run}")["maybe_duplicate"] for run in ("again", "once")] == [True, False]
    world.ack(SESSION, "gone", Outcome.DEAD)
    world.ack(SESSION, "once", job="tests.noop")
    assert read(api, "/runs/once")["maybe_duplicate"] is None
    assert [each["maybe_duplicate"] for each in read(api, "/dead")["dead"]] == [True]
    assert read(api, "/dead/gone")["maybe_duplicate"]


def test_dead_runs_are_listed_shown_requeued_and_dropped(api: Any, world: StoreCalls) -> None:
    """Their errors are masked, and no filter looks into what is hidden."""
    kill(world, "one", "two")

    rows = read(api, "/dead?reason=NO%20TENANT&job=tests.noop&limit=10")["dead"]
    assert [(each["run"], each["reason"]) for each in rows] == [
        ("two", "ValueError: no tenant"),
        ("one", "ValueError: no tenant"),
    ]
    assert read(api, "/dead?reason=hunter2") == {"dead": []}
    assert read(api, "/dead?before_ms=1")["dead"] == []
    shown = read(api, "/dead/one")
    assert (shown["state"], "hunter2" in json.dumps(shown)) == ("dead", False)

    assert change(api, "/dead/one/requeue", {"delay": "1h"}) == (
        200,
        {"run": "one", "queue": "default", "result": "requeued"},
    )
    assert (world.state("one"), change(api, "/dead/one/requeue")[0]) == ("later", 404)
    assert change(api, "/dead/two/drop", {"reason": "old"})[1]["result"] == "dropped"
    assert (change(api, "/dead/two/drop")[0], read(api, "/dead")["dead"]) == (404, [])
    assert change(api, "/dead/two/drop", {"queue": "{}"})[0] == 400
    assert change(api, "/runs/one/requeue")[1]["place"] == "later"


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("worker", "slot", "generation"), [(SESSION, "w-0", 1), (f"{REPLICA}/w-0", "w-0", 0), ("r2", "", 0)]
)
def test_a_command_reaches_the_replica_of_a_worker(
    api: Any, world: StoreCalls, worker: str, slot: str, generation: int
) -> None:
    """By the session, by a slot of a replica, or for all of its workers; the answer is the replica's."""
    calls = Commands(KEYS)
    with ThreadPoolExecutor(1) as executor:
        asked = executor.submit(change, api, f"/workers/{worker}/quiet", who="owner")
        ((command_id, body),) = wait_until(lambda: world.run(calls.take(REPLICA)), "the command")
        world.run(calls.answer(REPLICA, command_id, Answer(is_done=True)))
        code, shown = asked.result(timeout=20)

    command = msgspec.json.decode(body, type=Command)
    assert (command.word, command.slot, command.generation) == (Word.QUIET, slot, generation)
    assert command.by == "owner@http"
    if code == 202:  # the answer came later than it was awaited
        assert shown["result"] == "sent"
    else:
        assert (code, shown) == (200, {"replica": REPLICA, "worker": slot or None, "result": "done"})


@pytest.mark.usefixtures("briefly_awaited")
def test_readers_leave_room_for_commands_of_operators(api: Any, world: StoreCalls) -> None:
    """Each look at the workers asks every replica, in the place where a hundred commands may wait."""
    with ThreadPoolExecutor(8) as executor:
        found = list(executor.map(lambda _: read(api, "/workers")["workers"], range(8)))

    assert found == [found[0]] * 8
    assert len(world.run(Commands(KEYS).take(REPLICA))) < 4


def test_an_answer_is_awaited_for_less_than_a_page_may_take() -> None:
    """A command that nobody answers is told to be sent; the page would be an error."""
    assert max(control.ANSWER_S, reads.REPORT_WAIT_S) < PAGE_S


@pytest.mark.usefixtures("briefly_awaited")
def test_commands_that_nobody_answers_or_that_mean_nobody_say_so(api: Any, world: StoreCalls) -> None:
    """Sent is not done; a worker without a replica that answers is listed with what Redis knows."""
    assert change(api, f"/workers/{SESSION}/recycle", who="owner")[0] == 202
    assert [each["state"] for each in read(api, "/workers")["workers"]] == ["no answer"]
    assert change(api, "/workers/r9/w-0/quiet", who="owner")[0] == 404
    assert change(api, "/workers/r2.1/w-0/1/2/quiet", who="owner")[0] == 404
    del world


def test_the_leader_is_asked_to_hand_over(api: Any, world: StoreCalls) -> None:
    """Nobody leads at first, and then nobody else could."""
    assert change(api, "/leader/resign", who="owner")[0] == 409
    world.lead()
    code, refused = change(api, "/leader/resign", who="owner")
    assert (code, "is the only candidate" in refused["error"]) == (409, True)
    assert change(api, "/leader/resign", {"to": "nobody"}, who="owner")[0] == 409
    assert change(api, "/leader/resign", {"to": "a"}, who="owner")[0] == 200


def test_the_waiting_runs_of_a_queue_move_to_another(api: Any, world: StoreCalls) -> None:
    """As ``tenure queue move``; a target that nobody knows is refused, and so is the queue itself."""
    world.enqueue(envelope("a"), envelope("b"))
    world.enqueue(envelope("other", queue="slow"))

    moved = {"queue": "default", "to": "slow", "moved": 2, "stayed": 0}
    assert change(api, "/queues/default/move", {"to": "slow"}) == (200, moved)
    assert world.run(world.queues.counts("slow")).ready_total == 3
    assert change(api, "/queues/slow/move", {"to": "slow"})[0] == 400
    assert change(api, "/queues/slow/move", {"to": "slwo"})[0] == 404


def test_a_dynamic_schedule_is_deleted_at_the_revision_that_was_seen(api: Any, world: StoreCalls) -> None:
    """Somebody else's change in between is not undone by it."""
    define(world, "nightly")

    assert change(api, "/schedules/nightly/delete", {"revision": 7})[0] == 409
    assert change(api, "/schedules/nightly/delete", {"revision": 1}) == (
        200, {"schedule": "nightly", "result": "deleted"},
    )  # fmt: skip
    assert change(api, "/schedules/unknown/delete")[0] == 404


def test_a_backfill_is_asked_for_read_and_stopped(api: Any, world: StoreCalls) -> None:
    """Under the name of the token; the leader does the work, so the answer is its id."""
    define(world, "nightly")
    asked = {"from": "2026-11-01", "to": "2026-11-07T12:00Z", "overlap": "skip", "limit": 5}

    code, added = change(api, "/schedules/nightly/backfill", asked)
    assert (code, added["schedule"]) == (202, "nightly")
    shown = read(api, f"/backfills/{added['backfill']}")
    assert (shown["state"], shown["by"], shown["limit"]) == ("active", "driver@http", 5)
    assert read(api, "/backfills?schedule=nightly")["backfills"] == [shown]
    assert read(api, "/backfills?schedule=other")["backfills"] == []
    assert change(api, f"/backfills/{added['backfill']}/cancel")[1]["state"] == "cancelled"
    for wrong in (
        {"from": "yesterday"},
        {"from": "2026-11-02", "to": "2026-11-01"},
        {"from": "2026-11-02", "limit": 0},
    ):
        assert change(api, "/schedules/nightly/backfill", wrong)[0] == 400, wrong
    assert change(api, "/schedules/unknown/backfill", asked)[0] == 404
    assert change(api, "/backfills/unknown/cancel")[0] == 404


def test_the_changes_of_the_lease_are_shown_and_a_hold_is_ended(api: Any, world: StoreCalls) -> None:
    """Where nothing is held, the answer says so."""
    assert read(api, "/leader/history?limit=5")["changes"] == []
    assert change(api, "/leader/clear-hold", who="owner") == (200, {"result": "not held", "hold": None})
    assert change(api, "/leader/clear-hold")[0] == 403


def define(world: StoreCalls, name: str) -> None:
    """Define a dynamic schedule that is due each hour."""
    definition = ScheduleDef(id=name, template=Template(job="tests.noop", kind=Kind.ASYNC), every_ms=3_600_000)
    world.run(Definitions(KEYS).upsert([Change(definition=definition)], wall_ms=2))


def test_queues_are_verified_and_mended(api: Any, world: StoreCalls) -> None:
    """By the operation of ``tenure queue fsck``; what is mended is in the log, with who asked."""
    world.enqueue(envelope("a"))
    assert change(api, "/queues/verify", who="owner") == (200, {"queues": ["default"], "faults": []})
    world.raw.delete(KEYS.queue("default").ready(Kind.ASYNC, 1))

    (fault,) = change(api, "/queues/verify", {"queues": ["default"]}, who="owner")[1]["faults"]
    assert (fault["what"], fault["done"]) == ("a", "")
    assert change(api, "/queues/verify", {"fix": True}, who="owner")[1]["faults"][0]["done"]
    assert change(api, "/queues/verify", who="owner")[1]["faults"] == []
    assert "api_queues_mended" in api.log.read_text()
    assert change(api, "/queues/verify", {"queues": ["defualt"]}, who="owner")[0] == 404


def test_plugins_are_shown_as_workers_found_them(api: Any, world: StoreCalls) -> None:
    """Without what they say of themselves, which may be anything."""
    record = PluginRecord(plugin="cloud", digest="d1", state="ERROR", reason="timeout", metadata={"key": "hunter2"})
    world.run(Plugins(KEYS).write(record))

    (shown,) = read(api, "/plugins")["plugins"]
    assert (shown["plugin"], shown["state"], shown["reason"], "metadata" in shown) == (
        "cloud",
        "ERROR",
        "timeout",
        False,
    )


@pytest.mark.usefixtures("briefly_awaited")
@pytest.mark.parametrize("verb", [Word.RELOAD, Word.STOP])
def test_a_replica_is_told_to_reload_or_stop(api: Any, world: StoreCalls, verb: Word) -> None:
    """By the command that its agent takes; nobody is there to answer here."""
    world.open(SESSION)
    code, sent = change(api, f"/replicas/{REPLICA}/{verb.value}", who="owner")

    assert (code, sent) == (202, {"replica": REPLICA, "worker": None, "result": "sent"})
    assert change(api, "/replicas/none/stop", who="owner")[0] == 404
