"""Backfills by the API: the runs of due times in a schedule's past.

Guarantees
    As of ``changes.py``. A limited token asks for, and stops, backfills of schedules that its limits reach.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from aiohttp import web

from supervisor.operations import backfills, schedules
from supervisor.operations.backfills import REMEMBERED_MAX, Backfill, BackfillPlan
from supervisor.operations.backfills import Request as BackfillRequest
from supervisor.roles.web.api.base import ApiHandlers, body_of, instant_of, note, who
from supervisor.roles.web.api.changes import EmptyBody
from supervisor.roles.web.api.reads import PAGE_MAX
from supervisor.roles.web.responses import bad_request, json_response


class BackfillBody(msgspec.Struct, forbid_unknown_fields=True):
    """The due times from ``from`` to ``to``, both included, in ISO 8601; ``force`` takes also what has run."""

    from_: str = msgspec.field(name="from")
    to: str = ""  # now
    overlap: Literal["allow", "skip", "buffer_all"] = "allow"
    limit: int = REMEMBERED_MAX
    force: bool = False
    dry_run: bool = False


class ApiBackfills(ApiHandlers):
    """The handlers."""

    async def backfills(self, request: web.Request) -> web.Response:
        """Answer with the backfills of the last seven days, newest last."""
        found = await self._ask(backfills.remembered, request.query.get("schedule"))
        return json_response({"backfills": [_shown(each) for each in found]})

    async def backfill(self, request: web.Request) -> web.Response:
        """Answer with one backfill."""
        return json_response(_shown(await self._ask(backfills.show, request.match_info["backfill"])))

    async def add_backfill(self, request: web.Request) -> web.Response:
        """Ask the leader for the runs of a schedule's past; with ``dry_run`` answer with the first of them only."""
        body, name = await body_of(request, BackfillBody), request.match_info["schedule"]
        if not 1 <= body.limit <= REMEMBERED_MAX:
            raise bad_request("limit", str(body.limit), f"give 1 to {REMEMBERED_MAX}")
        now_ms = await self._ask(schedules.now_ms)
        from_ms = instant_of("from", body.from_)
        until_ms = instant_of("to", body.to, is_end=True) if body.to else now_ms
        if until_ms < from_ms:
            raise bad_request("to", body.to, "it lies before from")
        judged = await self._judged_revision(request, name)
        if body.dry_run:
            bounds = {"from_ms": from_ms, "until_ms": until_ms, "limit": body.limit}
            return _planned(await self._ask(backfills.plan, name, **bounds, is_forced=body.force))
        asked = BackfillRequest(
            from_ms=from_ms,
            until_ms=until_ms,
            overlap=body.overlap,
            by=who(request),
            at_ms=now_ms,
            revision=judged or 0,
        )
        backfill = await self._ask(backfills.add, name, asked, limit=body.limit, is_forced=body.force)
        note(request, "api_backfill_requested", schedule=name, backfill=backfill)
        return json_response({"backfill": backfill, "schedule": name}, status_code=202)

    async def cancel_backfill(self, request: web.Request) -> web.Response:
        """Stop a backfill; what it enqueued stays."""
        await body_of(request, EmptyBody)
        name = request.match_info["backfill"]
        await self._judged_revision(request, (await self._ask(backfills.show, name)).schedule)
        stopped = await self._ask(backfills.cancel, name)
        note(request, "api_backfill_cancelled", schedule=stopped.schedule, backfill=name)
        return json_response(_shown(stopped))


def _planned(plan: BackfillPlan) -> web.Response:
    runs = [{"run": each.run_id, "nominal_ms": each.nominal_ms, "does": each.effect} for each in plan.runs[:PAGE_MAX]]
    shown = {
        "schedule": plan.definition.id,
        "count": plan.count,
        "skipped": plan.skipped,
        "unknown": plan.unknown,
        "until_ms": plan.last.cursor_ms,
        "runs": runs,
    }
    return json_response(shown)


def _shown(backfill: Backfill) -> dict[str, Any]:
    return {
        "backfill": backfill.id,
        "schedule": backfill.schedule,
        "state": backfill.state.value,
        "from_ms": backfill.request.from_ms,
        "until_ms": backfill.request.until_ms,
        "cursor_ms": backfill.cursor_ms,
        "enqueued": backfill.enqueued,
        "skipped": backfill.skipped,
        "limit": backfill.limit,
        "forced": backfill.is_forced,
        "overlap": backfill.request.overlap,
        "by": backfill.request.by,
        "updated_ms": backfill.updated_ms,
        "note": backfill.note,
    }
