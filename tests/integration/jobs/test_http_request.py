"""http.request against real servers on this machine, TLS included."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tenure import Context
from tenure.jobs.http import RESPONSE_BYTES_MAX, RequestFailedError, request
from tenure.jobs.references import UnresolvedReferenceError

TLS = Path(__file__).resolve().parents[2] / "data" / "tls"
Serve = Callable[..., Awaitable[str]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start servers of one handler each; each call returns the base URL of a new one."""
    runners: list[web.AppRunner] = []

    async def start(handler: Handler, *, tls: bool = False) -> str:
        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = runner.addresses[0][1]
        return f"{'https' if tls else 'http'}://127.0.0.1:{port}"

    yield start
    for runner in runners:
        await runner.cleanup()


def answering(status: int = 200, text: str = "fine", **headers: str) -> Handler:
    """Return a handler that always answers the same."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status, text=text, headers=headers)

    return answer


class Recorder:
    """Answers, and remembers what it was sent."""

    def __init__(self, answer: Handler | None = None) -> None:
        self.requests: list[web.Request] = []
        self.bodies: list[str] = []
        self._answer = answer or answering()

    async def handle(self, received: web.Request) -> web.StreamResponse:
        self.requests.append(received)
        self.bodies.append(await received.text())
        return await self._answer(received)


async def test_an_expected_answer_is_the_result(ctx: Context, serve: Serve) -> None:
    """Status, time, size and the end of the body."""
    result = await request(ctx, url=await serve(answering(201, "made")))

    assert result["duration_s"] > 0
    assert {**result, "duration_s": 0} == {
        "status": 201, "duration_s": 0, "bytes": 4, "body_tail": "made", "truncated": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "expected"), [(200, None), (299, None), (404, 404), (404, [200, 404]), (500, [500])]
)
async def test_an_expected_status_is_a_success(
    ctx: Context, serve: Serve, status: int, expected: list[int] | int | None
) -> None:
    """Any 2xx unless told otherwise."""
    assert (await request(ctx, url=await serve(answering(status)), expected_status=expected))["status"] == status


@pytest.mark.parametrize(
    ("status", "expected", "wanted"),
    [(301, None, "2xx"), (404, None, "2xx"), (500, None, "2xx"), (200, 204, "204"), (200, [201, 204], r"\[201, 204\]")],
)
async def test_another_status_fails_the_run(
    ctx: Context, serve: Serve, status: int, expected: list[int] | int | None, wanted: str
) -> None:
    """With what came, what was wanted and the end of the body."""
    with pytest.raises(RequestFailedError, match=f"answered {status}, expected {wanted}; its last words:\nfine$"):
        await request(ctx, url=await serve(answering(status)), expected_status=expected, body_in_error=True)


async def test_the_error_of_an_unexpected_status_holds_no_body_unless_that_is_asked_for(
    ctx: Context, serve: Serve
) -> None:
    """Errors are shown to tokens with ``read``: the answer of any server would be."""
    with pytest.raises(RequestFailedError, match=r"answered 200, expected 418$"):
        await request(ctx, url=await serve(answering(text="private")), expected_status=418)


async def test_json_and_text_are_sent_with_their_types(ctx: Context, serve: Serve) -> None:
    """Unless a header says another; a repeated POST can be told from a new one."""
    recorder = Recorder()
    url = await serve(recorder.handle)
    await request(ctx, url=url, method="post", json={"a": [1, None]})
    await request(ctx, url=url, method="PUT", body="grüße")
    await request(ctx, url=url, method="PUT", body="<a/>", headers={"content-type": "text/xml"})

    first, second, third = recorder.requests
    assert recorder.bodies == ['{"a":[1,null]}', "grüße", "<a/>"]
    assert [one.headers["Content-Type"] for one in recorder.requests] == [
        "application/json", "text/plain; charset=utf-8", "text/xml",
    ]  # fmt: skip
    assert first.headers["Idempotency-Key"] == "a-run"
    assert "Idempotency-Key" not in second.headers
    assert third.headers["User-Agent"] == "tenure"


async def test_secrets_come_from_the_worker_and_reach_the_server_only(
    ctx: Context, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server that echoes its request must not write them into the record of the run, nor into an error."""

    async def echo(received: web.Request) -> web.Response:
        return web.Response(text="x" * 100_000 + repr(dict(received.headers)), status=int(received.query["status"]))

    monkeypatch.setenv("API_KEY", "key-from-env")
    (tmp_path / "token").write_text("token-from-file\n")
    recorder = Recorder(echo)
    url = await serve(recorder.handle)
    arguments: dict[str, Any] = {
        "secret_headers": {"X-Api-Key": "env:API_KEY"},
        "bearer_token": f"file:{tmp_path}/token",
    }

    result = await request(ctx, url=f"{url}/?status=200", **arguments)
    with pytest.raises(RequestFailedError) as caught:
        await request(ctx, url=f"{url}/?status=500", body_in_error=True, **arguments)

    sent = recorder.requests[0].headers
    assert (sent["X-Api-Key"], sent["Authorization"]) == ("key-from-env", "Bearer token-from-file")
    for shown in (str(result), str(caught.value), repr(caught.value)):
        assert "key-from-env" not in shown
        assert "token-from-file" not in shown
    assert "'X-Api-Key': '************'" in result["body_tail"]


TOKEN = "c2VjcmV0/dG9r+ZW4<eA=="  # what JSON and URLs may escape
ECHOES = {
    "raw": TOKEN,
    "json of PHP": r"c2VjcmV0\/dG9r+ZW4<eA==",
    "json of Go": r"c2VjcmV0/dG9r+ZW4\u003ceA==",
    "json of .NET": r"c2VjcmV0/dG9r\u002BZW4\u003CeA==",
    "quoted": "c2VjcmV0%2FdG9r%2BZW4%3CeA%3D%3D",
    "quoted in lower case": "c2VjcmV0%2fdG9r%2bZW4%3ceA%3d%3d",
    "quoted but for slashes": "c2VjcmV0/dG9r%2BZW4%3CeA%3D%3D",
}


@pytest.mark.parametrize("charset", ["utf-8", "utf-16", "utf-16-be", "utf-32", "latin-1"])
@pytest.mark.parametrize("form", ECHOES)
async def test_an_echoed_secret_is_masked_however_the_answer_writes_it(
    ctx: Context, serve: Serve, monkeypatch: pytest.MonkeyPatch, form: str, charset: str
) -> None:
    """Answers in JSON, redirects in text and gateways of all kinds repeat a request in forms of their own.

    The place of each slides over the beginning of what is kept, so that one that is cut in two is seen in part.
    """
    monkeypatch.setenv("API_KEY", TOKEN)
    echo, size = ECHOES[form], len(ECHOES[form])
    end = f'{{"sent": "{echo}"}}'

    async def answer(received: web.Request) -> web.Response:
        text = "x" * 30_000 + echo + "y" * (4096 - len(end) - int(received.query["shown"])) + end
        return web.Response(body=text.encode(charset), headers={"Content-Type": f"text/plain; charset={charset}"})

    url = await serve(answer)
    for shown in (0, 1, size // 2, size - 1, size):
        result = await request(ctx, url=f"{url}/?shown={shown}", bearer_token="env:API_KEY")

        tail = "*" * shown + "y" * (4096 - len(end) - shown) + f'{{"sent": "{"*" * size}"}}'
        assert (result["body_tail"], result["truncated"]) == (tail, True)


async def test_a_secret_with_quotes_and_other_letters_is_masked_as_json_and_url_write_it(
    ctx: Context, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quotes, backslashes and what is not ASCII: each has an escape of its own."""
    monkeypatch.setenv("API_KEY", 'grü"ße/\\ w')
    escaped = (r"gr\u00fc\"\u00dfe\/\\ w", r"grü\"ße/\\ w", "gr%C3%BC%22%C3%9Fe%2F%5C%20w")
    url = await serve(answering(text=" ".join(escaped)))

    result = await request(ctx, url=url, secret_headers={"X-Api-Key": "env:API_KEY"})
    assert result["body_tail"] == " ".join("*" * len(each) for each in escaped)
    assert not result["truncated"]


async def test_a_secret_that_is_not_there_is_named(ctx: Context) -> None:
    """By where it should be, before anything is sent."""
    with pytest.raises(UnresolvedReferenceError, match="bearer_token: environment variable NO_SUCH is not set"):
        await request(ctx, url="http://127.0.0.1:1/", bearer_token="env:NO_SUCH")


async def test_redirects_are_followed_without_giving_secrets_away(
    ctx: Context, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other server gets the request, and none of what proves who we are."""
    monkeypatch.setenv("API_KEY", "secret")
    elsewhere = Recorder()
    url = await serve(answering(307, Location=await serve(elsewhere.handle)))

    result = await request(ctx, url=url, method="POST", json=1, secret_headers={"X-Api-Key": "env:API_KEY"})

    assert result["status"] == 200
    assert elsewhere.bodies == ["1"]
    assert "X-Api-Key" not in elsewhere.requests[0].headers


async def test_redirects_are_not_followed_for_ever_or_when_not_wanted(ctx: Context, serve: Serve) -> None:
    """The sixth answer counts, and so does the first when following is off."""
    recorder = Recorder(answering(302, Location="/again"))
    url = await serve(recorder.handle)

    with pytest.raises(RequestFailedError, match="answered 302"):
        await request(ctx, url=url)
    assert len(recorder.requests) == 6
    assert (await request(ctx, url=url, follow_redirects=False, expected_status=302))["status"] == 302
    assert len(recorder.requests) == 7


async def test_an_endless_answer_is_read_to_the_bound_only(ctx: Context, serve: Serve) -> None:
    """Memory and time belong to the other runs of the process as well."""

    async def endless(received: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(received)
        while True:
            await response.write(b"x" * 65536)

    result = await request(ctx, url=await serve(endless))

    assert RESPONSE_BYTES_MAX <= result["bytes"] <= RESPONSE_BYTES_MAX + 65536
    assert result["body_tail"] == "x" * 4096
    assert result["truncated"]


async def test_an_answer_that_does_not_come_fails_in_time(ctx: Context, serve: Serve) -> None:
    """The timeout covers the whole exchange: this server answers a byte at a time, for ever."""

    async def drip(received: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(received)
        while True:
            await response.write(b".")
            await asyncio.sleep(0.02)

    with pytest.raises(RequestFailedError, match=r"GET http://127.0.0.1:\d+: no whole answer within 0.3 s"):
        await request(ctx, url=await serve(drip), timeout=0.3)


async def test_a_server_that_is_not_there_is_a_failure(ctx: Context) -> None:
    """With the reason, and without the query."""
    with pytest.raises(RequestFailedError, match=r"^GET http://127.0.0.1:1/…: cannot connect"):
        await request(ctx, url="http://127.0.0.1:1/?token=secret")


async def test_tls_is_verified_always(ctx: Context, serve: Serve) -> None:
    """An unknown authority is refused; one that ca_file names is not."""
    url = await serve(answering(text="private"), tls=True)

    with pytest.raises(RequestFailedError, match="its TLS certificate is not trusted"):
        await request(ctx, url=url)
    trusted = await request(ctx, url=url, ca_file=str(TLS / "ca.pem"))
    assert trusted["body_tail"] == "private"


@pytest.mark.parametrize("charset", ["latin-1", "no-such-charset", "rot13", "idna", "undefined"])
async def test_the_body_is_read_in_its_own_encoding(ctx: Context, serve: Serve, charset: str) -> None:
    """An unknown one is read as UTF-8, and no byte makes the run fail."""

    async def answer(_received: web.Request) -> web.Response:
        return web.Response(body=b"gr\xfc\xdfe", headers={"Content-Type": f"text/plain; charset={charset}"})

    result = await request(ctx, url=await serve(answer))

    assert result["body_tail"] == ("grüße" if charset == "latin-1" else "gr\ufffd\ufffde")
