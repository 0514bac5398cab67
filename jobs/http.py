"""``http.request``: one HTTP request as a job, judged by the status of its answer.

Guarantees
    TLS certificates are always verified. At most ``RESPONSE_BYTES_MAX`` of an answer is read.
    Secrets are named by reference (see jobs/references.py), are sent to the origin that was
    asked for and to no other a redirect may lead to, and are in no error: neither do other
    headers, nor path and query of the URL, nor the body unless that is asked for. What an answer
    repeats of them is masked as it is, and as JSON and URLs write it.
    Each connection, those of redirects too, leads to an address that the configuration allows (see destinations.py).

Does not guarantee
    That the request was made once: a run whose worker died is run again, and a failed one is
    retried. POST and PATCH carry the run's id as ``Idempotency-Key``, by which a server can
    recognise a repetition of a request.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from json import dumps
from typing import Any, TypedDict
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from supervisor.trust import open_regular
from tenure import Context, job
from tenure.jobs.destinations import Client, failure_reason
from tenure.jobs.references import resolve

RESPONSE_BYTES_MAX = 1024 * 1024
BODY_TAIL_BYTES = 4096
MESSAGE_TAIL_CHARS = 512
REDIRECTS_MAX = 5
TIMEOUT_S_MAX = 3600.0
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_ANY_SUCCESS = range(200, 300)
_SENT_ELSEWHERE = frozenset({"accept", "accept-language", "content-type", "user-agent"})
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")  # a token of RFC 9110
_HEADER_VALUE = re.compile(r"[^\0\r\n]*\Z")


class HttpResult(TypedDict):
    """Result of a request, as its run records it."""

    status: int
    duration_s: float
    bytes: int
    body_tail: str
    truncated: bool


class RequestRefusedError(ValueError):
    """The arguments cannot be a request."""


class RequestFailedError(RuntimeError):
    """No answer, or one with a status that was not expected."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, checked. ``secrets`` are headers that go to the origin of ``url`` only."""

    method: str
    url: URL
    headers: Mapping[str, str] = field(repr=False, default_factory=dict)
    secrets: Mapping[str, str] = field(repr=False, default_factory=dict)
    body: bytes | None = field(repr=False, default=None)

    @property
    def label(self) -> str:
        """Method and origin for people: path and query may hold a token, as addresses of chat webhooks do."""
        return f"{self.method} {self.url.origin()}{'/…' if self.url.path_qs.strip('/') else ''}"

    def redirected(self, status: int, location: str) -> Ask:
        """Return the request that a redirect asks for (RFC 9110, 15.4).

        Raises:
            RequestFailedError: it leads to no http URL, or from https to http.
        """
        try:
            url = self.url.join(URL(location))
            _check_url(url)
        except ValueError:
            raise RequestFailedError(f"{self.label} was redirected to what is no http or https URL") from None
        if self.url.scheme == "https" and url.scheme == "http":
            raise RequestFailedError(f"{self.label} was redirected from https to http, which would give it away")
        becomes_get = (status == 303 and self.method != "HEAD") or (status in {301, 302} and self.method == "POST")
        is_elsewhere = url.origin() != self.url.origin()
        return Ask(
            method="GET" if becomes_get else self.method,
            url=url,
            headers={
                name: value
                for name, value in self.headers.items()
                if not (is_elsewhere and name.lower() not in _SENT_ELSEWHERE)
                and not (becomes_get and name.lower() == "content-type")
            },
            secrets={} if is_elsewhere else self.secrets,
            body=None if becomes_get else self.body,
        )


@job("http.request")
async def request(
    ctx: Context,
    *,
    url: str,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    secret_headers: dict[str, str] | None = None,
    bearer_token: str | None = None,
    body: str | None = None,
    json: Any = None,
    expected_status: list[int] | int | None = None,
    timeout: float = 30.0,  # noqa: ASYNC109 - of the whole request, redirects and body included
    ca_file: str | None = None,
    follow_redirects: bool = True,
    body_in_error: bool = False,
) -> HttpResult:
    """Send one request and judge the answer by its status.

    Args:
        ctx: the run's context.
        url: http or https, without user and password.
        method: one of GET HEAD POST PUT PATCH DELETE OPTIONS.
        headers: sent as they are; they are visible in the queue.
        secret_headers: header name to ``env:NAME`` or ``file:/path``, where the worker finds its value.
        bearer_token: ``env:NAME`` or ``file:/path`` of a token to send as ``Authorization: Bearer``.
        body: text to send.
        json: a value to send as JSON; not together with ``body``.
        expected_status: a status, or several; default: any from 200 to 299.
        timeout: seconds for all of it.
        ca_file: PEM file of the authorities to trust; default: those of the system.
        follow_redirects: at most five; never from https to http.
        body_in_error: whether the error of an unexpected status ends with the body, which whoever may read runs sees.

    Raises:
        RequestFailedError: no answer in time, or an unexpected status.
        RequestRefusedError: an argument cannot be used.
    """
    expected = _expected(expected_status)
    if not 0 < timeout <= TIMEOUT_S_MAX:
        raise RequestRefusedError(f"timeout must be above 0 and at most {TIMEOUT_S_MAX:.0f} seconds, got {timeout}")
    ask = _ask(method, url, body=body, json=json)
    ask = _with_headers(ask, headers or {}, _secrets(secret_headers or {}, bearer_token), run_id=ctx.run_id)
    tls = tls_context(ca_file) if ca_file is not None else None
    started_ns = ctx.clock.elapsed_ns()
    try:
        async with asyncio.timeout(timeout), Client(tls) as client:
            answer = await _exchange(client, ask, REDIRECTS_MAX if follow_redirects else 0)
    except TimeoutError:
        raise RequestFailedError(f"{ask.label}: no whole answer within {timeout:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise RequestFailedError(f"{ask.label}: {failure_reason(error)}") from None
    answer["duration_s"] = round((ctx.clock.elapsed_ns() - started_ns) / 1e9, 6)
    if answer["status"] not in expected:
        raise RequestFailedError(_unexpected(ask, answer, expected_status, has_body=body_in_error))
    return answer


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return a context that verifies, against ``ca_file`` or the system's authorities."""
    try:
        if ca_file is not None:
            os.close(open_regular(ca_file, follows=True))  # of a pipe the library would wait for the other end
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError):
        # One text for each fault: whoever may enqueue and read would else learn which files the worker has.
        raise RequestRefusedError(
            f"ca_file {ca_file!r} cannot be used: name a readable file of authorities in PEM"
        ) from None


async def _exchange(client: Client, ask: Ask, redirects_left: int) -> HttpResult:
    forms = {form for secret in ask.secrets.values() for form in _forms(secret)}
    masked = sorted(forms, key=len, reverse=True)
    while True:
        session = await client.to(ask.url)
        async with session.request(
            ask.method,
            ask.url,
            headers={**ask.headers, **ask.secrets},
            data=ask.body,
            allow_redirects=False,
        ) as response:
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or location is None or redirects_left == 0:
                return await _read(response, masked)
        redirects_left -= 1
        ask = ask.redirected(response.status, location)


async def _read(response: aiohttp.ClientResponse, masked: Sequence[str]) -> HttpResult:
    """Keep the end of the body; a server that echoes its request must not write a secret into the record.

    Args:
        response: the answer, whose body was not read.
        masked: forms of secrets, longest first.
    """
    # Four bytes, the most of a character: what is kept begins at a multiple of them, and so far before the end that a
    # secret cut in two there is not in the result. The first four may tell the order of bytes (UTF-16 and 32).
    kept = 4 * (BODY_TAIL_BYTES + max(map(len, masked), default=0))
    head = tail = b""
    count = 0
    async for chunk in response.content.iter_chunked(64 * 1024):
        head = (head + chunk[:4])[:4]
        count += len(chunk)
        tail = (tail + chunk)[-kept:]
        if count >= RESPONSE_BYTES_MAX:
            break
    start = count - len(tail)
    text = _decoded(head + tail[-start % 4 :] if start else tail, response.charset)
    for form in masked:
        text = text.replace(form, "*" * len(form))
    body = text.encode(errors="replace")
    return HttpResult(
        status=response.status,
        duration_s=0.0,
        bytes=count,
        body_tail=body[-BODY_TAIL_BYTES:].decode(errors="ignore"),  # the beginning may be half a character
        truncated=start > 0 or len(body) > BODY_TAIL_BYTES,
    )


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret, and the credential within ``Bearer <credential>``, as servers write them into their answers."""
    bare = secret.strip()  # as servers read a header
    for text in (secret, bare, bare.rpartition(" ")[2]):
        yield text
        for escaped in (dumps(text)[1:-1], dumps(text, ensure_ascii=False)[1:-1]):
            yield escaped
            yield escaped.replace("/", r"\/")  # PHP
            yield re.sub("[<>&]", lambda found: rf"\u{ord(found[0]):04x}", escaped)  # Go
            yield re.sub(r"\\\"|[<>&'+`]", lambda found: rf"\u{ord(found[0][-1]):04X}", escaped)  # .NET
        for quoted in (quote(text), quote(text, safe="")):
            yield quoted
            yield re.sub("%..", lambda found: found[0].lower(), quoted)


def _decoded(body: bytes, charset: str | None) -> str:
    try:
        return body.decode(charset or "utf-8", errors="replace")
    except (LookupError, ValueError):  # unknown, no encoding of text such as rot13, or one that cannot replace
        return body.decode("utf-8", errors="replace")


def _expected(status: list[int] | int | None) -> Container[int]:
    if status is None:
        return _ANY_SUCCESS
    wanted = [status] if isinstance(status, int) else status
    if not wanted or not all(100 <= one <= 599 for one in wanted):
        raise RequestRefusedError(f"expected_status must be one or more of 100 to 599, got {status}")
    return wanted


def _unexpected(ask: Ask, answer: HttpResult, expected: list[int] | int | None, *, has_body: bool) -> str:
    wanted = "2xx" if expected is None else expected
    said = answer["body_tail"].strip()[-MESSAGE_TAIL_CHARS:] if has_body else ""
    return f"{ask.label} answered {answer['status']}, expected {wanted}" + (
        f"; its last words:\n{said}" if said else ""
    )


def _ask(method: str, url: str, *, body: str | None, json: Any) -> Ask:
    if method.upper() not in METHODS:
        raise RequestRefusedError(f"method must be one of {' '.join(sorted(METHODS))}, got {method!r}")
    if body is not None and json is not None:
        raise RequestRefusedError("give body or json, not both")
    try:
        parsed = URL(url)
        _check_url(parsed)
    except ValueError as error:
        raise RequestRefusedError(f"url cannot be requested: {error}") from None
    if json is not None:
        return Ask(method.upper(), parsed, {"Content-Type": "application/json"}, body=msgspec.json.encode(json))
    if body is not None:
        return Ask(method.upper(), parsed, {"Content-Type": "text/plain; charset=utf-8"}, body=body.encode())
    return Ask(method.upper(), parsed)


def _check_url(url: URL) -> None:
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValueError("it must start with http:// or https:// and name a host")
    if url.user is not None or url.password is not None:
        raise ValueError("it must not hold a user or password; name them in secret_headers or bearer_token")


def _secrets(references: Mapping[str, str], bearer_token: str | None) -> dict[str, str]:
    secrets = {name: resolve(f"secret_headers.{name}", reference) for name, reference in references.items()}
    if bearer_token is not None:
        secrets["Authorization"] = f"Bearer {resolve('bearer_token', bearer_token)}"
    return secrets


def _with_headers(ask: Ask, headers: Mapping[str, str], secrets: Mapping[str, str], *, run_id: str) -> Ask:
    for name, value in [*headers.items(), *secrets.items()]:
        if not _HEADER_NAME.match(name):
            raise RequestRefusedError(f"{name!r} cannot be the name of a header")
        if not _HEADER_VALUE.match(value):
            raise RequestRefusedError(f"the value of header {name} holds a line break or NUL, which no header can")
    given = [name.lower() for name in [*headers, *secrets]]
    if len(set(given)) < len(given):
        raise RequestRefusedError("headers, secret_headers and bearer_token name the same header twice; drop one")
    defaults = {"Idempotency-Key": run_id} if ask.method in {"POST", "PATCH"} else {}
    kept = {name: value for name, value in {**defaults, **ask.headers}.items() if name.lower() not in given}
    return replace(ask, headers={**kept, **headers}, secrets=secrets)
