"""``maintenance.*``: jobs that look after Tenure's own queues.

Guarantees
    They only drop ended runs: history beyond its cap, and dead runs beyond theirs or older
    than asked. Runs that wait, run or are due later are read at most.
    Each call to Redis is bounded, so that none holds the server for longer than milliseconds.
"""

from __future__ import annotations

from typing import TypedDict, cast

from supervisor.core.effects import drive
from supervisor.core.errors import StoreRefusedError
from supervisor.operations.queues import verify
from supervisor.store.producer.connection import current
from supervisor.store.producer.producer import Producer
from supervisor.store.queues.reads import QueueReads
from supervisor.store.queues.runs import Queues
from tenure import Context, Retry, job

CALLS_MAX = 10_000  # of one queue, each dropping up to 500 dead runs
DAYS_MAX = 3650.0
RESERVE_S = 5.0
SHOWN_MAX = 10


class TrimResult(TypedDict):
    """Result of one clean-up of the queues."""

    queues: int
    dropped: int
    complete: bool  # false: stopped at its deadline, and the next run goes on


class VerifyResult(TypedDict):
    """Result of one verification of the queues."""

    queues: int
    violations: list[str]


class QueueInvariantError(RuntimeError):
    """A queue contradicts itself. Runs may be stuck; the message names them."""


@job("maintenance.trim_history")
def trim_history(ctx: Context, *, dead_days: float | None = None) -> TrimResult:
    """Trim every queue to ``queues.history`` and ``queues.dead`` of the configuration.

    Busy queues are trimmed as they work; this reaches those that nobody uses any more.

    Args:
        ctx: the run's context.
        dead_days: drop dead runs that died longer ago as well; default: keep them up to their cap.

    Raises:
        StoreRefusedError: Redis refuses a queue alone; the others are trimmed.
    """
    if dead_days is not None and not 0 < dead_days <= DAYS_MAX:
        raise ValueError(f"dead_days must be above 0 and at most {DAYS_MAX:.0f}, got {dead_days}")
    producer = _producer_of(ctx)
    before_ms = 0 if dead_days is None else ctx.clock.wall_ms() - round(dead_days * 86_400_000)
    queues = Queues(producer.keys)
    names = producer.run(QueueReads(producer.keys).names())
    result = TrimResult(queues=len(names), dropped=0, complete=True)
    refused = None
    for name in names:
        call = queues.trim(
            name,
            history=producer.limits.history,
            dead_cap=producer.limits.dead,
            dead_before_ms=max(0, before_ms),
            dead_age_ms=round(1000 * (producer.limits.dead_age_s or 0)),
            history_age_ms=round(1000 * (producer.limits.history_age_s or 0)),
        )
        try:
            for _ in range(CALLS_MAX):
                if ctx.soft_remaining_s() < RESERVE_S:
                    result["complete"] = False
                    break
                dropped = producer.run(call)
                result["dropped"] += dropped
                if dropped == 0:
                    break
        except StoreRefusedError as error:  # such as for a key of another type
            if error.concerns_client:
                raise
            refused = error
    ctx.log.info("queues_trimmed", **result)
    if refused is not None:
        raise refused
    return result


@job("maintenance.verify_queues", retry=Retry(attempts=1))
def verify_queues(ctx: Context) -> VerifyResult:
    """Verify the invariants of every queue, while they are at work.

    Args:
        ctx: the run's context.

    Raises:
        QueueInvariantError: at least one does not hold; names them. The full list is in the log.
    """
    producer = _producer_of(ctx)
    names = producer.run(QueueReads(producer.keys).names())
    faults = drive(verify(producer.keys, names), producer.run)
    violations = [": ".join(part for part in (fault.queue, fault.what, fault.problem) if part) for fault in faults]
    for violation in violations:
        ctx.log.error("queue_invariant_violated", violation=violation)
    if violations:
        more = f"\nand {len(violations) - SHOWN_MAX} more" if len(violations) > SHOWN_MAX else ""
        raise QueueInvariantError("\n".join(violations[:SHOWN_MAX]) + more)
    return VerifyResult(queues=len(names), violations=[])


def _producer_of(ctx: Context) -> Producer:
    """Return the worker's, with the limits of its configuration; another job of it may have connected elsewhere."""
    return cast("Producer | None", ctx.producer) or current()
