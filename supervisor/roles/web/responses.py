"""The forms that answers take: JSON, text, and errors in either; the headers that all of them carry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from supervisor.core.calendars.days import OverExcludedError
from supervisor.core.cron.errors import CronError
from supervisor.core.cron.zones import UnknownZoneError
from supervisor.core.errors import (
    ConfigError,
    NotReplicatedError,
    PayloadTooLargeError,
    StoreRefusedError,
    StoreUnavailableError,
    TenureError,
)
from supervisor.core.model import PAYLOAD_BYTES_MAX
from supervisor.core.schedules.triggers import TriggerError
from supervisor.settings.web.tokens import Token
from supervisor.telemetry.controls import escape_controls, without_controls

HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",  # or a page of another site learns by <img> and <script> what exists
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

PROBLEMS_SHOWN = 20
ITEMS = 100
"""How many items an answer has, unless the client says."""

HSTS = {"Strict-Transport-Security": "max-age=31536000"}
"""Over TLS beside the others: a browser then comes back over TLS alone."""

_Key: Any = getattr(web, "RequestKey", web.AppKey)  # aiohttp before 3.14 takes any key for a request
ASKER: web.RequestKey[str] = _Key("asker", str)
"""The name of the token that a request came with."""

PEER: web.RequestKey[str] = _Key("peer", str)
"""The other end of the connection, as limits count it: an address, or ``uid N`` at a unix socket."""

HOLDER: web.RequestKey[Token] = _Key("holder", Token)
"""That token; absent where none was asked for."""

ADMIT: web.RequestKey[Callable[[], None]] = _Key("admit", Callable)
"""Judges the request again, for a body or answer that takes long: raises a refusal, or sets the token as it is now."""


def wants_json(request: web.Request) -> bool:
    """Return whether the client asked for JSON, by ``?format=json`` or by Accept; of the API always."""
    chosen = request.query.get("format")
    if chosen is not None:
        return chosen == "json"
    if request.path.startswith("/api/"):
        return True
    accept = request.headers.get("Accept", "")
    return "application/json" in accept and "text/html" not in accept


def json_body(value: Any) -> bytes:
    """Return ``value`` as indented JSON: people read it too, in a terminal, which obeys no text of others."""
    return without_controls(msgspec.json.format(msgspec.json.encode(value), indent=2)) + b"\n"


def json_response(value: Any, *, status_code: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return ``value`` as an answer."""
    return web.Response(body=json_body(value), status=status_code, headers=headers, content_type="application/json")


def text_response(text: str, *, status_code: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return lines for people: no name or text of others in them steers a terminal."""
    return web.Response(text=escape_controls(text), status=status_code, headers=headers)


def error_response(
    request: web.Request, status_code: int, message: str, headers: dict[str, str] | None = None
) -> web.Response:
    """Return an error as JSON or as a line of text."""
    if wants_json(request):
        return json_response({"error": message, "status": status_code}, status_code=status_code, headers=headers)
    return text_response(f"{message.rstrip()}\n", status_code=status_code, headers=headers)


def finish_headers(response: web.StreamResponse, transport: asyncio.BaseTransport | None) -> None:
    """Put the headers of every answer on ``response``, and take away which library made it.

    One request a connection, also where no handler is reached: an idle client holds no place.
    """
    response.force_close()
    response.headers["Connection"] = "close"
    is_secure = transport is not None and transport.get_extra_info("sslcontext") is not None
    wanted = HEADERS | HSTS if is_secure else HEADERS
    response.headers.update({name: value for name, value in wanted.items() if name not in response.headers})
    response.headers.pop("Server", None)


def limit_of(request: web.Request, *, most: int) -> int:
    """Return how many items an answer may have, from 1 to ``most``; ``ITEMS`` where the client sets none.

    Raises:
        web.HTTPBadRequest: the limit is another number, or none.
    """
    text = request.query.get("limit", str(ITEMS))
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
        raise bad_request("limit", text, f"it is a number from 1 to {most}")
    return int(text)


def bad_request(name: str, value: object, remedy: str) -> web.HTTPBadRequest:
    """Return the refusal of one parameter."""
    return web.HTTPBadRequest(text=f"{name}: {str(value)[:100]!r} cannot be used: {remedy}")


def unavailable(reason: str) -> web.HTTPServiceUnavailable:
    """Return the refusal of a request that cannot be answered now."""
    return web.HTTPServiceUnavailable(text=reason, headers={"Retry-After": "1"})


def _listed(error: ConfigError) -> str:
    """Return the problems on a line, as other refusals are."""
    shown = [" ".join(str(each).split()) for each in error.problems[:PROBLEMS_SHOWN]]
    more = len(error.problems) - len(shown)
    return "; ".join([*shown, *([f"and {more} more"] if more > 0 else [])])


def redis_failed(error: StoreUnavailableError | StoreRefusedError) -> web.HTTPServiceUnavailable:
    """Return the answer where Redis does not answer or refuses: its place and its words are for the log alone.

    Raise it from ``error``, which the log is told then.
    """
    if isinstance(error, NotReplicatedError):
        return unavailable("Redis did it, but no replica of Redis had it in time: make the request again")
    verb = "refuses this" if isinstance(error, StoreRefusedError) else "does not answer"
    return unavailable(f"Redis {verb}; the log of this replica says why")


def refused(error: TenureError) -> web.HTTPException | None:
    """Return ``error`` as an answer by its ``http_status``; None when it is no refusal but a fault."""
    if isinstance(error, ConfigError):
        return web.HTTPBadRequest(text=_listed(error))
    if isinstance(error, CronError | OverExcludedError | TriggerError | UnknownZoneError):
        return web.HTTPConflict(text=str(error))  # a stored schedule cannot be used
    if isinstance(error, PayloadTooLargeError):
        return web.HTTPRequestEntityTooLarge(max_size=PAYLOAD_BYTES_MAX, actual_size=0, text=str(error))
    kinds = {400: web.HTTPBadRequest, 404: web.HTTPNotFound, 409: web.HTTPConflict}
    if error.http_status in kinds:
        return kinds[error.http_status](text=str(error))
    if isinstance(error, StoreUnavailableError | StoreRefusedError):
        return redis_failed(error)
    return unavailable(str(error)) if error.is_retryable else None
