"""Task messages between lists of SpaceONE and our queues, on fakeredis and a real server."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from supervisor.compat.cloudforet import jobs
from supervisor.core.effects import Call
from supervisor.core.errors import StoreRefusedError
from supervisor.core.jobs.registry import registry
from supervisor.core.model import PAYLOAD_BYTES_MAX, Kind
from supervisor.store.queues.bridges import Bridges, Ingested
from supervisor.store.wire.envelope import unpack
from tests.kit.builders import StoreCalls, envelope
from tests.kit.servers import on_both

CHANNEL, QUEUE = "identity_job", "identity_q"
TASK: dict[str, Any] = {"stages": [], "name": 'quotes " and \\ and \n and é'}


@pytest.fixture
def bridges(world: StoreCalls) -> Bridges:
    """Return the calls of one cluster."""
    assert jobs.__name__
    return Bridges(world.keys)


def ingest(bridges: Bridges, most: int = 200) -> Call[Ingested]:
    """Return the call that moves messages."""
    run, refused = (registry.get(name).base for name in ("cloudforet.stp", "cloudforet.refused"))
    return bridges.ingest(channel=CHANNEL, queue=QUEUE, run=run, refused=refused, now_ms=1, most=most)


def queued(world: StoreCalls) -> dict[str, Any]:
    """Return the arguments of each run that is queued, by id, in the order in which they are ready."""
    keys = world.keys.queue(QUEUE)
    ids = world.raw.lrange(f"{keys.prefix}ready:s:1", 0, -1)
    envelopes = {each.decode(): unpack(world.raw.hget(keys.data, each)) for each in ids}  # type: ignore[arg-type]
    return {run_id: envelope.template.args for run_id, envelope in envelopes.items()}


def test_messages_become_runs_in_their_order(world: StoreCalls, bridges: Bridges) -> None:
    """Each leaves their list in the step in which its run comes into being, as it was written."""
    messages = [json.dumps({**TASK, "number": number}) for number in range(3)]
    world.raw.rpush(CHANNEL, *messages)

    assert world.run(ingest(bridges, most=2)) == Ingested(2, 0, 1)
    assert world.run(ingest(bridges)) == Ingested(1, 0, 0)
    assert world.run(ingest(bridges)) == Ingested(0, 0, 0)

    found = queued(world)
    assert [args["message"] for args in found.values()] == messages
    assert list(found) == [f"stp:{QUEUE}:{number}" for number in (1, 2, 3)]
    assert world.raw.exists(CHANNEL) == 0
    assert world.raw.hget(world.keys.queue(QUEUE).stat, "in") == b"3"


def test_a_message_takes_no_id_of_a_run_that_is_there(world: StoreCalls, bridges: Bridges) -> None:
    """A producer may have chosen it; the message would take its data, and one of the two would never run."""
    world.enqueue(envelope(f"stp:{QUEUE}:1", queue=QUEUE, kind=Kind.SYNC, args={"mine": 1}))
    world.raw.rpush(CHANNEL, json.dumps(TASK), json.dumps(TASK))
    world.run(ingest(bridges))

    assert list(queued(world)) == [f"stp:{QUEUE}:{number}" for number in (1, 2, 3)]
    assert queued(world)[f"stp:{QUEUE}:1"] == {"mine": 1}


def test_equal_messages_are_different_runs(world: StoreCalls, bridges: Bridges) -> None:
    """An hourly task is the same text every hour; nothing in it says which hour."""
    world.raw.rpush(CHANNEL, json.dumps(TASK), json.dumps(TASK))
    world.run(ingest(bridges))
    assert len(queued(world)) == 2


def test_a_message_that_is_too_large_is_set_aside_and_told(world: StoreCalls, bridges: Bridges) -> None:
    """It neither blocks the list nor vanishes: a run that ends dead says where it is."""
    large = json.dumps({**TASK, "pad": "x" * PAYLOAD_BYTES_MAX})
    world.raw.rpush(CHANNEL, large, json.dumps(TASK))

    assert world.run(ingest(bridges)) == Ingested(2, 1, 0)
    first, second = queued(world).values()
    assert f"it has {len(large)} bytes, the limit is {PAYLOAD_BYTES_MAX}" in first["reason"]
    assert second == {"message": json.dumps(TASK)}
    assert world.raw.lrange(f"{world.keys.prefix}cloudforet:aside:{QUEUE}", 0, -1) == [large.encode()]


def test_long_messages_are_moved_a_few_at_a_time(world: StoreCalls, bridges: Bridges) -> None:
    """200 of the longest would hold the server up for longer than a leader has to renew its lease."""
    long = json.dumps({**TASK, "pad": "x" * 60_000})
    world.raw.rpush(CHANNEL, *[long] * 10, json.dumps(TASK))

    assert world.run(ingest(bridges)) == Ingested(5, 0, 6)  # up to 256 KiB, and the one that goes beyond
    assert world.run(ingest(bridges)) == Ingested(5, 0, 1)
    assert world.run(ingest(bridges)) == Ingested(1, 0, 0)
    assert [args["message"] for args in queued(world).values()] == [long] * 10 + [json.dumps(TASK)]


def test_a_message_that_no_worker_could_read_as_a_run_is_set_aside(world: StoreCalls, bridges: Bridges) -> None:
    """Of a longer record workers get the beginning; as JSON within JSON each tab has six bytes."""
    message = json.dumps({**TASK, "pad": ["x"] * 700}, indent="\t" * 30)
    assert len(message) < PAYLOAD_BYTES_MAX
    world.raw.rpush(CHANNEL, message, json.dumps(TASK))

    assert world.run(ingest(bridges)) == Ingested(2, 1, 0)
    first, second = queued(world).values()
    assert "bytes as a run, the limit is 131072; it was set aside in the list" in first["reason"]
    assert second == {"message": json.dumps(TASK)}
    assert world.raw.lrange(f"{world.keys.prefix}cloudforet:aside:{QUEUE}", 0, -1) == [message.encode()]


def test_bytes_that_are_no_text_reach_the_worker_that_says_so(world: StoreCalls, bridges: Bridges) -> None:
    """The list holds whatever somebody pushed; the run cannot be read, and is buried with that reason."""
    world.raw.rpush(CHANNEL, b"\xff\xfe\x00")
    world.run(ingest(bridges))
    (data,) = world.raw.hvals(world.keys.queue(QUEUE).data)
    try:
        assert unpack(data).template.args["message"]
    except msgspec.DecodeError:
        assert b"\xff" in data


def test_a_key_that_is_no_list_is_refused_and_left_alone(world: StoreCalls, bridges: Bridges) -> None:
    """A wrong channel in the configuration must not destroy what somebody keeps there."""
    world.raw.set(CHANNEL, "theirs")
    with pytest.raises(StoreRefusedError, match="its key holds something else"):
        world.run(ingest(bridges))
    with pytest.raises(StoreRefusedError, match="its key holds something else"):
        world.run(bridges.emit(channel=CHANNEL, run_id="r", message="{}"))
    assert world.raw.get(CHANNEL) == b"theirs"


def test_a_message_is_pushed_once_for_each_run(world: StoreCalls, bridges: Bridges) -> None:
    """Killed between the push and its acknowledgement, the run is attempted again, and pushes nothing more."""
    push = bridges.emit(channel=CHANNEL, run_id="plan/0", message=json.dumps(TASK))
    assert world.twice(push) == (True, False)
    assert world.run(bridges.emit(channel=CHANNEL, run_id="plan/1", message="{}"))
    assert world.raw.lrange(CHANNEL, 0, -1) == [json.dumps(TASK).encode(), b"{}"]


@on_both("bridge_emit", "bridge_ingest")
def test_ours_and_theirs_share_one_database(world: StoreCalls, bridges: Bridges) -> None:
    """Every key that is not their list begins with the cluster's prefix."""
    world.raw.rpush(CHANNEL, json.dumps(TASK))
    world.run(ingest(bridges))
    world.run(bridges.emit(channel=CHANNEL, run_id="r", message="{}"))
    assert {key for key in world.raw.keys() if not key.startswith(world.keys.prefix.encode())} == {CHANNEL.encode()}  # noqa: SIM118 - it is no mapping
