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
from supervisor.roles.web.api import apply, backfills, changes, control
from supervisor.roles.web.api.apply import ApiApply
from supervisor.roles.web.api.backfills import ApiBackfills
from supervisor.roles.web.api.base import ApiContext
from supervisor.roles.web.api.changes import ApiChanges
from supervisor.roles.web.api.control import ApiControl
from supervisor.roles.web.api.reads import ApiReads
from supervisor.roles.web.api.times import ApiTimes
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
_COMMAND = (200, 202, 400, 404, 409)
ROUTES = (
    ApiRoute("GET", "/leader", "leader", Scope.READ, "Who leads", (200,)),
    ApiRoute("GET", "/leader/history", "leader_history", Scope.READ, "The newest changes of the lease", (200, 400),
             {"limit": "at most so many"}),
    ApiRoute("GET", "/backfills", "backfills", Scope.READ, "The backfills of the last seven days", (200,),
             {"schedule": "only of this schedule"}),
    ApiRoute("GET", "/backfills/{backfill}", "backfill", Scope.READ, "One backfill", (200, 404)),
    ApiRoute("GET", "/events", "events", Scope.READ, "What happened, also as a stream", (200, 400), _EVENT_QUERY),
    ApiRoute("GET", "/schedules", "schedules", Scope.READ, "A page of the schedules", (200, 400), _PAGE),
    ApiRoute("GET", "/schedules/{schedule}/next", "next_times", Scope.READ, "Its next due times", (200, 400, 404, 409),
             _TIMES),
    ApiRoute("GET", "/schedules/{schedule}/explain", "explain", Scope.READ, "Its due times in words", (200, 404, 409)),
    ApiRoute("GET", "/preview", "preview", Scope.READ, "When an expression would be due", (200, 400),
             _TIMES | {"cron": "an expression", "every": "or an interval", "timezone": "of the expression"}),
    ApiRoute("GET", "/schedules/{schedule}", "schedule", Scope.READ, "One schedule", (200, 404)),
    ApiRoute("GET", "/queues", "queues", Scope.READ, "How queues stand", (200,)),
    ApiRoute("GET", "/jobs", "jobs", Scope.READ, "A page of the jobs that replicas run", (200, 400), _PAGE),
    ApiRoute("GET", "/runs", "runs", Scope.READ, "The newest ended attempts, or running runs", (200, 400, 404), _RUNS),
    ApiRoute("GET", "/runs/{run}/log", "run_log", Scope.READ, "Its output, to tokens with results", (200, 400, 404),
             {"attempt": "only of this attempt"}),
    ApiRoute("GET", "/runs/{run}", "run", Scope.READ, "One run, now or when it has ended", (200, 400, 404), _WAIT),
    ApiRoute("GET", "/dead", "dead", Scope.READ, "The newest dead runs", (200, 400, 404), _DEAD),
    ApiRoute("GET", "/dead/{run}", "dead_run", Scope.READ, "One dead run", (200, 400, 404)),
    ApiRoute("GET", "/plugins", "plugins", Scope.READ, "State of the plugins, as workers found it", (200,)),
    ApiRoute("GET", "/workers", "workers", Scope.READ, "Worker processes of all replicas", (200, 409)),
    ApiRoute("POST", "/jobs/{job}/runs", "enqueue", Scope.OPERATE, "Enqueue a run", (200, 201, 400, 404, 409, 413),
             None, changes.EnqueueBody),
    ApiRoute("POST", "/schedules", "apply", Scope.OPERATE, "Create and change dynamic schedules", (200, 400), None,
             apply.ApplyBody),
    ApiRoute("POST", "/schedules/pause", "pause_schedules", Scope.OPERATE, "Pause schedules, by id or label",
             (200, 400), None, changes.PauseSchedulesBody),
    ApiRoute("POST", "/schedules/resume", "resume_schedules", Scope.OPERATE, "End their pauses", (200, 400), None,
             changes.SchedulesBody),
    ApiRoute("POST", "/schedules/{schedule}/pause", "pause", Scope.OPERATE, "Pause a schedule", (200, 400, 404), None,
             changes.PauseBody),
    ApiRoute("POST", "/schedules/{schedule}/resume", "resume", Scope.OPERATE, "End its pause", (200, 400, 404), None,
             changes.EmptyBody),
    ApiRoute("POST", "/schedules/{schedule}/trigger", "trigger", Scope.OPERATE, "Run it now",
             (200, 201, 400, 404, 409, 413), None, changes.TriggerBody),
    ApiRoute("POST", "/schedules/{schedule}/delete", "delete", Scope.OPERATE, "Delete a dynamic schedule",
             (200, 400, 404, 409), None, changes.DeleteBody),
    ApiRoute("POST", "/schedules/{schedule}/backfill", "add_backfill", Scope.OPERATE, "Run due times of its past",
             (200, 202, 400, 404, 409), None, backfills.BackfillBody),
    ApiRoute("POST", "/backfills/{backfill}/cancel", "cancel_backfill", Scope.OPERATE, "Stop a backfill",
             (200, 400, 404), None, changes.EmptyBody),
    ApiRoute("POST", "/runs/{run}/cancel", "cancel", Scope.OPERATE, "Cancel a run", (200, 400, 404, 409), None,
             changes.CancelBody),
    ApiRoute("POST", "/runs/{run}/requeue", "requeue", Scope.OPERATE, "Let a delayed run start now",
             (200, 400, 404, 409), None, changes.RunBody),
    ApiRoute("POST", "/runs/{run}/priority", "set_priority", Scope.OPERATE, "Give a run another priority",
             (200, 400, 404, 409), None, changes.PriorityBody),
    ApiRoute("POST", "/queues/verify", "verify_queues", Scope.ADMIN, "Verify queues, and mend what is wrong",
             (200, 400, 404), None, control.VerifyBody),
    ApiRoute("POST", "/queues/{queue}/pause", "pause_queue", Scope.OPERATE, "Pause a queue", (200, 400, 404), None,
             control.QueuePauseBody),
    ApiRoute("POST", "/queues/{queue}/resume", "resume_queue", Scope.OPERATE, "End its pause", (200, 400, 404), None,
             changes.EmptyBody),
    ApiRoute("POST", "/queues/{queue}/purge", "purge_queue", Scope.OPERATE, "End its waiting runs", (200, 400, 404),
             None, control.PurgeBody),
    ApiRoute("POST", "/queues/{queue}/move", "move_queue", Scope.OPERATE, "Move its waiting runs to another",
             (200, 400, 404), None, control.MoveBody),
    ApiRoute("POST", "/dead/requeue", "requeue_dead_runs", Scope.OPERATE, "Let dead runs be executed again",
             (200, 400, 404), None, control.RequeueRunsBody),
    ApiRoute("POST", "/dead/drop", "drop_dead_runs", Scope.OPERATE, "Forget dead runs", (200, 400, 404), None,
             control.DropRunsBody),
    ApiRoute("POST", "/dead/{run}/requeue", "requeue_dead", Scope.OPERATE, "Let a dead run be executed again",
             (200, 400, 404, 409), None, control.RequeueBody),
    ApiRoute("POST", "/dead/{run}/drop", "drop_dead", Scope.OPERATE, "Forget a dead run", (200, 400, 404, 409), None,
             control.DropBody),
    ApiRoute("POST", "/workers/{worker}/quiet", "quiet_worker", Scope.ADMIN, "Let it finish and go; start no other",
             _COMMAND, None, changes.EmptyBody),
    ApiRoute("POST", "/workers/{worker}/resume", "resume_worker", Scope.ADMIN, "Start it again", _COMMAND, None,
             changes.EmptyBody),
    ApiRoute("POST", "/workers/{worker}/recycle", "recycle_worker", Scope.ADMIN, "Replace it by a fresh one", _COMMAND,
             None, changes.EmptyBody),
    ApiRoute("POST", "/workers/{worker}/stacks", "worker_stacks", Scope.ADMIN, "Write its stacks to the log", _COMMAND,
             None, changes.EmptyBody),
    ApiRoute("POST", "/replicas/{replica}/reload", "reload_replica", Scope.ADMIN, "Follow its changed configuration",
             _COMMAND, None, changes.EmptyBody),
    ApiRoute("POST", "/replicas/{replica}/stop", "stop_replica", Scope.ADMIN, "Stop it as SIGTERM does", _COMMAND, None,
             changes.EmptyBody),
    ApiRoute("POST", "/leader/clear-hold", "clear_hold", Scope.ADMIN, "Let it fire again after Redis lost data",
             (200, 400), None, changes.EmptyBody),
    ApiRoute("POST", "/leader/resign", "resign", Scope.ADMIN, "Ask the leader to hand over", (200, 202, 400, 409), None,
             control.ResignBody),
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
        found.append(method(path, needs(route.scope)(_answering(handler))))
    return found


def _answering(handler: Handler) -> Handler:
    """Return ``handler``, with refusals of Redis turned into answers."""

    @functools.wraps(handler)
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
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
    """The document."""
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
