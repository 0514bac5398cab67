"""Charges of runs in Redis that no script wrote."""

from __future__ import annotations

from supervisor.core.model import Outcome
from supervisor.store.wire.poll import Ack
from tests.kit.builders import StoreCalls, envelope

S = "r1/worker-io-0/1"

FOREIGN_CHARGES = (
    b"@x", b"@", b"@-1", b"@9", b"@1_0", b"1,2,3 s", b"1 @7", b"s", b"", b" ", b"\xff", b"1,2", b"-1,0,0", b"9" * 400,
    b"1,2,3 @" + b"9" * 5000,
)  # fmt: skip
"""Nothing that a script writes; some of it reads like the words that follow the charges in a reply."""


def test_charges_that_nobody_wrote_count_as_none_for_both_sides(world: StoreCalls) -> None:
    """Else the worker names an execution that is not on record, or none at all, and its end is refused for ever."""
    world.open(S)
    ids = [f"r{number}" for number in range(len(FOREIGN_CHARGES))]
    world.enqueue(*map(envelope, ids))
    for run_id, value in zip(ids, FOREIGN_CHARGES, strict=True):
        world.raw.hset(world.keys.queue("default").att, run_id, value)

    first, second = world.twice(world.turn_call(S, want=len(ids)))
    taken = [(run.envelope.id, run.attempt, run.crashes, run.interrupts, run.suspect) for run in first.runs]
    assert taken == [(run_id, 1, 0, 0, False) for run_id in ids]
    assert first.runs == second.runs
    acks = [
        Ack(run_id=run.envelope.id, queue="default", attempt=1, outcome=Outcome.OK, fetched_ms=run.fetched_ms)
        for run in first.runs
    ]
    assert world.turn(S, acks=acks).stale == []
    assert world.fsck() == []
