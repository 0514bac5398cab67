"""A hook that is asked over HTTP: one POST of a JSON object, and a JSON object for an answer.

Guarantees
    At most ``1 + retries`` requests, each within its timeout; redirects are not followed, certificates are verified,
    at most ``ANSWER_BYTES_MAX`` of an answer is read, ``BODY_BYTES_MAX`` are sent.
    Arguments of a run are not sent, and headers are in no message.

Does not guarantee
    That a question is asked once: it carries the run and the attempt, by which a server recognises a repetition.
    Where the URL leads to. Whoever writes the configuration decides which hosts workers speak to.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import msgspec

from supervisor.core.json_values import read_json
from supervisor.core.signing import WEBHOOK_HEADER, signature
from supervisor.roles.worker.attempt.context import Context
from supervisor.settings.sections.pipeline import WebhookSettings
from supervisor.version import __version__

ANSWER_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 16 * 1024
PAUSE_S = 0.1
"""Before the first repetition; doubled for each further one."""

CONNECTIONS_MAX = 50
_SUCCESS = range(200, 300)
_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json",
    "Accept-Encoding": "identity",  # what an answer unpacks to would have no limit
    "User-Agent": f"tenure/{__version__}",
}


class WebhookError(Exception):
    """No answer, or none that can be used."""


class _WebhookAnswer(msgspec.Struct, frozen=True):
    """Response of a webhook about a run."""

    admit: bool
    reason: str = ""
    retry_after_s: float | None = None


def patience_s(settings: WebhookSettings) -> float:
    """Return how long all requests of one question may take together."""
    pauses_s = PAUSE_S * ((1 << settings.retries) - 1)
    return (1 + settings.retries) * settings.timeout_s + pauses_s + 0.5


class Webhook:
    """The hook."""

    def __init__(self, name: str, settings: WebhookSettings, *, is_kept: bool, wall_ms: Callable[[], int]) -> None:
        """Build it.

        Args:
            name: of the hook.
            settings: where and how it is asked.
            is_kept: it is always asked in one event loop, so that connections can be kept from one time to the next.
            wall_ms: the time of the calendar, for signatures.
        """
        self._wall_ms = wall_ms
        self._name = name
        self._is_kept = is_kept
        self._settings = settings
        self._headers = {key: value.get_secret_value() for key, value in settings.headers.items()}
        self._session: aiohttp.ClientSession | None = None

    async def filter(self, context: Context) -> Any:
        """Ask whether the run may be executed now."""
        body = await self._post(self._question("filter", context))
        if not body:
            return None
        try:
            answer = read_json(body, _WebhookAnswer)
        except msgspec.DecodeError as error:
            raise WebhookError(f"answered no object with admit: {error}") from None
        if answer.admit:
            return None
        reason = answer.reason or "no reason given"
        return reason if answer.retry_after_s is None else (reason, answer.retry_after_s)

    async def after(self, context: Context, outcome: str, error: str) -> None:
        """Report how an attempt ended."""
        await self._post({**self._question("after", context), "outcome": outcome, "error": error})

    async def close(self) -> None:
        """Close the kept connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _question(self, verb: str, context: Context) -> dict[str, Any]:
        return {
            "version": 1, "verb": verb, "hook": self._name, "run": context.run_id, "job": context.job,
            "attempt": context.attempt, "schedule": context.schedule, "nominal_ms": context.nominal_ms,
            "maybe_duplicate": context.maybe_duplicate,
        }  # fmt: skip

    async def _post(self, question: Mapping[str, Any]) -> bytes:
        body = msgspec.json.encode(question)
        if len(body) > BODY_BYTES_MAX:
            raise WebhookError(f"the question has {len(body)} bytes, of {BODY_BYTES_MAX} allowed")
        session = self._open()
        try:
            return await self._tries(session, body)
        finally:
            if not self._is_kept:
                await session.close()

    async def _tries(self, session: aiohttp.ClientSession, body: bytes) -> bytes:
        for left in reversed(range(self._settings.retries + 1)):
            try:
                return await self._once(session, body)
            except (WebhookError, aiohttp.ClientError, OSError) as error:  # a timeout is one of the latter
                if not left:
                    raise _told(error, self._settings.timeout_s) from None
            await asyncio.sleep(PAUSE_S * 2 ** (self._settings.retries - left))
        raise AssertionError("unreachable")

    async def _once(self, session: aiohttp.ClientSession, body: bytes) -> bytes:
        url, secret, headers = self._settings.url.get_secret_value(), self._settings.secret, self._headers
        if secret is not None:
            headers = headers | {WEBHOOK_HEADER: signature(secret.get_secret_value(), body, wall_ms=self._wall_ms())}
        async with (
            asyncio.timeout(self._settings.timeout_s),
            session.post(url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            answer = await response.content.read(ANSWER_BYTES_MAX + 1)
            while len(answer) <= ANSWER_BYTES_MAX and (more := await response.content.read(ANSWER_BYTES_MAX + 1)):
                answer += more
            if response.status not in _SUCCESS:
                raise WebhookError(f"answered {response.status}")
            if len(answer) > ANSWER_BYTES_MAX:
                raise WebhookError(f"answered more than {ANSWER_BYTES_MAX} bytes")
            return answer

    def _open(self) -> aiohttp.ClientSession:
        if self._session is not None:
            return self._session
        connector = aiohttp.TCPConnector(ssl=self._tls(), limit=CONNECTIONS_MAX)
        session = aiohttp.ClientSession(connector=connector, headers=_HEADERS, auto_decompress=False)
        if self._is_kept:
            self._session = session
        return session

    def _tls(self) -> ssl.SSLContext:
        settings = self._settings
        try:
            context = ssl.create_default_context(cafile=settings.ca_file)
            if settings.cert_file is not None:
                context.load_cert_chain(settings.cert_file, settings.key_file)
        except OSError as error:  # ssl's own errors are some of these
            raise WebhookError(f"its certificates cannot be used: {error.strerror or type(error).__name__}") from None
        return context


def _told(error: Exception, timeout_s: float) -> WebhookError:
    """Return an error whose message names no header and no URL."""
    if isinstance(error, WebhookError):
        return error
    if isinstance(error, TimeoutError):
        return WebhookError(f"did not answer within {timeout_s:g} s")
    return WebhookError(f"cannot be reached: {type(error).__name__}")
