"""The turn: what is fetched, in which order, and which acknowledgements count."""

from __future__ import annotations

import pytest

from supervisor.core.errors import StoreRefusedError
from supervisor.core.model import Kind, Outcome
from supervisor.store.wire.poll import Ack
from tests.kit.builders import StoreCalls, envelope

S, Z = "r.1/w-0/1", "r.1/w-1/1"


def test_a_run_goes_through_queue_worker_and_history(world: StoreCalls) -> None:
    """The whole life of a run, as the reads show it at each step."""
    world.open(S)
    world.enqueue(envelope("x", job="j", args={"n": 1}))
    assert world.state("x") == "queued"

    reply = world.turn(S, want=5)
    assert [(run.queue, run.envelope.template.args, run.attempt, run.suspect) for run in reply.runs] == [
        ("default", {"n": 1}, 1, False)
    ]
    assert world.state("x") == "running"

    done = world.ack(
        S, "x", job="j|k", result=b"[2]", result_ttl_ms=60_000, started_ms=5, ended_ms=9, history_note="fi|ne"
    )
    assert done.stale == []
    view = world.run(world.queues.show("x"))
    assert (view.state, view.result, view.history[0].outcome) == ("finished", b"[2]", "ok")
    entry = world.run(world.queues.recent("default"))[0]
    assert (entry.run_id, entry.session, entry.job, entry.note) == ("x", S, "j/k", "fi|ne")
    assert (entry.started_ms, entry.ended_ms) == (5, 9)
    assert 0 < world.raw.pttl(world.keys.result("x")) <= 60_000
    assert world.fsck() == []


@pytest.mark.parametrize("data", [b"", b"x", b"x1{}", b"a9{}", b"{}", b"\xff\x00", b"s"])
def test_a_delayed_run_that_is_broken_stops_no_turn(world: StoreCalls, data: bytes) -> None:
    """Whoever may write to Redis wrote it; a worker is given it, and ends it."""
    world.open(S)
    keys = world.keys.queue("default")
    world.raw.hset(keys.data, "evil", data)
    world.raw.zadd(keys.later, {"evil": 0})
    world.enqueue(envelope("good"))

    reply = world.turn(S, want=2)

    assert [run.envelope.id for run in reply.runs] == ["good"]
    assert [broken.run_id for broken in reply.broken] == ["evil"]


@pytest.mark.usefixtures("no_leaks")
def test_finished_runs_leave_nothing_but_history_and_counters(world: StoreCalls) -> None:
    """Memory must not grow with the number of runs that ever ran."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"), envelope("c"))
    assert world.fetch(S) == ["a", "b", "c"]
    world.ack(S, "a", Outcome.RETRY, error={"why": "x"})
    world.ack(S, "b")
    world.cancel("c")
    world.ack(S, "c", Outcome.RETRY)
    assert world.fetch(S) == ["a"]
    world.ack(S, "a", attempt=2)
    world.run(world.sessions.close(S))


def test_a_repeated_turn_gets_its_runs_again_and_acknowledges_once(world: StoreCalls) -> None:
    """The reply may have been lost: a fetch must not lose runs, and an acknowledgement must not count twice."""
    world.open(S)
    world.enqueue(*(envelope(f"r{i}") for i in range(4)))
    first, second = world.twice(world.turn_call(S, want=2))
    assert [run.envelope.id for run in first.runs] == [run.envelope.id for run in second.runs] == ["r0", "r1"]

    acks = [
        Ack(run_id="r0", queue="default", attempt=1, outcome=Outcome.OK),
        Ack(run_id="nope", queue="default", attempt=1, outcome=Outcome.OK),
    ]
    first, second = world.twice(world.turn_call(S, want=1, acks=acks))
    assert [run.envelope for run in first.runs] == [run.envelope for run in second.runs]
    assert first.stale == second.stale == ["nope"]
    assert [entry.run_id for entry in world.run(world.queues.recent("default"))] == ["r0"]
    assert world.run(world.queues.counts("default")).stats == {"in": 4, "ok": 1, "stale_ack": 1}
    assert world.fsck() == []


def test_a_turn_older_than_the_last_is_refused(world: StoreCalls) -> None:
    """A request that was delayed on the way must not take runs for a reader that is gone."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"))
    world.fetch(S, want=1, seq=5)

    with pytest.raises(StoreRefusedError, match="OLDSEQ 5"):
        world.turn(S, want=1, seq=4)
    assert world.run(world.queues.counts("default")).ready_total == 1


def test_a_worker_whose_last_turn_redis_forgot_is_lost(world: StoreCalls) -> None:
    """Redis went back: what the worker has finished since is in its hands again, and nobody else would ever give it back."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"))
    assert world.fetch(S, want=1, seq=1) == ["a"]
    copied = {key: world.raw.dump(key) for key in world.raw.scan_iter()}
    world.turn(S, seq=2, want=0, acks=[Ack(run_id="a", queue="default", attempt=1, outcome=Outcome.OK)])
    world.turn(S, seq=3, want=0)
    for key, value in copied.items():
        world.raw.restore(key, 0, value, replace=True)

    assert world.state("a") == "running"
    assert world.turn(S, seq=4, want=1).lost
    assert (world.state("a"), world.state("b")) == ("running", "queued")


def test_a_session_that_is_not_open_gets_and_changes_nothing(world: StoreCalls) -> None:
    """A zombie learns that it lost, whatever it asks."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"))
    assert world.fetch(S, want=1) == ["a"]
    world.run(world.sessions.condemn(S, None))

    reply = world.turn(S, want=5, acks=[Ack(run_id="a", queue="default", attempt=1, outcome=Outcome.OK)])
    assert (reply.lost, reply.runs) == (True, [])
    assert world.state("a") == "running"
    assert world.state("b") == "queued"


def test_two_sessions_never_hold_one_run(world: StoreCalls) -> None:
    """And neither can acknowledge what the other holds."""
    world.open(S, Z)
    world.enqueue(*(envelope(f"r{i}") for i in range(6)))

    assert world.fetch(S, want=3) == ["r0", "r1", "r2"]
    assert world.fetch(Z, want=5) == ["r3", "r4", "r5"]
    assert world.ack(Z, "r0").stale == ["r0"]
    assert world.state("r0") == "running"


def test_an_acknowledgement_of_another_attempt_is_stale(world: StoreCalls) -> None:
    """The same session may hold the same run again after a retry; the old report is not about it."""
    world.open(S)
    world.enqueue(envelope("a"))
    world.fetch(S)
    world.ack(S, "a", Outcome.RETRY)
    assert [run.attempt for run in world.turn(S, want=1).runs] == [2]

    assert world.ack(S, "a", attempt=1).stale == ["a"]
    assert world.ack(S, "a", attempt=2).stale == []


def test_an_acknowledgement_of_an_earlier_execution_of_the_same_attempt_is_stale(world: StoreCalls) -> None:
    """What was given back uncharged comes again under its number: only when it was fetched tells the two apart."""
    world.open(S)
    world.enqueue(envelope("a"))
    world.fetch(S)
    earlier_ms = world.fetched_ms("a") - 1

    assert world.ack(S, "a", fetched_ms=earlier_ms).stale == ["a"]
    assert world.state("a") == "running"
    assert world.ack(S, "a").stale == []


def test_one_run_acknowledged_twice_in_a_turn_counts_once(world: StoreCalls) -> None:
    """A caller's mistake must not write history twice."""
    world.open(S)
    world.enqueue(envelope("a"))
    world.fetch(S)
    ack = Ack(run_id="a", queue="default", attempt=1, outcome=Outcome.OK)

    assert world.turn(S, acks=[ack, ack]).stale == ["a"]
    assert len(world.run(world.queues.recent("default"))) == 1


def test_a_retry_waits_is_charged_and_comes_before_younger_runs(world: StoreCalls) -> None:
    """Who failed once is older than what waits."""
    world.open(S)
    world.enqueue(envelope("old"))
    world.fetch(S)
    world.enqueue(envelope("young"))
    reply = world.ack(S, "old", Outcome.RETRY, retry_delay_ms=3_600_000, error={"type": "E"})
    assert reply.next_due_ms == pytest.approx(reply.now_ms + 3_600_000)
    assert world.state("old") == "later"

    world.make_due("old")
    runs = world.turn(S, want=2).runs
    assert [(run.envelope.id, run.attempt) for run in runs] == [("old", 2), ("young", 1)]
    assert world.run(world.queues.show("old")).error == {"type": "E"}


def test_a_dead_run_is_kept_with_its_error_and_the_oldest_make_room(world: StoreCalls) -> None:
    """Whoever looks must see why, and a storm of failures must stay bounded."""
    world.open(S)
    world.enqueue(*(envelope(f"r{i}") for i in range(4)))
    world.fetch(S)
    for i in range(4):
        world.turn(
            S,
            acks=[Ack(run_id=f"r{i}", queue="default", attempt=1, outcome=Outcome.DEAD, error={"i": i})],
            dead_cap=2,
        )

    dead = world.run(world.queues.dead("default"))
    assert {run.run_id for run in dead} == {"r2", "r3"}
    assert {run.error["i"] for run in dead} == {2, 3}
    assert all(run.attempts == 1 and run.envelope for run in dead)
    assert world.state("r0") == "finished"  # in the history
    assert world.fsck() == []


def test_what_is_given_back_goes_to_the_head_in_its_order_uncharged(world: StoreCalls) -> None:
    """A draining worker returns what it had not started, as if it had never taken it."""
    world.open(S, Z)
    world.enqueue(*(envelope(f"r{i}") for i in range(4)))
    world.fetch(S, want=2)
    gives = [Ack(run_id=f"r{i}", queue="default", attempt=1, outcome=Outcome.GIVEBACK) for i in range(2)]
    world.turn(S, acks=gives)

    runs = world.turn(Z, want=4).runs
    assert [(run.envelope.id, run.attempt) for run in runs] == [("r0", 1), ("r1", 1), ("r2", 1), ("r3", 1)]
    assert world.run(world.queues.recent("default")) == []


def test_giving_back_with_a_kind_corrects_it(world: StoreCalls) -> None:
    """A producer that guessed wrong must not send a run to the wrong pool for ever."""
    world.open(S, Z)
    world.enqueue(envelope("a", kind=Kind.ASYNC))
    world.fetch(S)
    world.ack(S, "a", Outcome.GIVEBACK, kind=Kind.SYNC)

    assert world.fetch(S) == []
    assert world.turn(Z, want=1, kind=Kind.SYNC).runs[0].envelope.template.kind is Kind.SYNC
    assert world.fsck() == []


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_run_cancelled_while_it_ran_does_not_come_back(world: StoreCalls, outcome: Outcome) -> None:
    """Whatever its worker reports: the data is gone, so there is nothing to run again or to keep."""
    world.open(S)
    world.enqueue(envelope("a"))
    world.fetch(S)
    world.cancel("a")

    assert world.ack(S, "a", outcome).stale == []
    assert world.fetch(S) == []
    counts = world.run(world.queues.counts("default"))
    assert (counts.running, counts.later, counts.dead, counts.ready_total) == (0, 0, 0, 0)
    assert world.fsck() == []


def test_cancelled_runs_in_a_list_are_dropped_and_not_counted(world: StoreCalls) -> None:
    """Cancelling is one deletion; whoever meets the id in the list drops it and goes on."""
    world.open(S)
    world.enqueue(*(envelope(f"r{i}") for i in range(30)))
    for i in range(25):
        world.cancel(f"r{i}")

    assert world.fetch(S, want=3) == ["r25", "r26", "r27"]
    assert world.run(world.queues.counts("default")).stats["cancelled"] == 25


@pytest.mark.usefixtures("no_leaks")
def test_a_charged_run_that_was_cancelled_leaves_nothing(world: StoreCalls) -> None:
    """Its counters and its last error go when its id is met, wherever it waited."""
    world.open(S)
    world.enqueue(envelope("ready"), envelope("later"))
    world.fetch(S)
    world.ack(S, "ready", Outcome.RETRY, error={"why": "x"})
    world.ack(S, "later", Outcome.RETRY, error={"why": "x"}, retry_delay_ms=60_000)
    world.cancel("ready")
    world.cancel("later")
    assert world.fsck() == []
    world.make_due("later")

    assert world.fetch(S) == []
    assert world.fsck() == []
    world.run(world.sessions.close(S))


def test_a_delayed_run_without_data_is_dropped_when_due(world: StoreCalls) -> None:
    """A cancelled retry leaves its id behind; promotion clears it away."""
    world.open(S)
    world.enqueue(envelope("a"), envelope("b"), delays_ms=[60_000, 60_000])
    world.cancel("a")
    world.make_due("a")
    world.make_due("b")

    assert world.fetch(S) == ["b"]
    assert world.run(world.queues.counts("default")).later == 0


def test_promotion_is_bounded_and_says_that_more_is_due(world: StoreCalls) -> None:
    """A thousand due runs must not hold the server in one call."""
    world.open(S)
    world.enqueue(*(envelope(f"r{i:03}") for i in range(100)), delays_ms=[60_000] * 100)
    for i in range(100):
        world.make_due(f"r{i:03}")

    reply = world.turn(S, want=200)
    assert len(reply.runs) == 64
    assert reply.next_due_ms == 1
    assert len(world.turn(S, want=200).runs) == 36
    assert world.fsck() == []


@pytest.mark.parametrize("want", [1, 3, 10, 20])
def test_high_normal_and_low_have_six_three_and_one_of_ten_slots(world: StoreCalls, want: int) -> None:
    """A steady stream above cannot starve what is below, however many slots a turn has; and none of ten lack any."""
    world.open(S)
    world.enqueue(*(envelope(f"{name}{i}", priority=p) for p, name in enumerate("hnl") for i in range(60)))
    taken = [run_id[0] for _ in range(60 // want) for run_id in world.fetch(S, want=want)]
    assert {name: taken.count(name) for name in "hnl"} == {"h": 36, "n": 18, "l": 6}
    if want == 1:
        assert all(taken[i : i + 10].count("l") == 1 for i in range(50))


def test_what_a_class_cannot_use_goes_to_the_others_highest_first(world: StoreCalls) -> None:
    """A share is a guarantee, not a fence: no slot stays empty while anything waits."""
    world.open(S)
    world.enqueue(*(envelope(f"{name}{i}", priority=p) for p, name in enumerate("hnl") for i in (0, 1)))
    assert world.fetch(S, want=5) == ["h0", "h1", "n0", "n1", "l0"]
    world.enqueue(*(envelope(f"m{i}", priority=1) for i in range(12)))
    assert world.fetch(S, want=10) == [*(f"m{i}" for i in range(9)), "l1"]


def test_no_queue_is_always_first(world: StoreCalls) -> None:
    """One busy queue must not shut out another of the same pool; whose turn it is goes by the server's clock."""
    world.open(S)
    for queue in ("qa", "qb"):
        world.enqueue(*(envelope(f"{queue}{i}", queue=queue) for i in range(40)))

    first = {world.fetch(S, want=1, queues=["qa", "qb"])[0][:2] for _ in range(40)}
    assert first == {"qa", "qb"}
    assert world.run(world.queues.names()) == ["qa", "qb"]


def test_a_pool_gets_only_its_kind_and_its_queues(world: StoreCalls) -> None:
    """A plain function must not land in an event loop."""
    world.open(S)
    world.enqueue(envelope("a", kind=Kind.ASYNC), envelope("s", kind=Kind.SYNC), envelope("o", queue="other"))

    assert world.fetch(S) == ["a"]
    assert world.fetch(S, kind=Kind.SYNC) == ["s"]
    assert world.fetch(S, queues=["never-used", "other"]) == ["o"]
