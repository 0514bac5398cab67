"""``identity.endpoint_verification``: ask every registered endpoint whether it answers.

Guarantees
    At most ``concurrency`` requests at once, and at most one run's share of endpoints: those
    verified longest ago come first, so a run cut short starves none of them. One endpoint never
    fails the run: its failure is its state. SQL never runs on the event loop.
    Nothing of an answer is kept but its status and how long it took to begin.

Does not guarantee
    That an endpoint is genuine: any status below 400 counts as well. Redirects are not
    followed, and no credentials are sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypedDict

import aiohttp
from sqlalchemy import Engine, bindparam, case, func, select, update
from sqlalchemy.exc import SQLAlchemyError
from yarl import URL

from supervisor.clock import Clock
from tenure import Context, job
from tenure.jobs.destinations import Client, failure_reason
from tenure.jobs.http import tls_context
from tenure.jobs.identity.database import DEFAULT, DatabaseArgument, open_database, reading
from tenure.jobs.identity.models import ENABLED, ERROR_CHARS, FAILING, OK, domains, endpoints

CONCURRENCY_MAX = 200
TIMEOUT_S_MAX = 60.0
ENDPOINTS_MAX = 100_000
STORE_EVERY = 100
BROKEN_TOLD_MAX = 20


class VerificationResult(TypedDict):
    """Result of a verification: counts of the checked endpoints by their state."""

    checked: int
    ok: int
    failing: int
    recovered: int  # FAILING before, OK now
    broken: int  # OK before, FAILING now


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint to ask."""

    id: int
    url: str
    state: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of checking one endpoint."""

    endpoint: Endpoint
    checked_ms: int
    latency_ms: int
    status: int | None
    error: str | None

    @property
    def state(self) -> str:
        """OK or FAILING."""
        return OK if self.status is not None and self.status < 400 else FAILING


@job("identity.endpoint_verification", timeout=600.0)
async def endpoint_verification(
    ctx: Context,
    *,
    database: DatabaseArgument = DEFAULT,
    concurrency: int = 10,
    timeout: float = 5.0,  # noqa: ASYNC109 - of one request
    limit: int = 10_000,
    ca_file: str | None = None,
) -> VerificationResult:
    """Check the endpoints of all enabled domains over HTTP and store state and latency.

    Args:
        ctx: the run's context.
        database: URL without a password, or ``env:NAME`` or ``file:/path`` of any.
        concurrency: how many requests at once, 1 to 200.
        timeout: seconds for one request, at most 60.
        limit: how many endpoints one run checks at most, 1 to 100000.
        ca_file: PEM file of the authorities to trust; default: those of the system.
    """
    if not 1 <= concurrency <= CONCURRENCY_MAX:
        raise ValueError(f"concurrency must be 1 to {CONCURRENCY_MAX}, got {concurrency}")
    if not 0 < timeout <= TIMEOUT_S_MAX:
        raise ValueError(f"timeout must be above 0 and at most {TIMEOUT_S_MAX:.0f} seconds, got {timeout}")
    if not 1 <= limit <= ENDPOINTS_MAX:
        raise ValueError(f"limit must be 1 to {ENDPOINTS_MAX}, got {limit}")
    registered = await asyncio.to_thread(_registered, database, limit)
    tls = await asyncio.to_thread(tls_context, ca_file) if ca_file is not None else None
    round_ = _Round(database, ctx.clock, timeout)
    async with Client(tls, connections=concurrency) as client:
        await round_.check_all(client, registered, concurrency)
    for verdict in round_.broken:
        ctx.log.warning("endpoint_broken", endpoint=verdict.endpoint.id, status=verdict.status, error=verdict.error)
    ctx.log.info("endpoints_verified", **round_.result)
    return round_.result


class _Round:
    """One pass over the endpoints: tasks share an iterator, and verdicts are stored as they gather."""

    def __init__(self, database: str, clock: Clock, timeout_s: float) -> None:
        self.result = VerificationResult(checked=0, ok=0, failing=0, recovered=0, broken=0)
        self._database = database
        self._clock = clock
        self._timeout_s = timeout_s
        self._gathered: list[Verdict] = []
        self.broken: list[Verdict] = []  # the first of them, to be told one by one
        self._storing = asyncio.Lock()

    async def check_all(self, client: Client, registered: Iterable[Endpoint], concurrency: int) -> None:
        shared = iter(registered)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(concurrency):
                    tasks.create_task(self._check_in_turn(client, shared))
        except ExceptionGroup as group:  # not except*: that of Python 3.11.2 makes a group of what it raises
            failed = group.subgroup(SQLAlchemyError)
            raise group if failed is None else failed.exceptions[0] from None  # the database's own words
        finally:
            # Cut off by the soft timeout, what was learnt so far is still worth having.
            await self._store()

    async def _check_in_turn(self, client: Client, shared: Iterator[Endpoint]) -> None:
        for endpoint in shared:
            verdict = await self._ask(client, endpoint)
            self._gathered.append(verdict)  # looked up after the await: the list may be another one by then
            if len(self._gathered) >= STORE_EVERY:
                await self._store()

    async def _ask(self, client: Client, endpoint: Endpoint) -> Verdict:
        started_ns = self._clock.elapsed_ns()
        status: int | None = None
        error: str | None = None
        try:
            session = await client.to(URL(endpoint.url))
            async with (
                asyncio.timeout(self._timeout_s),
                session.get(endpoint.url, allow_redirects=False) as response,
            ):
                status = response.status
        except TimeoutError:
            error = f"no answer within {self._timeout_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as problem:
            error = failure_reason(problem)[:ERROR_CHARS]
        latency_ms = (self._clock.elapsed_ns() - started_ns) // 1_000_000
        return Verdict(endpoint, self._clock.wall_ms(), latency_ms, status, error)

    async def _store(self) -> None:
        async with self._storing:
            verdicts, self._gathered = self._gathered, []
            if verdicts:
                await asyncio.to_thread(_record, self._database, verdicts)
        for verdict in verdicts:
            self._count(verdict)

    def _count(self, verdict: Verdict) -> None:
        self.result["checked"] += 1
        before, now = verdict.endpoint.state, verdict.state
        self.result["ok"] += now == OK
        self.result["failing"] += now == FAILING
        self.result["recovered"] += (before, now) == (FAILING, OK)
        if (before, now) == (OK, FAILING):
            self.result["broken"] += 1
            if len(self.broken) < BROKEN_TOLD_MAX:
                self.broken.append(verdict)


def _registered(database: str, limit: int) -> list[Endpoint]:
    """Return the endpoints of enabled domains, never and longest ago verified ones first."""
    oldest = (
        select(endpoints.c.id, endpoints.c.url, endpoints.c.state)
        .join(domains, domains.c.id == endpoints.c.domain_id)
        .where(domains.c.state == ENABLED)
        .order_by(func.coalesce(endpoints.c.last_checked, 0), endpoints.c.id)
        .limit(limit)
    )
    with open_database(database) as engine, reading(engine) as connection:
        return [Endpoint(*row) for row in connection.execute(oldest)]


def _record(database: str, verdicts: list[Verdict]) -> None:
    """Store verdicts; an endpoint that was removed meanwhile stays removed."""
    with open_database(database) as engine:
        _update(engine, verdicts)


def _update(engine: Engine, verdicts: list[Verdict]) -> None:
    statement = (
        update(endpoints)
        .where(endpoints.c.id == bindparam("endpoint"))
        .values(
            state=bindparam("state_now"),
            latency_ms=bindparam("latency"),
            last_checked=bindparam("checked"),
            last_status=bindparam("status"),
            last_error=bindparam("error"),
            failures=case((bindparam("state_now") == FAILING, endpoints.c.failures + 1), else_=0),
        )
    )
    # In the order of ids, so that two runs at once cannot wait for each other's rows.
    rows = [
        {
            "endpoint": one.endpoint.id, "state_now": one.state, "latency": one.latency_ms, "checked": one.checked_ms,
            "status": one.status, "error": one.error,
        }
        for one in sorted(verdicts, key=lambda one: one.endpoint.id)
    ]  # fmt: skip
    with engine.begin() as connection:
        connection.execute(statement, rows)
