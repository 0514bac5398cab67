"""identity.token_cleanup on real databases."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, func, insert, select, text

from supervisor.clock import SystemClock
from tenure import Context
from tenure.jobs.identity import token_cleanup
from tenure.jobs.identity.models import domains, tokens
from tenure.jobs.identity.token_cleanup import clean

pytestmark = pytest.mark.xdist_group("databases")


@pytest.fixture
def issued(engine: Engine) -> Engine:
    """A database with a domain; tokens refer to it."""
    row = {"id": "d", "name": "D", "tenant": "", "state": "ENABLED", "source": "s", "first_seen": 1, "last_seen": 1}
    with engine.begin() as connection:
        connection.execute(insert(domains).values(row))
    return engine


def issue(engine: Engine, *expiries: int | None) -> None:
    """Issue tokens that expire at these times."""
    with engine.begin() as connection:
        start = connection.scalar(select(func.count()).select_from(tokens)) or 0
        rows = [
            {"domain_id": "d", "hash": f"h{start + number}", "created": 1, "expires_at": expiry}
            for number, expiry in enumerate(expiries)
        ]
        connection.execute(insert(tokens), rows)


def left(engine: Engine) -> list[int | None]:
    """Return when the tokens that are left expire."""
    with engine.connect() as connection:
        return list(connection.scalars(select(tokens.c.expires_at).order_by(tokens.c.id)))


def test_expired_tokens_go_and_no_others(ctx: Context, database: str, issued: Engine) -> None:
    """A token without an expiry never expires."""
    now_ms = SystemClock().wall_ms()
    issue(issued, 1, now_ms - 1, now_ms + 3_600_000, None)

    assert token_cleanup(ctx, database=database) == {"deleted": 2, "batches": 1, "complete": True}
    assert left(issued) == [now_ms + 3_600_000, None]
    assert token_cleanup(ctx, database=database) == {"deleted": 0, "batches": 1, "complete": True}


@pytest.mark.share(2)
def test_a_backlog_is_deleted_batch_by_batch(ctx: Context, database: str, issued: Engine) -> None:
    """Oldest first, a transaction each; the last batch is the one that is not full."""
    issue(issued, *range(1, 26))

    assert token_cleanup(ctx, database=database, batch=10) == {"deleted": 25, "batches": 3, "complete": True}
    assert left(issued) == []


def test_the_limit_of_batches_is_kept(ctx: Context, database: str, issued: Engine) -> None:
    """The next run goes on where this one stopped."""
    issue(issued, *range(1, 31))

    assert token_cleanup(ctx, database=database, batch=10, max_batches=2) == {
        "deleted": 20, "batches": 2, "complete": False,
    }  # fmt: skip
    assert left(issued) == list(range(21, 31))


def test_it_stops_before_its_deadline(database: str, issued: Engine) -> None:
    """A run that is killed while it deletes would be charged with a crash for being diligent."""
    issue(issued, *range(1, 31))
    clock = SystemClock()
    hurried = Context(run_id="r", job="j", clock=clock, soft_deadline_ns=clock.elapsed_ns() + 4_900_000_000)

    assert token_cleanup(hurried, database=database, batch=10) == {"deleted": 0, "batches": 0, "complete": False}
    answers: Iterator[bool] = iter([True, False])
    result = clean(issued, expired_ms=100, batch=10, max_batches=9, may_go_on=lambda: next(answers))
    assert result == {"deleted": 10, "batches": 1, "complete": False}


@pytest.mark.parametrize(("batch", "max_batches"), [(0, 1), (10_001, 1), (1, 0), (1, 1_000_001)])
def test_limits_outside_their_range_are_refused(ctx: Context, batch: int, max_batches: int) -> None:
    """Before anything is opened."""
    with pytest.raises(ValueError, match=f"got {batch if batch != 1 else max_batches}"):
        token_cleanup(ctx, database="sqlite://", batch=batch, max_batches=max_batches)


def test_the_index_finds_what_has_expired(ctx: Context, database: str, issued: Engine) -> None:
    """Reading a table of millions of living tokens every ten minutes would be the job's main effect."""
    if issued.dialect.name == "sqlite":
        plan = "EXPLAIN QUERY PLAN"
    else:
        plan = "EXPLAIN"
        issue(issued, *range(1_000_000, 1_003_000))
        with issued.begin() as connection:
            connection.execute(text("ANALYZE tokens"))
    with issued.connect() as connection:
        query = "SELECT id FROM tokens WHERE expires_at <= 5 ORDER BY expires_at LIMIT 500"
        steps = "\n".join(str(row) for row in connection.execute(text(f"{plan} {query}")))
    assert "ix_tokens_expires_at" in steps


@pytest.mark.share(2)
def test_two_at_once_delete_each_token_once(database: str, issued: Engine) -> None:
    """Rows that one is deleting are left to it by the other; nothing waits, and nothing fails."""
    issue(issued, *range(1, 401))
    deleted: list[int] = []

    def run() -> None:
        deleted.append(token_cleanup(Context(run_id="r", job="j"), database=database, batch=7)["deleted"])

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert left(issued) == []
    assert sum(deleted) == 400
