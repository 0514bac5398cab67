"""Due times by the API: the next ones of a schedule, and explanations, also of expressions that are none yet.

Guarantees
    As of ``reads.py``. What is computed keeps no probe waiting: one answer at a time, beside the loop.
"""

from __future__ import annotations

import functools
from itertools import islice
from typing import Any

import msgspec
from aiohttp import web

from supervisor.operations import due_times
from supervisor.operations.due_times import DueTime
from supervisor.roles.web.api.base import ApiHandlers, instant_of
from supervisor.roles.web.api.reads import PAGE_MAX
from supervisor.roles.web.responses import bad_request, json_response, limit_of


class ApiTimes(ApiHandlers):
    """The handlers."""

    async def next_times(self, request: web.Request) -> web.Response:
        """Answer with the next due times of a schedule."""
        limit, from_ms = limit_of(request, most=PAGE_MAX), _from(request)
        name = request.match_info["schedule"]
        found, _, due = await self._ask(due_times.upcoming, name, count=limit, from_ms=from_ms)
        is_paused = found.record is not None and found.record.pause is not None
        return json_response({"schedule": name, "paused": is_paused, "times": _shown(due)})

    async def explain(self, request: web.Request) -> web.Response:
        """Answer with the explanation of a schedule."""
        name = request.match_info["schedule"]
        _, said = await self._ask(due_times.explain, name)
        return json_response({"schedule": name} | msgspec.to_builtins(said))

    async def preview(self, request: web.Request) -> web.Response:
        """Answer with explanation and next due times of an expression or interval."""
        limit, now_ms, query = limit_of(request, most=PAGE_MAX), self._at.clock.wall_ms(), request.query
        from_ms = _from(request)
        if ("cron" in query) == ("every" in query):
            raise bad_request("cron", query.get("cron", ""), "give either cron or every")
        timing = {name: query.get(name) for name in ("cron", "every", "timezone")}
        definition = due_times.unsaved(timing, where=request.path)
        (said,) = await self._computed(map(functools.partial(due_times.explained, now_ms=now_ms), [definition]))
        due = due_times.due_times(definition, now_ms if from_ms is None else from_ms)
        times = await self._computed(islice(due, limit))
        return json_response(msgspec.to_builtins(said) | {"times": _shown(times)})


def _from(request: web.Request) -> int | None:
    return instant_of("from", request.query["from"]) if "from" in request.query else None


def _shown(times: list[DueTime]) -> list[dict[str, Any]]:
    return [each._asdict() for each in times]
