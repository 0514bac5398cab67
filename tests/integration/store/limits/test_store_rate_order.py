"""Order of runs with a rate: those that it held up keep theirs for weeks, and it puts no other run in front."""

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


def enqueue(pools: Pools, run_id: str, *, delay_ms: int = 0, per_minute: int = 0) -> None:
    limits = {"rate": "k", "rate_count": per_minute, "rate_per_ms": 60_000} if per_minute else {}
    packed = pack(envelope(run_id, queue="bulk", **limits))
    runs = [run_id, "bulk", delay_ms, packed.data]
    pools.server.store.run(pools.queues.enqueue_flat(nonce=run_id, ids=[run_id], runs=runs, is_chosen=False))


@pytest.mark.parametrize("per_minute", [0, 6000])
def test_delayed_runs_start_in_the_order_in_which_they_come_due_whether_they_have_a_rate(
    pools: Pools, per_minute: int
) -> None:
    """One that allows all of them puts none in front: after a pause the last came first, and what was ready last."""
    control = QueueControl(pools.server.keys)
    enqueue(pools, "ready")
    for number in range(20):
        enqueue(pools, f"delayed{number:02}", delay_ms=1000 * (number + 1), per_minute=per_minute)
    pools.server.store.run(control.pause("bulk", reason="upstream is down"))
    for _ in range(30):
        pools.turn("bulk")
        pools.now_ms += 1000
    pools.server.store.run(control.resume("bulk"))

    for _ in range(40):
        pools.turn("bulk", ended=len(pools.held["bulk"]))
        pools.now_ms += 100

    assert pools.begun == ["ready", *(f"delayed{number:02}" for number in range(20))]


@pytest.mark.parametrize("per_minute", [0, 60_000])
def test_a_run_that_asks_to_run_again_goes_behind_what_waits_whether_it_has_a_rate(
    pools: Pools, per_minute: int
) -> None:
    """What waits may be what it waits for."""
    enqueue(pools, "asks", per_minute=per_minute)
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


def test_a_pause_of_a_week_leaves_those_that_wait_for_a_rate_in_their_order(pools: Pools) -> None:
    """Also those that come meanwhile are behind them."""
    control, places = QueueControl(pools.server.keys), pools.places
    places["bulk"] = 10
    for number in range(8):
        enqueue(pools, f"r{number}", per_minute=1)
        pools.turn("bulk", ended=len(pools.held["bulk"]))
        pools.now_ms += 1000
    pools.server.store.run(control.pause("bulk", reason="upstream is down"))
    for _ in range(7 * 24):
        pools.turn("bulk", ended=len(pools.held["bulk"]))
        pools.now_ms += HOUR_MS
    pools.server.store.run(control.resume("bulk"))
    enqueue(pools, "r8", per_minute=1)

    for _ in range(40):
        pools.turn("bulk", ended=len(pools.held["bulk"]))
        pools.now_ms += 20_000

    assert pools.begun == [f"r{number}" for number in range(9)]
