"""What each path answers. Reads only; every answer is made within its budget.

Guarantees
    /livez, /readyz and /healthz read shared memory and nothing else.
    No answer holds a traceback, a secret, or anything a browser would execute.
"""

from __future__ import annotations

import asyncio
import html
import platform
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog
from aiohttp import web

from supervisor.core import health
from supervisor.core.health import Endpoint
from supervisor.roles.seat import Seat
from supervisor.roles.web.configz import masked_settings
from supervisor.roles.web.metrics import Scrape
from supervisor.roles.web.overview import Overviews
from supervisor.roles.web.status import status, status_text
from supervisor.telemetry.metrics import exposition
from supervisor.version import __version__

HEALTH_S = 1.0
PAGE_S = 5.0
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HEADERS = {
    "Cache-Control": "no-cache, private",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_INDEX = {
    "/livez": "whether this replica is alive; never depends on Redis",
    "/readyz": "whether it can do its work; ?verbose, ?exclude=NAME, /readyz/NAME",
    "/healthz": "livez, and that a leader renews its lease",
    "/metrics": "for Prometheus",
    "/statusz": "children, leader, queues, what is due next; ?format=json",
    "/configz": "settings in effect, without secrets",
    "/version": "what runs",
}
log = structlog.get_logger()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Pages:
    """The handlers, and what they read."""

    def __init__(self, seat: Seat, overviews: Overviews) -> None:
        self._seat = seat
        self._overviews = overviews
        self.on_request: Callable[[web.Request], None] = lambda _request: None

    def checks(self, endpoint: Endpoint) -> list[health.Check]:
        """Return the checks of ``endpoint`` as they stand now."""
        seat = self._seat
        read = health.facts(
            seat.board,
            now_ns=seat.clock.elapsed_ns(),
            slot_names=seat.slot_names,
            pools=tuple(seat.settings.workers),
            lease_duration_s=seat.settings.election.lease_duration_s,
        )
        return health.checks(endpoint, read)

    def health(self, endpoint: Endpoint) -> Handler:
        """Return the handler of one endpoint and its single checks."""

        async def handle(request: web.Request) -> web.Response:
            name = request.match_info.get("check")
            checks = self.checks(endpoint)
            if name is None:
                exclude = request.query.getall("exclude", [])
                report = health.report(endpoint, checks, verbose="verbose" in request.query, exclude=exclude)
            else:
                found = health.report_one(endpoint, checks, name)
                if found is None:
                    raise web.HTTPNotFound(text=f"{endpoint.title} has no check {name!r}")
                report = found
            return web.Response(status=report.status, text=report.body)

        return handle

    async def metrics(self, _request: web.Request) -> web.Response:
        """Everything Prometheus wants."""
        overview = await self._overviews.get()
        checks = {endpoint: self.checks(endpoint) for endpoint in Endpoint}
        scrape = Scrape(self._seat, checks, overview, is_redis_up=self._overviews.is_up)
        return web.Response(body=exposition(collectors=[scrape]), headers={"Content-Type": METRICS_TYPE})

    async def statusz(self, request: web.Request) -> web.Response:
        """One screen about this replica."""
        shown = status(self._seat, await self._overviews.get())
        return json_response(shown) if wants_json(request) else web.Response(text=status_text(shown))

    async def configz(self, _request: web.Request) -> web.Response:
        """The settings in effect."""
        return json_response(masked_settings(self._seat.settings))

    async def version(self, _request: web.Request) -> web.Response:
        """What runs."""
        return json_response({"name": "tenure", "version": __version__, "python": platform.python_version()})

    async def index(self, request: web.Request) -> web.Response:
        """The paths there are."""
        if "text/html" not in request.headers.get("Accept", ""):
            return web.Response(text="".join(f"{path:<10} {text}\n" for path, text in _INDEX.items()))
        items = "".join(f'<li><a href="{path}">{path}</a> {html.escape(text)}</li>\n' for path, text in _INDEX.items())
        title = html.escape(f"tenure {__version__} · {self._seat.replica}")
        page = f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>\n'
        return web.Response(
            text=f"{page}<body><h1>{title}</h1>\n<ul>\n{items}</ul></body></html>\n", content_type="text/html"
        )


def application(pages: Pages) -> web.Application:
    """Return the application with all routes. HEAD comes with each GET; other methods get 405."""
    app = web.Application(middlewares=[_shield(pages)])
    for endpoint in Endpoint:
        app.router.add_get(f"/{endpoint.title}", pages.health(endpoint))
        app.router.add_get(f"/{endpoint.title}/{{check}}", pages.health(endpoint))
    for name in ("metrics", "statusz", "configz", "version"):
        app.router.add_get(f"/{name}", getattr(pages, name))
    app.router.add_get("/", pages.index)
    return app


def _shield(pages: Pages) -> Any:
    """Return the middleware around every handler: budget, errors, headers."""

    @web.middleware
    async def shield(request: web.Request, handler: Handler) -> web.StreamResponse:
        pages.on_request(request)
        is_health = request.path.startswith(tuple(f"/{endpoint.title}" for endpoint in Endpoint))
        try:
            async with asyncio.timeout(HEALTH_S if is_health else PAGE_S):
                response = await handler(request)
        except web.HTTPException as refusal:
            response = _error(request, refusal.status, refusal.text or refusal.reason, refusal.headers.get("Allow"))
        except TimeoutError:
            response = _error(request, 503, "no answer within the time allowed")
        except Exception:
            log.exception("request_failed", path=request.path)
            response = _error(request, 500, "internal error; the log says more")
        response.headers.update({name: value for name, value in _HEADERS.items() if name not in response.headers})
        response.force_close()  # one request a connection: an idle client holds no place
        log.debug("request", method=request.method, path=request.path, status=response.status)
        return response

    return shield


def _error(request: web.Request, status_code: int, message: str, allow: str | None = None) -> web.Response:
    headers = {"Allow": allow} if allow else {}
    if wants_json(request):
        return json_response({"error": message, "status": status_code}, status_code=status_code, headers=headers)
    return web.Response(status=status_code, text=f"{message.rstrip()}\n", headers=headers)


def wants_json(request: web.Request) -> bool:
    """Return whether the client asked for JSON, by ``?format=json`` or by Accept."""
    chosen = request.query.get("format")
    if chosen is not None:
        return chosen == "json"
    accept = request.headers.get("Accept", "")
    return "application/json" in accept and "text/html" not in accept


def json_response(value: Any, *, status_code: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return ``value`` as indented JSON: people read it too."""
    body = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    return web.Response(body=body, status=status_code, headers=headers, content_type="application/json")
