"""Handlers of all paths but events and the API; every answer is made within its budget.

Guarantees
    /livez, /readyz and /healthz read shared memory and nothing else.
    No answer holds a traceback, a secret, or anything a browser would execute.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Any

import structlog
from aiohttp import web

from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.supervision import health
from supervisor.core.supervision.health import HealthEndpoint
from supervisor.roles.child import ChildContext
from supervisor.roles.web import dashboard
from supervisor.roles.web.access.auth import RequestGuard, needs, public, scope_of, unknown_token
from supervisor.roles.web.api.base import WAIT_S_MAX
from supervisor.roles.web.cluster_snapshot import Overview, Overviews
from supervisor.roles.web.configz import Configuration, flags, masked_settings, with_sources
from supervisor.roles.web.metrics import Scrape
from supervisor.roles.web.responses import (
    ADMIT,
    ASKER,
    HOLDER,
    PEER,
    error_response,
    finish_headers,
    json_body,
    json_response,
    text_response,
    wants_json,
)
from supervisor.roles.web.status import status, status_text
from supervisor.settings.schedules.calendars import ending_notes
from supervisor.settings.web.tokens import Scope
from supervisor.telemetry.controls import escape_controls
from supervisor.telemetry.logs import RepeatedWarning
from supervisor.telemetry.metrics import HEALTHCHECKS, HTTP_FAILURES, exposition
from supervisor.version import __version__

HEALTH_S = 1.0
BODY_BYTES_MAX = 128 * 1024
PAGE_S = 5.0
EVENTS_PATH = "/api/v1/events"
RUNS_PATH = "/api/v1/runs/"
WITHHELD = "reason withheld"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_INDEX = {
    "/livez": "whether this replica is alive; never depends on Redis",
    "/readyz": "whether it can do its work; ?verbose, ?exclude=NAME, /readyz/NAME",
    "/healthz": "livez, and that a leader renews its lease",
    "/check": "readyz in one word: SERVING or NOT_SERVING",
    "/metrics": "for Prometheus",
    "/statusz": "children, leader, queues, what is due next; ?format=json",
    "/configz": "settings in effect, without secrets; ?sources: and where each comes from",
    "/flagz": "the same as flags",
    "/version": "what runs",
    EVENTS_PATH: "what happened, as JSON or as a stream of server-sent events",
    "/api/v1/openapi.json": "the API",
}
_KEPT_HEADERS = ("Allow", "WWW-Authenticate", "Retry-After")

log = structlog.get_logger()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Admit = Callable[[web.Request], None]
"""Called first of all; raises when there is no room to deal with a request."""


class Pages:
    """The handlers, and their data."""

    def __init__(self, child: ChildContext, overviews: Overviews, guard: RequestGuard | None = None) -> None:
        self._child = child
        self._overviews = overviews
        self._configuration = Configuration(child.settings)
        self.guard = guard or RequestGuard(child.settings.web, child.clock)
        self.redis_failures = RepeatedWarning("redis_failed_request", child.clock)
        self._turn = asyncio.Lock()

    async def turn(self) -> None:
        """Wait until nothing else but health begins in this turn of the loop, so that a probe waits for one page."""
        async with self._turn:
            await asyncio.sleep(0)

    def checks(self, endpoint: HealthEndpoint) -> list[health.HealthCheck]:
        """Return the checks of ``endpoint`` in their current state."""
        child = self._child
        read = health.facts(
            child.board,
            now_ns=child.clock.elapsed_ns(),
            slot_names=child.slot_names,
            pools=tuple(child.settings.workers),
            lease_duration_s=child.settings.election.lease_duration_s,
        )
        seen = self._overviews.newest or Overview((), None, ())
        found = health.checks(endpoint, read, unserved=seen.unserved, late=seen.late, differing=seen.differing)
        if endpoint is not HealthEndpoint.READYZ:
            return found
        ending = "; ".join(ending_notes(child.settings.calendars, now_ms=child.clock.wall_ms()))
        tokens = health.HealthCheck("tokens", self.guard.fault)
        return [*found, tokens, health.HealthCheck("calendars", note=ending)]

    def health(self, endpoint: HealthEndpoint) -> Handler:
        """Return the handler of one endpoint and its single checks."""

        @public
        async def handle(request: web.Request) -> web.Response:
            name = request.match_info.get("check")
            checks = self.checks(endpoint)
            for each in checks if name is None else [each for each in checks if each.name == name]:
                HEALTHCHECKS.labels(each.name, endpoint.title, "success" if each.ok else "error").inc()
            if endpoint is HealthEndpoint.READYZ and "verbose" in request.query:
                await self._overviews.get()
                checks = self.checks(endpoint)
            if not self.guard.may_read(request):
                checks = [
                    health.HealthCheck(each.name, each.reason and WITHHELD, each.note and WITHHELD) for each in checks
                ]
            if name is None:
                exclude = request.query.getall("exclude", [])
                report = health.report(endpoint, checks, verbose="verbose" in request.query, exclude=exclude)
            else:
                found = health.report_one(endpoint, checks, name)
                if found is None:
                    raise web.HTTPNotFound(text=f"{endpoint.title} has no check {name!r}")
                report = found
            return text_response(report.body, status_code=report.status)

        return handle

    @public
    async def check(self, _request: web.Request) -> web.Response:
        """Readiness in one word, in the form of Cloudforet's servers."""
        is_serving = health.is_serving(self.checks(HealthEndpoint.READYZ))
        shown = {"status": "SERVING" if is_serving else "NOT_SERVING"}
        return json_response(shown, status_code=200 if is_serving else HealthEndpoint.READYZ.failed_status)

    @needs(Scope.READ)
    async def metrics(self, _request: web.Request) -> web.Response:
        """Everything Prometheus wants."""
        overview = await self._overviews.get()
        checks = {endpoint: self.checks(endpoint) for endpoint in HealthEndpoint}
        scrape = Scrape(self._child, checks, overview, is_redis_up=self._overviews.is_up)
        body = exposition(collectors=[scrape], cluster=self._child.settings.cluster)
        return web.Response(body=body, headers={"Content-Type": METRICS_TYPE})

    @needs(Scope.READ)
    async def statusz(self, request: web.Request) -> web.Response:
        """One screen about this replica."""
        shown = status(self._child, await self._overviews.get())
        return json_response(shown) if wants_json(request) else text_response(status_text(shown))

    @needs(Scope.READ)
    async def configz(self, request: web.Request) -> web.Response:
        """The settings in effect, and where they come from if that is asked; or a page of the schedules."""
        has_sources = "sources" in request.query
        after = request.query.get("schedules")
        if after is not None:
            body = await self._configuration.schedules(after, has_sources=has_sources)
        elif has_sources:
            body = await self._configuration.page("sources", lambda settings: json_body(with_sources(settings)))
        else:
            body = await self._configuration.page("settings", lambda settings: json_body(masked_settings(settings)))
        return web.Response(body=body, content_type="application/json")

    @needs(Scope.READ)
    async def flagz(self, _request: web.Request) -> web.Response:
        """The settings in effect, as flags."""
        body = await self._configuration.page("flags", lambda settings: flags(settings).encode())
        return web.Response(body=body, content_type="text/plain", charset="utf-8")

    @public
    async def version(self, _request: web.Request) -> web.Response:
        """Answer with the versions of Tenure and of Python."""
        return json_response({"name": "tenure", "version": __version__, "python": platform.python_version()})

    @needs(Scope.READ)
    async def index(self, request: web.Request) -> web.Response:
        """The paths there are; for a browser with the dashboard before them."""
        if "text/html" not in request.headers.get("Accept", ""):
            return web.Response(text="".join(f"{path:<10} {text}\n" for path, text in _INDEX.items()))
        shown = status(self._child, await self._overviews.get())
        page = dashboard.page(shown, self.checks(HealthEndpoint.READYZ), _INDEX, refreshes="refresh" in request.query)
        headers = {"Content-Security-Policy": dashboard.POLICY}
        return web.Response(text=escape_controls(page), content_type="text/html", headers=headers)


def health_application(pages: Pages, admit: Admit) -> web.Application:
    """Return an application with the routes of health alone. HEAD comes with each GET; the rest gets 405."""
    app = web.Application(middlewares=[_shield(pages, admit)], client_max_size=BODY_BYTES_MAX)
    for endpoint in HealthEndpoint:
        app.router.add_get(f"/{endpoint.title}", pages.health(endpoint))
        app.router.add_get(f"/{endpoint.title}/{{check}}", pages.health(endpoint))
    app.router.add_get("/check", pages.check)
    app.on_response_prepare.append(_finish_headers)
    return app


def application(pages: Pages, admit: Admit, routes: Iterable[web.RouteDef] = ()) -> web.Application:
    """Return the application with all routes, ``routes`` among them."""
    app = health_application(pages, admit)
    for name in ("metrics", "statusz", "configz", "flagz", "version"):
        app.router.add_get(f"/{name}", getattr(pages, name))
    app.router.add_get("/", pages.index)
    app.router.add_routes(routes)
    return app


async def _finish_headers(request: web.Request, response: web.StreamResponse) -> None:
    finish_headers(response, request.transport)


def _shield(pages: Pages, admit: Admit) -> Any:
    """Return the middleware around every handler: budget, errors, headers."""

    @web.middleware
    async def shield(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_health = request.path.startswith(tuple(f"/{endpoint.title}" for endpoint in HealthEndpoint))
        is_stream = request.path == EVENTS_PATH and "text/event-stream" in request.headers.get("Accept", "")
        is_waiting = request.method != "POST" and request.path.startswith(RUNS_PATH) and "wait" in request.query
        allowed_s = HEALTH_S if is_health else None if is_stream else PAGE_S + is_waiting * WAIT_S_MAX
        try:
            async with asyncio.timeout(allowed_s):
                admit(request)
                _admit(pages.guard, request)
                if not is_health:
                    await pages.turn()
                response = await handler(request)
        except web.HTTPException as refusal:
            if isinstance(cause := refusal.__cause__, StoreUnavailableError | StoreRefusedError):
                pages.redis_failures.add(reason=str(cause), path=request.path[:200])
            kept = {name: refusal.headers[name] for name in _KEPT_HEADERS if name in refusal.headers}
            response = error_response(request, refusal.status, refusal.text or refusal.reason, kept)
        except TimeoutError:
            if request.content.is_eof():
                response = error_response(request, 503, "no answer within the time allowed")
            else:  # a change begins when its body is there
                response = error_response(request, 408, "the body did not come within the time allowed, or is broken")
        except Exception:
            HTTP_FAILURES.inc()
            log.exception("request_failed", path=request.path)
            response = error_response(request, 500, "internal error; the log says more")
        if response.prepared:
            return response  # a stream that ended
        if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR and request.method == "POST" and request.get(ASKER):
            log.warning("api_change_unfinished", by=request[ASKER], path=request.path, status=response.status)
        log.debug(
            "request", method=request.method, path=request.path, status=response.status, peer=request.get(PEER, "")
        )
        return response

    return shield


def _admit(guard: RequestGuard, request: web.Request) -> None:
    """Let ``request`` in, with its token for the handler, or raise the refusal."""
    is_found = request.match_info.http_exception is None  # a path or method that there is not asks for no scope
    token = guard.check(request, scope_of(request.match_info.handler) if is_found else None)
    request[ASKER] = token.name if token is not None else ""
    request.pop(HOLDER, None)
    if token is not None:
        request[HOLDER] = token
    request[ADMIT] = lambda: _admit_again(guard, request)


def _admit_again(guard: RequestGuard, request: web.Request) -> None:
    """Judge ``request`` once more; one that came with a token does not go on without it, also where reads are open."""
    had_token = bool(request[ASKER])
    _admit(guard, request)
    if had_token and not request[ASKER]:
        raise unknown_token()
