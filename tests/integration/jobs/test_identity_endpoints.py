"""identity.endpoint_verification against real servers and databases."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import structlog
from aiohttp import web
from sqlalchemy import Engine, delete, event, insert, select, update
from sqlalchemy.exc import OperationalError

from tenure import Context
from tenure.jobs.identity import endpoint_verification
from tenure.jobs.identity.models import domains, endpoints

pytestmark = pytest.mark.xdist_group("databases")


class Site:
    """A server whose paths are the statuses it answers with; it counts who is inside at once."""

    def __init__(self) -> None:
        self.base = ""
        self.inside = 0
        self.inside_max = 0
        self.asked: list[str] = []
        self.gate: asyncio.Event | None = None

    async def answer(self, received: web.Request) -> web.Response:
        self.asked.append(received.path)
        self.inside += 1
        self.inside_max = max(self.inside_max, self.inside)
        try:
            if received.path == "/hang":
                await asyncio.Event().wait()
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self.inside -= 1
        headers = {"Location": "/elsewhere"} if received.path == "/302" else {}
        return web.Response(status=int(received.path.split("/")[1]), headers=headers)


async def until(fact: Callable[[], bool]) -> None:
    """Return once ``fact`` holds, looked at again and again within a generous time."""
    async with asyncio.timeout(30):
        while not fact():
            await asyncio.to_thread(threading.Event().wait, 0.005)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A running site."""
    found = Site()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


def register(engine: Engine, *urls: str, state: str = "ENABLED", domain: str = "d") -> None:
    """Register endpoints of a domain."""
    row = {"id": domain, "name": domain, "tenant": "", "state": state, "source": "s", "first_seen": 1, "last_seen": 1}
    with engine.begin() as connection:
        connection.execute(insert(domains).values(row))
        connection.execute(insert(endpoints), [{"domain_id": domain, "url": url} for url in urls])


def stored(engine: Engine, *columns: str) -> list[tuple[Any, ...]]:
    """Return the endpoints in the order they were registered."""
    with engine.connect() as connection:
        rows = connection.execute(select(*(endpoints.c[name] for name in columns)).order_by(endpoints.c.id))
        return [tuple(row) for row in rows]


async def test_state_and_latency_of_every_endpoint_are_stored(
    ctx: Context, database: str, engine: Engine, site: Site
) -> None:
    """Those that answer, those that answer badly, and those that do not."""
    register(engine, *(f"{site.base}/{status}" for status in (200, 204, 302, 404, 503)), "http://127.0.0.1:1/")

    result = await endpoint_verification(ctx, database=database, timeout=60)

    assert result == {"checked": 6, "ok": 3, "failing": 3, "recovered": 0, "broken": 0}
    assert stored(engine, "state", "last_status", "failures") == [
        ("OK", 200, 0), ("OK", 204, 0), ("OK", 302, 0), ("FAILING", 404, 1), ("FAILING", 503, 1), ("FAILING", None, 1),
    ]  # fmt: skip
    assert all(latency >= 0 and checked > 0 for latency, checked in stored(engine, "latency_ms", "last_checked"))
    *answered, (error,) = stored(engine, "last_error")
    assert "cannot connect" in error
    assert answered == [(None,)] * 5
    assert "/elsewhere" not in site.asked


@pytest.mark.share(2)
async def test_failures_are_counted_until_it_recovers(ctx: Context, database: str, engine: Engine, site: Site) -> None:
    """An operator wants to know for how long, and the run says what changed."""
    register(engine, f"{site.base}/500")
    for failures in (1, 2, 3):
        result = await endpoint_verification(ctx, database=database, timeout=60)
        assert stored(engine, "failures") == [(failures,)]
        assert result["broken"] == 0, "it was never known to work"

    async def check_as(status: int) -> Any:
        with engine.begin() as connection:
            connection.execute(update(endpoints).values(url=f"{site.base}/{status}"))
        return await endpoint_verification(ctx, database=database, timeout=60)

    assert (await check_as(200))["recovered"] == 1
    assert stored(engine, "state", "failures") == [("OK", 0)]
    with structlog.testing.capture_logs() as lines:
        assert (await check_as(404))["broken"] == 1
    assert stored(engine, "state", "failures") == [("FAILING", 1)]
    assert [(line["status"], line["log_level"]) for line in lines if line["event"] == "endpoint_broken"] == [
        (404, "warning")
    ]


@pytest.mark.share(2)
async def test_a_hanging_endpoint_costs_its_timeout_and_nothing_else(
    ctx: Context, database: str, engine: Engine, site: Site
) -> None:
    """The others are checked meanwhile, and an address that cannot even be asked is a state as well."""
    register(engine, f"{site.base}/hang", "http://[::1", "http://no.such.host.invalid./", f"{site.base}/200")

    result = await endpoint_verification(ctx, database=database, timeout=5.0)  # the others have as long, too

    assert (result["checked"], result["ok"]) == (4, 1)
    assert stored(engine, "last_error")[0] == ("no answer within 5 s",)
    assert [row[0] for row in stored(engine, "state")] == ["FAILING", "FAILING", "FAILING", "OK"]


@pytest.mark.share(2)
@pytest.mark.parametrize("concurrency", [1, 4])
async def test_no_more_than_the_limit_are_asked_at_once(
    ctx: Context, database: str, engine: Engine, site: Site, concurrency: int
) -> None:
    """The gate opens when as many as may be are inside; one more would have come in by then."""
    register(engine, *(f"{site.base}/200/{number}" for number in range(12)))
    site.gate = asyncio.Event()
    running = asyncio.create_task(endpoint_verification(ctx, database=database, timeout=60, concurrency=concurrency))
    await until(lambda: site.inside == concurrency)
    site.gate.set()

    assert (await running)["ok"] == 12
    assert site.inside_max == concurrency


async def test_endpoints_of_disabled_domains_are_left_alone(
    ctx: Context, database: str, engine: Engine, site: Site
) -> None:
    """Nobody is served by them, so nobody need be woken by them."""
    register(engine, f"{site.base}/200", state="DISABLED")

    assert (await endpoint_verification(ctx, database=database))["checked"] == 0
    assert stored(engine, "state") == [("UNKNOWN",)]


@pytest.mark.share(2)
async def test_those_verified_longest_ago_come_first(ctx: Context, database: str, engine: Engine, site: Site) -> None:
    """More endpoints than one run may check: the runs take turns, and none is starved."""
    register(engine, *(f"{site.base}/200/{number}" for number in range(6)))

    for _ in range(3):
        assert (await endpoint_verification(ctx, database=database, limit=2, concurrency=1))["checked"] == 2
    assert site.asked == [f"/200/{number}" for number in range(6)]
    assert all(checked is not None for (checked,) in stored(engine, "last_checked"))


@pytest.mark.share(2)
async def test_more_endpoints_than_are_stored_at_a_time(
    ctx: Context, database: str, engine: Engine, site: Site
) -> None:
    """Verdicts are written as they gather; none is lost and none written twice."""
    register(engine, *(f"{site.base}/200/{number}" for number in range(250)), f"{site.base}/500")

    result = await endpoint_verification(ctx, database=database, timeout=60, concurrency=20)

    assert (result["checked"], result["ok"]) == (251, 250)
    assert sorted(stored(engine, "state", "failures")) == [("FAILING", 1)] + [("OK", 0)] * 250


async def test_a_run_that_is_cut_off_keeps_what_it_learnt(
    ctx: Context, database: str, engine: Engine, site: Site
) -> None:
    """The soft timeout cancels a coroutine; the next run begins with those that were not reached."""
    register(engine, f"{site.base}/200", f"{site.base}/hang")
    running = asyncio.create_task(endpoint_verification(ctx, database=database, concurrency=1, timeout=60))
    await until(lambda: "/hang" in site.asked)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert stored(engine, "state") == [("OK",), ("UNKNOWN",)]


@pytest.mark.share(2)
async def test_an_endpoint_that_was_removed_meanwhile_stays_removed(
    ctx: Context, database: str, engine: Engine, site: Site
) -> None:
    """A sync may run at the same time."""
    register(engine, f"{site.base}/200", f"{site.base}/404")
    site.gate = asyncio.Event()
    running = asyncio.create_task(endpoint_verification(ctx, database=database, timeout=60))
    await until(lambda: site.inside == 2)
    with engine.begin() as connection:
        connection.execute(delete(endpoints).where(endpoints.c.url.like("%404")))
    site.gate.set()

    assert (await running)["checked"] == 2
    assert stored(engine, "state") == [("OK",)]


@pytest.fixture
def statements_of(engine: Engine) -> Iterator[list[int]]:
    """Collect in which threads SQL runs, in every engine."""
    threads: list[int] = []

    def note(*_arguments: object) -> None:
        threads.append(threading.get_ident())

    event.listen(Engine, "before_cursor_execute", note)
    yield threads
    event.remove(Engine, "before_cursor_execute", note)


async def test_sql_never_runs_on_the_event_loop(
    ctx: Context, database: str, engine: Engine, site: Site, statements_of: list[int]
) -> None:
    """A database that waits for a lock would stop every other run of the process."""
    register(engine, f"{site.base}/200")
    statements_of.clear()

    await endpoint_verification(ctx, database=database)

    assert statements_of
    assert threading.get_ident() not in statements_of


@pytest.mark.share(2)
async def test_a_database_that_fails_fails_the_run_in_its_own_words(
    ctx: Context, database: str, engine: Engine, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a group of exceptions that says "1 sub-exception"."""

    def fail(*_arguments: object) -> None:
        raise OperationalError("UPDATE endpoints", {}, Exception("disk is full"))

    register(engine, *(f"{site.base}/200/{number}" for number in range(150)))
    module = sys.modules["tenure.jobs.identity.endpoint_verification"]  # its package has the job under that name
    monkeypatch.setattr(module, "_record", fail)

    with pytest.raises(OperationalError, match="disk is full"):
        await endpoint_verification(ctx, database=database)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"concurrency": 0}, "concurrency must be 1 to 200, got 0"),
        ({"concurrency": 201}, "got 201"),
        ({"timeout": 0}, "timeout must be above 0 and at most 60 seconds, got 0"),
        ({"timeout": 61}, "got 61"),
        ({"limit": 0}, "limit must be 1 to 100000, got 0"),
        ({"limit": 100_001}, "got 100001"),
    ],
)
async def test_limits_outside_their_range_are_refused(ctx: Context, arguments: dict[str, Any], message: str) -> None:
    """Before anything is opened."""
    with pytest.raises(ValueError, match=message):
        await endpoint_verification(ctx, database="sqlite://", **arguments)
