"""Sessions, published jobs, and putting runs into queues."""

from __future__ import annotations

import pytest

from supervisor.core.errors import PayloadTooLargeError, StoreRefusedError
from supervisor.core.model import PAYLOAD_BYTES_MAX, Kind
from supervisor.store.queues.runs import ENQUEUE_MAX, Enqueued
from supervisor.store.wire.envelope import pack
from tests.kit.builders import StoreCalls, envelope
from tests.kit.servers import on_both

S = "r.1/w-0/1"


@on_both("session_beat", "session_close")
def test_a_session_lives_from_open_to_close(world: StoreCalls) -> None:
    """Opening twice, as after a lost reply, does not reset its beats."""
    assert world.run(world.sessions.open(S, {"pid": 7, "host": "h"}))
    assert world.run(world.sessions.beat([S])) == []
    assert world.run(world.sessions.open(S, {"pid": 7}))
    assert world.run(world.sessions.list()) == {S: 1}
    assert world.run(world.sessions.info(S)) == {"pid": "7", "host": "h"}
    assert world.raw.pttl(world.keys.session(S)) > 0

    world.twice(world.sessions.close(S))
    assert world.run(world.sessions.list()) == {}
    assert world.raw.keys(f"{world.keys.prefix}*") == []


def test_a_beat_tells_which_sessions_are_gone(world: StoreCalls) -> None:
    """An agent that was cut off learns that its workers were reaped."""
    world.open(S, "other")
    world.run(world.sessions.condemn(S, None))

    assert world.run(world.sessions.beat([S, "other", "never"])) == [S, "never"]
    assert world.run(world.sessions.list()) == {"other": 1}
    assert world.run(world.sessions.beat([])) == []


def test_a_session_that_beat_meanwhile_is_not_condemned(world: StoreCalls) -> None:
    """The reaper saw the counter stand still; the script looks once more."""
    world.open(S)
    world.run(world.sessions.beat([S]))

    assert not world.run(world.sessions.condemn(S, 0))
    assert world.twice(world.sessions.condemn(S, 1)) == (True, True)
    assert world.run(world.sessions.dying()) == [S]
    assert not world.run(world.sessions.condemn("unknown", 3))


def test_a_condemned_session_cannot_open_until_it_is_buried(world: StoreCalls) -> None:
    """The open of a killed process may still be on its way when its agent condemns it."""
    assert world.run(world.sessions.condemn(S, None))
    assert not world.run(world.sessions.open(S, {"pid": 1}))
    assert world.turn(S, want=1).lost

    world.twice(world.sessions.bury(S))
    assert world.run(world.sessions.dying()) == []
    assert world.run(world.sessions.open(S, {"pid": 1}))


def test_published_jobs_are_read_back(world: StoreCalls) -> None:
    """A producer that cannot import a job routes by what the agents published."""
    world.twice(world.sessions.publish_jobs({"b": '{"k":1}', "a": b"{}"}))
    world.run(world.sessions.publish_jobs({"b": "{}"}))
    assert world.run(world.sessions.read_jobs()) == {"a": b"{}", "b": b"{}"}


def test_an_id_is_enqueued_once(world: StoreCalls) -> None:
    """The same id names the same run, from whatever producer."""
    assert world.enqueue(envelope("a"), envelope("b"), envelope("a")) == [True, True, False]
    assert world.enqueue(envelope("b"), envelope("c")) == [False, True]
    counts = world.run(world.queues.counts("default"))
    assert (counts.ready_total, counts.stats["in"]) == (3, 3)
    assert world.fsck() == []


def test_a_repeated_batch_is_remembered_although_its_runs_ended(world: StoreCalls) -> None:
    """The id alone would not do: the run is finished, its record gone, and the retry would run it again."""
    world.open(S)
    call = world.queues.enqueue(nonce="n1", envelopes=[envelope("a"), envelope("b")], delays_ms=[0, 60_000])
    assert world.run(call) == [Enqueued("a", is_new=True), Enqueued("b", is_new=True)]
    world.fetch(S)
    world.ack(S, "a")

    assert world.run(call) == [Enqueued("a", is_new=True), Enqueued("b", is_new=True)]
    counts = world.run(world.queues.counts("default"))
    assert (counts.ready_total, counts.later) == (0, 1)
    assert 0 < world.raw.pttl(f"{world.keys.enqueues}n1") <= 600_000


def test_delayed_runs_wait_and_an_earlier_one_wakes_who_waits_longer(world: StoreCalls) -> None:
    """A worker that blocks until the former first due time must learn of an earlier one."""
    bell = world.keys.queue("default").bell(Kind.ASYNC)
    world.enqueue(envelope("late"), delays_ms=[60_000])
    assert world.rung(bell) == bell
    world.enqueue(envelope("later"), delays_ms=[90_000])
    assert world.rung(bell) is None
    world.enqueue(envelope("soon"), delays_ms=[1_000])
    assert world.rung(bell) == bell
    assert world.run(world.queues.counts("default")).later == 3


def test_the_largest_batch_and_the_largest_envelope(world: StoreCalls) -> None:
    """Both limits are reached, and neither is passed."""
    assert all(world.enqueue(*(envelope(f"r{i}") for i in range(ENQUEUE_MAX))))
    assert world.fsck() == []
    frame = len(pack(envelope("big", args={"blob": ""})).data) - 2  # without the two characters in front
    world.enqueue(envelope("big", args={"blob": "x" * (PAYLOAD_BYTES_MAX - frame)}))
    with pytest.raises(PayloadTooLargeError, match="65537 bytes"):
        world.enqueue(envelope("big", args={"blob": "x" * (PAYLOAD_BYTES_MAX - frame + 1)}))


@pytest.mark.parametrize("bad", [("nonce",), ("nonce", "id", "default"), ("nonce", "0", "id", "default", "-1", "a1{}"),
                                 ("nonce", "0", "id", "default", "0", "z1{}"), ("", "0", "id", "default", "0", "a1{}"),
                                 ("nonce", "soon", "id", "default", "0", "a1{}")])  # fmt: skip
def test_a_malformed_batch_writes_nothing(world: StoreCalls, bad: tuple[str, ...]) -> None:
    """Arguments are judged before the first write."""
    call = world.queues.enqueue(nonce="n", envelopes=[envelope("a")])
    with pytest.raises(StoreRefusedError, match="BADARG"):
        world.run(type(call)(call.script, call.keys, bad, call.parse))
    assert world.raw.keys(f"{world.keys.prefix}*") == []


@on_both("queue_dead", "queue_fsck", "queue_recent", "queue_running", "queue_trim")
def test_an_unknown_queue_is_an_empty_one(world: StoreCalls) -> None:
    """Reading, fetching from and checking what never was is no error and leaves nothing."""
    world.open(S)
    assert world.fetch(S, queues=["nowhere"]) == []
    counts = world.run(world.queues.counts("nowhere"))
    assert (counts.ready_total, counts.running, counts.oldest_ready_ms, counts.stats) == (0, 0, None, {})
    for call in (world.queues.fsck("nowhere"), world.queues.dead("nowhere"), world.queues.recent("nowhere")):
        assert world.run(call) == []
    assert world.run(world.queues.running("nowhere")).items == []
    assert world.run(world.queues.trim("nowhere")) == 0
    assert world.raw.keys(f"{world.keys.prefix}q:*") == []
