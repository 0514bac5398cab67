"""``identity.token_cleanup``: delete tokens that have expired, a bounded batch at a time.

Guarantees
    Each batch is a transaction of its own, so that locks are short and deleted rows stay
    deleted when the run is cut off. It reads the index on ``expires_at`` and nothing else, stops
    well before its deadline, and never deletes a token that has not expired or never will.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from sqlalchemy import Connection, Engine, delete, select

from tenure import Context, job
from tenure.jobs.identity.database import DEFAULT, DatabaseArgument, open_database
from tenure.jobs.identity.models import tokens

BATCH_MAX = 10_000
BATCHES_MAX = 1_000_000
RESERVE_S = 5.0  # of the time left: a batch takes milliseconds, waiting for a lock may take longer


class CleanupResult(TypedDict):
    """Result of one clean-up of tokens."""

    deleted: int
    batches: int
    complete: bool  # false: stopped at a limit, and the next run goes on


@job("identity.token_cleanup")
def token_cleanup(
    ctx: Context, *, database: DatabaseArgument = DEFAULT, batch: int = 500, max_batches: int = 1000
) -> CleanupResult:
    """Delete expired tokens.

    Args:
        ctx: the run's context.
        database: URL without a password, or ``env:NAME`` or ``file:/path`` of any.
        batch: how many to delete in one transaction, 1 to 10000.
        max_batches: how many transactions at most.
    """
    if not 1 <= batch <= BATCH_MAX:
        raise ValueError(f"batch must be 1 to {BATCH_MAX}, got {batch}")
    if not 1 <= max_batches <= BATCHES_MAX:
        raise ValueError(f"max_batches must be 1 to {BATCHES_MAX}, got {max_batches}")
    with open_database(database) as engine:
        result = clean(
            engine,
            expired_ms=ctx.clock.wall_ms(),
            batch=batch,
            max_batches=max_batches,
            may_go_on=lambda: ctx.soft_remaining_s() >= RESERVE_S,
        )
    ctx.log.info("tokens_cleaned", **result)
    return result


def clean(
    engine: Engine, *, expired_ms: int, batch: int, max_batches: int, may_go_on: Callable[[], bool]
) -> CleanupResult:
    """Delete the tokens that expired at or before ``expired_ms``, within the limits."""
    result = CleanupResult(deleted=0, batches=0, complete=False)
    while not result["complete"] and result["batches"] < max_batches and may_go_on():
        with engine.begin() as connection:
            deleted = _delete_batch(connection, expired_ms, batch)
        result["deleted"] += deleted
        result["batches"] += 1
        result["complete"] = deleted < batch
    return result


def _delete_batch(connection: Connection, expired_ms: int, batch: int) -> int:
    """Delete the oldest; rows that another run is deleting are left to it (PostgreSQL; SQLite has one writer)."""
    oldest = (
        select(tokens.c.id)
        .where(tokens.c.expires_at <= expired_ms)
        .order_by(tokens.c.expires_at)
        .limit(batch)
        .with_for_update(skip_locked=True)
    )
    ids = list(connection.scalars(oldest))
    if ids:
        connection.execute(delete(tokens).where(tokens.c.id.in_(ids)))
    return len(ids)
