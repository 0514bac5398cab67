"""Order of runs with a rate: those that it held up keep theirs, and it puts no other run in front."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from supervisor.core.model import Outcome
from supervisor.store.queues.control import QueueControl
from supervisor.store.wire.envelope import pack
from supervisor.testing.server import driven_time
from tests.integration.store.limits.test_store_slot_turns import Pools
from tests.kit.builders import acknowledged, envelope

HOUR_MS = 3_600_000


@pytest.fixture
def pools() -> Iterator[Pools]:
    """A queue without runs, with a worker of one place."""
    made = Pools("bulk")
    made.places["bulk"] = 1
    with driven_time(lambda: made.now_ms / 1000):
        yield made


def enqueue(
    pools: Pools, run_id: str, *, key: str = "k", delay_ms: int = 0, count: int = 0, per_ms: int = 60_000
) -> None:
    limits = {"rate": key, "rate_count": count, "rate_per_ms": per_ms} if count else {}
    packed = pack(envelope(run_id, queue="bulk", **limits))
    runs = [run_id, "bulk", delay_ms, packed.data]
    pools.server.store.run(pools.queues.enqueue_flat(nonce=run_id, ids=[run_id], runs=runs, is_chosen=False))


def pause(pools: Pools, seconds: int) -> None:
    """Pause the queue, whose worker goes on asking once a second."""
    control = QueueControl(pools.server.keys)
    pools.server.store.run(control.pause("bulk", reason="upstream is down"))
    for _ in range(seconds):
        pools.turn("bulk")
        pools.now_ms += 1000
    pools.server.store.run(control.resume("bulk"))


def begin(pools: Pools, count: int, *, places: int, step_ms: int) -> None:
    """Let runs begin, ``places`` at a time, until ``count`` have and none is held."""
    pools.places["bulk"] = places
    while len(pools.begun) < count or pools.held["bulk"]:
        pools.turn("bulk", ended=len(pools.held["bulk"]))
        pools.now_ms += step_ms


@pytest.mark.parametrize("count", [0, 6000])
def test_delayed_runs_start_in_the_order_in_which_they_come_due_whether_they_have_a_rate(
    pools: Pools, count: int
) -> None:
    """One that allows all of them puts none in front: after a pause the last came first, and what was ready last."""
    enqueue(pools, "ready")
    for number in range(20):
        enqueue(pools, f"delayed{number:02}", delay_ms=1000 * (number + 1), count=count)
    pause(pools, 30)

    begin(pools, 21, places=1, step_ms=100)

    assert pools.begun == ["ready", *(f"delayed{number:02}" for number in range(20))]


@pytest.mark.parametrize("count", [0, 60_000])
def test_a_run_that_asks_to_run_again_goes_behind_what_waits_whether_it_has_a_rate(pools: Pools, count: int) -> None:
    """What waits may be what it waits for."""
    enqueue(pools, "asks", count=count)
    enqueue(pools, "waits")
    assert pools.turn("bulk") == ["asks"]
    pools.now_ms += 10
    (run,) = pools.held["bulk"]
    turn = pools.queues.turn(
        session="bulk",
        seq=2,
        kind=run.envelope.template.kind,
        queues=["bulk"],
        want=1,
        want_suspect=False,
        acks=[msgspec.structs.replace(acknowledged(run), outcome=Outcome.AGAIN, retry_delay_ms=0)],
    )
    begun = [each.envelope.id for each in pools.server.store.run(turn).runs]
    assert begun == ["waits"]


def test_the_line_of_a_rate_lasts_for_as_long_as_it_is_served(pools: Pools) -> None:
    """Also where nobody comes any more: it was forgotten after a day, and what was left had no order."""
    for number in range(33):
        enqueue(pools, f"r{number:02}", count=1, per_ms=HOUR_MS)
        pools.turn("bulk", ended=len(pools.held["bulk"]))
        pools.now_ms += 1000
    (line,) = pools.server.store.raw.keys("*:rate:*")

    for _ in range(4 * 30):
        pools.turn("bulk", ended=len(pools.held["bulk"]))
        pools.now_ms += HOUR_MS // 4
        assert pools.server.store.raw.zcard(line) == 33 - len(pools.begun)

    assert pools.begun == sorted(pools.begun)


@pytest.mark.parametrize("count", [10, 100])
def test_runs_that_a_rate_held_up_start_in_their_order_also_after_a_pause(pools: Pools, count: int) -> None:
    """Each came due by itself meanwhile, and went in front of the older ones that had: the last was first."""
    runs = [f"r{number:03}" for number in range(4 * count)]
    for run_id in runs:
        enqueue(pools, run_id, count=count)
    begin(pools, count, places=count, step_ms=0)
    pause(pools, 300)

    begin(pools, len(runs), places=1, step_ms=1000)

    assert pools.begun == runs


def test_runs_of_several_rates_start_in_the_order_of_their_lines_after_a_pause(pools: Pools) -> None:
    """Those of one stand between those of another."""
    runs = {rate: [f"{rate}{number:02}" for number in range(80)] for rate in "ab"}
    for pair in zip(*runs.values(), strict=True):
        for run_id in pair:
            enqueue(pools, run_id, key=run_id[0], count=40)
    begin(pools, 80, places=80, step_ms=0)
    pause(pools, 120)

    begin(pools, 160, places=1, step_ms=1000)

    for rate, wanted in runs.items():
        assert [run_id for run_id in pools.begun if run_id[0] == rate] == wanted
