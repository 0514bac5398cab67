"""Sends batches of events to an address of the user's.

Guarantees
    Each request has a time limit, each batch ``TRIES`` requests; then it is given up. No redirect is followed, and
    of an answer nothing but its status is read. Neither address nor token is logged.

Does not guarantee
    That a batch arrives once: a request whose answer was lost is made again, with a signature of its own.
    ``X-Tenure-Batch``, and ``batch`` in the body, which the signature covers, show it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import msgspec
import structlog

from supervisor.core.events import Event
from supervisor.core.signing import WEBHOOK_HEADER, signature
from supervisor.version import __version__

TRIES = 4
PAUSE_S = 1.0
"""Before the second request; each further pause is twice as long. A quarter either way, so that replicas part."""

log = structlog.get_logger()


class EventWebhook:
    """One address."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        secret: str | None = None,
        timeout_s: float,
        cluster: str,
        writer: str,
        wall_ms: Callable[[], int],
        pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json", "User-Agent": f"tenure/{__version__}"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._secret = secret
        self._wall_ms = wall_ms
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._cluster = cluster
        self._writer = writer
        self._pause = pause
        self._batch = 0
        self._is_failing = False

    async def send(self, events: Sequence[Event]) -> bool:
        """Send one batch; return False when it was given up."""
        self._batch += 1
        batch = f"{self._writer}/{self._batch}"
        body = msgspec.json.encode({"cluster": self._cluster, "batch": batch, "events": list(events)})
        headers = self._headers | {"X-Tenure-Batch": batch}
        reason = ""
        for number in range(TRIES):
            if number:
                await self._pause(PAUSE_S * 2 ** (number - 1) * random.uniform(0.75, 1.25))  # noqa: S311 - it spreads load
            reason, is_final = await self._request(body, headers)
            if not reason:
                self._is_failing = False
                return True
            if is_final:
                break
        if not self._is_failing:  # one line for each outage
            self._is_failing = True
            log.warning("webhook_failing", reason=reason, dropped=len(events))
        return False

    async def _request(self, body: bytes, headers: dict[str, str]) -> tuple[str, bool]:
        """Make one request; return why it did not do, and whether another one would not either."""
        if self._secret is not None:
            headers = headers | {WEBHOOK_HEADER: signature(self._secret, body, wall_ms=self._wall_ms())}
        try:
            async with (
                aiohttp.ClientSession(timeout=self._timeout, trust_env=False) as session,
                session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                status = answer.status
        except TimeoutError:
            return "no answer in time", False
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return type(error).__name__, False  # its text may hold the address
        if 200 <= status < 300:
            return "", False
        is_final = 300 <= status < 500 and status not in {408, 425, 429}
        return f"status {status}", is_final
