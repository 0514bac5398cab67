"""The routes of /api/v1, each with its scope, and the OpenAPI document that is made from the same table.

docs/openapi.json is that document; a test compares the two, and every route with it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from supervisor.core.errors import TenureError
from supervisor.roles.web.access.auth import needs
from supervisor.roles.web.api import changes, control, schedules
from supervisor.roles.web.api.base import ApiContext, body_of
from supervisor.roles.web.api.changes import ApiChanges, EmptyBody
from supervisor.roles.web.api.control import ApiControl
from supervisor.roles.web.api.reads import ApiReads
from supervisor.roles.web.api.schedules import ApiApply, ApiBackfills, ApiTimes
from supervisor.roles.web.events.handlers import EventPages
from supervisor.roles.web.responses import json_response, refused
from supervisor.settings.web.tokens import Scope

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PATH = "/api/v1"
_WAIT = {"wait": "up to 60s: answer when the run has ended, or as it stands after so long"}
_PAGE = {"limit": "at most so many", "cursor": "of the page before"}


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One thing that can be asked."""

    method: str
    path: str  # below /api/v1
    handler: str  # name of the method
    scope: Scope
    summary: str
    answers: tuple[int, ...]
    query: Mapping[str, str] | None = None
    body: type[msgspec.Struct] | None = None


def _read(
    path: str, handler: str, summary: str, answers: tuple[int, ...] = (200,), query: Mapping[str, str] | None = None
) -> ApiRoute:
    return ApiRoute("GET", path, handler, Scope.READ, summary, answers, query)


def _change(
    path: str,
    handler: str,
    summary: str,
    answers: tuple[int, ...] = (200, 400, 404),
    body: type[msgspec.Struct] = EmptyBody,
    *,
    scope: Scope = Scope.OPERATE,
) -> ApiRoute:
    return ApiRoute("POST", path, handler, scope, summary, answers, None, body)


_EVENT_QUERY = {
    "limit": "at most so many of the newest",
    "after": "id of the last event that is known",
    "since": "a duration, like 1h",
    "level": "info, warning or error: the least",
    "reason": "only this reason; may be given again",
}
_RUNS = {"limit": "at most so many", "queue": "only of this queue", "state": "ended or running"}
_DEAD = {
    "limit": "at most so many",
    "queue": "only of this queue",
    "job": "only of this job",
    "reason": "only with this in the reason",
    "before_ms": "only those that died before, in milliseconds since 1970",
}
_TIMES = {"limit": "at most so many", "from": "count from this instant, in ISO 8601"}
_EXPRESSION = {"cron": "an expression", "every": "or an interval", "timezone": "of the expression"}
_PAGED = (200, 400)
_NAMED = (200, 404)
_CHECKED = (200, 400, 404)
_JUDGED = (200, 400, 404, 409)
_ASKED = (200, 202, 400, 404, 409)
_ENQUEUED = (200, 201, 400, 404, 409, 413)
_command = functools.partial(_change, answers=_ASKED, scope=Scope.ADMIN)
_govern = functools.partial(_change, scope=Scope.ADMIN)
ROUTES = (
    _read("/leader", "leader", "Who leads"),
    _read("/leader/history", "leader_history", "The newest changes of the lease", _PAGED, {"limit": "at most so many"}),
    _read("/backfills", "backfills", "The backfills of the last seven days",
          (200,), {"schedule": "only of this schedule"}),
    _read("/backfills/{backfill}", "backfill", "One backfill", _NAMED),
    _read("/events", "events", "What happened, also as a stream", _PAGED, _EVENT_QUERY),
    _read("/schedules", "schedules", "A page of the schedules", _PAGED, _PAGE),
    _read("/schedules/{schedule}/next", "next_times", "Its next due times", _JUDGED, _TIMES),
    _read("/schedules/{schedule}/explain", "explain", "Its due times in words", (200, 404, 409)),
    _read("/preview", "preview", "When an expression would be due", _PAGED, _TIMES | _EXPRESSION),
    _read("/schedules/{schedule}", "schedule", "One schedule", _NAMED),
    _read("/queues", "queues", "How queues stand"),
    _read("/jobs", "jobs", "A page of the jobs that replicas run", _PAGED, _PAGE),
    _read("/runs", "runs", "The newest ended attempts, or running runs", _CHECKED, _RUNS),
    _read("/runs/{run}/log", "run_log", "Its output, to tokens with results",
          _CHECKED, {"attempt": "only of this attempt"}),
    _read("/runs/{run}", "run", "One run, now or when it has ended", _CHECKED, _WAIT),
    _read("/dead", "dead", "The newest dead runs", _CHECKED, _DEAD),
    _read("/dead/{run}", "dead_run", "One dead run", _CHECKED),
    _read("/plugins", "plugins", "State of the plugins, as workers found it"),
    _read("/workers", "workers", "Worker processes of all replicas", (200, 409)),
    _change("/jobs/{job}/runs", "enqueue", "Enqueue a run", _ENQUEUED, changes.EnqueueBody),
    _change("/schedules", "apply", "Create and change dynamic schedules", _PAGED, schedules.ApplyBody),
    _change("/schedules/pause", "pause_schedules", "Pause schedules, by id or label",
            _PAGED, changes.PauseSchedulesBody),
    _change("/schedules/resume", "resume_schedules", "End their pauses", _PAGED, changes.SchedulesBody),
    _change("/schedules/{schedule}/pause", "pause", "Pause a schedule", _CHECKED, changes.PauseBody),
    _change("/schedules/{schedule}/resume", "resume", "End its pause"),
    _change("/schedules/{schedule}/trigger", "trigger", "Run it now", _ENQUEUED, changes.TriggerBody),
    _change("/schedules/{schedule}/delete", "delete", "Delete a dynamic schedule", _JUDGED, changes.DeleteBody),
    _change("/schedules/{schedule}/backfill", "add_backfill", "Run due times of its past",
            _ASKED, schedules.BackfillBody),
    _change("/backfills/{backfill}/cancel", "cancel_backfill", "Stop a backfill"),
    _change("/runs/{run}/cancel", "cancel", "Cancel a run", _JUDGED, changes.CancelBody),
    _change("/runs/{run}/requeue", "requeue", "Let a delayed run start now", _JUDGED, changes.RunBody),
    _change("/runs/{run}/priority", "set_priority", "Give a run another priority", _JUDGED, changes.PriorityBody),
    _govern("/queues/verify", "verify_queues", "Verify queues, and mend what is wrong", _CHECKED, control.VerifyBody),
    _change("/queues/{queue}/pause", "pause_queue", "Pause a queue", _CHECKED, control.QueuePauseBody),
    _change("/queues/{queue}/resume", "resume_queue", "End its pause"),
    _change("/queues/{queue}/purge", "purge_queue", "End its waiting runs", _CHECKED, control.PurgeBody),
    _change("/queues/{queue}/move", "move_queue", "Move its waiting runs to another", _CHECKED, control.MoveBody),
    _change("/dead/requeue", "requeue_dead_runs", "Let dead runs be executed again", _CHECKED, control.RequeueRunsBody),
    _change("/dead/drop", "drop_dead_runs", "Forget dead runs", _CHECKED, control.DropRunsBody),
    _change("/dead/{run}/requeue", "requeue_dead", "Let a dead run be executed again", _JUDGED, control.RequeueBody),
    _change("/dead/{run}/drop", "drop_dead", "Forget a dead run", _JUDGED, control.DropBody),
    _command("/workers/{worker}/quiet", "quiet_worker", "Let it finish and go; start no other"),
    _command("/workers/{worker}/resume", "resume_worker", "Start it again"),
    _command("/workers/{worker}/recycle", "recycle_worker", "Replace it by a fresh one"),
    _command("/workers/{worker}/stacks", "worker_stacks", "Write its stacks to the log"),
    _command("/replicas/{replica}/reload", "reload_replica", "Follow its changed configuration"),
    _command("/replicas/{replica}/stop", "stop_replica", "Stop it as SIGTERM does"),
    _govern("/leader/clear-hold", "clear_hold", "Let it fire again after Redis lost data", _PAGED),
    _govern("/leader/resign", "resign", "Ask the leader to hand over", (200, 202, 400, 409), control.ResignBody),
)  # fmt: skip


def routes(context: ApiContext, event_pages: EventPages) -> list[web.RouteDef]:
    """Return the routes of the API."""
    kinds = (ApiReads, ApiChanges, ApiApply, ApiBackfills, ApiControl, ApiTimes)
    parts = (event_pages, *(kind(context) for kind in kinds))
    found = [web.get(f"{PATH}/openapi.json", _openapi)]
    for route in ROUTES:
        handler = next(getattr(part, route.handler) for part in parts if hasattr(part, route.handler))
        # Ids of schedules, runs and workers hold slashes: the variable of a path takes them, a verb stands behind it.
        path = PATH + re.sub(r"\{(schedule|run|worker)\}", r"{\1:.+}", route.path)
        method = web.get if route.method == "GET" else web.post
        found.append(method(path, needs(route.scope)(_answering(handler, has_empty_body=route.body is EmptyBody))))
    return found


def _answering(handler: Handler, *, has_empty_body: bool) -> Handler:
    """Return ``handler``, with refusals of Redis turned into answers, and of a body where there has to be none."""

    @functools.wraps(handler)
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            if has_empty_body:
                await body_of(request, EmptyBody)
            return await handler(request)
        except TenureError as error:
            if (refusal := refused(error)) is None:
                raise
            raise refusal from error
        except msgspec.DecodeError as error:
            raise web.HTTPConflict(text="a newer version wrote it") from error

    return answer


@needs(Scope.READ)
async def _openapi(_request: web.Request) -> web.Response:
    return json_response(openapi())


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of the API."""
    bodies = [route.body for route in ROUTES if route.body is not None]
    _, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(PATH + route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tenure", "version": "1", "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: ApiRoute) -> dict[str, Any]:
    named = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in named]
    for name, text in (route.query or {}).items():
        parameters.append({"name": name, "in": "query", "description": text, "schema": {"type": "string"}})
    codes = sorted({*route.answers, 401, 403, 503})
    shown: dict[str, Any] = {
        "operationId": route.handler,
        "summary": route.summary,
        "security": [{"token": [route.scope.word]}],
        "parameters": parameters,
        "responses": {str(code): {"description": _MEANINGS[code]} for code in codes},
    }
    if route.body is not None:
        schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        shown["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return shown


_MEANINGS = {
    200: "as asked",
    201: "enqueued",
    202: "asked; what comes of it shows later",
    400: "what was asked cannot be used; says why",
    401: "no token, or an unknown one",
    403: "the token may not",
    404: "there is none of that name",
    409: "not as it stands now",
    413: "too large",
    503: "Redis does not answer, or there is no room now",
}
