"""Requests of jobs to addresses that are not allowed: by every way to write them, by name, and by redirect."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from supervisor.core.jobs.references import DestinationRule
from tenure import Context
from tenure.jobs.destinations import Client
from tenure.jobs.http import RequestFailedError, request
from tenure.jobs.identity.source import SourceRefusedError, load

FORMS = (
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0",
    "rebound.example", "rebound.example.", "REBOUND.example",
)  # fmt: skip


REFUSED = r"job_destinations\.allow|InvalidUrlClientError"  # some forms the client itself takes for no address


class Server:
    """One server on loopback, under the name of this machine; remembers the paths that it was asked for."""

    def __init__(self) -> None:
        self.port = 0
        self.paths: list[str] = []
        self.redirect = ""

    async def answer(self, received: web.Request) -> web.Response:
        """Answer, or redirect."""
        self.paths.append(received.path)
        if received.path == "/from":
            return web.Response(status=307, headers={"Location": self.redirect})
        return web.Response(text="[]")


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """A server that is allowed as ``localhost`` alone, while another name leads to the same address."""
    real = socket.getaddrinfo

    def answered(host: Any, *args: Any, **options: Any) -> Any:
        is_rebound = str(host).lower().rstrip(".") in {"rebound.example", "localhost"}
        return real("127.0.0.1" if is_rebound else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", answered)
    monkeypatch.setattr(DestinationRule, "current", DestinationRule(["localhost"]))
    made = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


@pytest.mark.parametrize("host", FORMS)
async def test_a_request_to_this_machine_is_refused_however_it_is_written(
    ctx: Context, server: Server, host: str
) -> None:
    """By the address that the connection is made to: a list of spellings would always lack one."""
    with pytest.raises(RequestFailedError, match=REFUSED):
        await request(ctx, url=f"http://{host}:{server.port}/")

    assert server.paths == []


@pytest.mark.parametrize("host", FORMS)
async def test_a_redirect_to_this_machine_is_refused_however_it_is_written(
    ctx: Context, server: Server, host: str
) -> None:
    """A server that is allowed must not lead to one that is not."""
    server.redirect = f"http://{host}:{server.port}/to"
    with pytest.raises(RequestFailedError, match=REFUSED):
        await request(ctx, url=f"http://localhost:{server.port}/from")

    assert server.paths == ["/from"]


async def test_the_connection_of_an_allowed_name_serves_no_other_name(server: Server) -> None:
    """Kept connections are found by name; both names have one address."""
    async with Client(None) as client:
        allowed, other = URL(f"http://localhost:{server.port}/"), URL(f"http://rebound.example:{server.port}/")
        async with (await client.to(allowed)).get(allowed) as answer:
            assert answer.status == 200

        assert await client.to(allowed) is not await client.to(other)


@pytest.mark.parametrize("path", ["", "from"])
async def test_a_source_on_this_machine_is_refused(server: Server, path: str) -> None:
    """The list of domains is fetched by another client, under the same rule; redirects too."""
    host = "localhost" if path else "rebound.example"
    server.redirect = f"http://rebound.example:{server.port}/to"
    raised: list[Exception] = []

    def fetch() -> None:
        try:
            load(f"http://{host}:{server.port}/{path}", token=None, ca_file=None, allow_empty=True)
        except SourceRefusedError as error:
            raised.append(error)

    await asyncio.to_thread(fetch)

    assert "job_destinations.allow" in str(raised)
    assert server.paths == (["/from"] if path else [])


async def test_a_source_under_an_allowed_name_is_read(server: Server) -> None:
    """The rule refuses addresses, not the job."""
    found: list[Any] = []
    address = f"http://localhost:{server.port}/"
    await asyncio.to_thread(lambda: found.append(load(address, token=None, ca_file=None, allow_empty=True)))

    assert found == [[]]
