"""Schedules by the API: a set that is applied, due times and their explanations, backfills of the past.

Guarantees
    As of ``changes.py`` and ``reads.py``. A set is checked first: when anything in it is wrong, nothing is applied.
    A token that applies has no limits: a definition may take over the past of any other. Jobs whose arguments are as
    good as code are for ``admin``. A limited token asks for, and stops, backfills of schedules that its limits reach.
    What takes long (exclusions that leave no due time) keeps no probe waiting: one answer at a time, beside the loop.
"""

from __future__ import annotations

import functools
from itertools import islice
from typing import Any, Literal

import msgspec
from aiohttp import web

from supervisor.core.errors import ConfigError
from supervisor.core.model import ScheduleDef
from supervisor.operations import apply, backfills, due_times, jobs, schedules
from supervisor.operations.backfills import REMEMBERED_MAX, Backfill, BackfillPlan
from supervisor.operations.backfills import Request as BackfillRequest
from supervisor.roles.web.api.access import may_define, must_be_unlimited
from supervisor.roles.web.api.base import ApiHandlers, body_of, instant_of, note, who
from supervisor.roles.web.api.reads import PAGE_MAX
from supervisor.roles.web.responses import bad_request, json_response, limit_of
from supervisor.settings.schedules.definitions import validate_schedules
from supervisor.settings.schedules.files import Format, read_entries

SCHEDULES_MAX = 200


class ApplyBody(msgspec.Struct, forbid_unknown_fields=True):
    """Schedules as in a configuration: by id, or a list of them, each with an ``id``.

    With ``prune`` dynamic schedules that have all of these labels and are not among them are deleted.
    """

    schedules: dict[str, Any] | list[Any]
    dry_run: bool = False
    prune: dict[str, str] = {}
    drop_buffered: bool = False


class BackfillBody(msgspec.Struct, forbid_unknown_fields=True):
    """The due times from ``from`` to ``to``, both included, in ISO 8601; ``force`` takes also what has run."""

    from_: str = msgspec.field(name="from")
    to: str = ""  # now
    overlap: Literal["allow", "skip", "buffer_all"] = "allow"
    limit: int = REMEMBERED_MAX
    force: bool = False
    dry_run: bool = False


class ApiApply(ApiHandlers):
    """The handler of sets of schedules."""

    async def apply(self, request: web.Request) -> web.Response:
        """Create and change dynamic schedules; with ``dry_run`` answer with the changes only."""
        why = "schedules can take over others that it does not reach"
        must_be_unlimited(request, why)
        body = await body_of(request, ApplyBody)
        must_be_unlimited(request, why)  # by the token as it is when the body has come
        wanted = await self._validated(body)
        may_define(request, wanted)
        plan = await self._ask(apply.plan, wanted, labels=body.prune or None)
        if body.dry_run:
            return json_response({"changes": plan.rows()})
        wall_ms = self._at.clock.wall_ms()
        done = await self._ask(apply.carry_out, plan, wall_ms=wall_ms, drops_buffered=body.drop_buffered)
        counts = {name: str(getattr(done, name)) for name in ("created", "changed", "deleted")}
        note(request, "api_schedules_applied", **counts)
        return json_response(done.record() | ({"dropped": done.dropped} if body.drop_buffered else {}))

    async def _validated(self, body: ApplyBody) -> tuple[ScheduleDef, ...]:
        """Return the definitions in a body, checked as ``tenure schedule apply`` checks those in a file.

        Raises:
            ConfigError: with every problem.
        """
        entries = read_entries(msgspec.json.encode(body.schedules), name="schedules", form=Format.JSON)
        if (count := len(entries.schedules)) > SCHEDULES_MAX:
            raise bad_request("schedules", count, f"give at most {SCHEDULES_MAX} at a time")
        check = functools.partial(
            validate_schedules,
            known=await self._ask(jobs.known),
            where="POST /api/v1/schedules",
            profiles=self._at.settings.profiles,
            calendars=self._at.settings.calendars,
        )
        (validated,) = await self._computed(map(check, [entries.schedules]))
        if problems := (*entries.problems, *validated.problems):
            raise ConfigError(problems)
        return validated.definitions


class ApiTimes(ApiHandlers):
    """The handlers of due times."""

    async def next_times(self, request: web.Request) -> web.Response:
        """Answer with the next due times of a schedule."""
        limit, from_ms = limit_of(request, most=PAGE_MAX), _from(request)
        name = request.match_info["schedule"]
        found, _, due = await self._ask(due_times.upcoming, name, count=limit, from_ms=from_ms)
        is_paused = found.record is not None and found.record.pause is not None
        return json_response({"schedule": name, "paused": is_paused, "times": [each._asdict() for each in due]})

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
        return json_response(msgspec.to_builtins(said) | {"times": [each._asdict() for each in times]})


class ApiBackfills(ApiHandlers):
    """The handlers of backfills."""

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
        name = request.match_info["backfill"]
        await self._judged_revision(request, (await self._ask(backfills.show, name)).schedule)
        stopped = await self._ask(backfills.cancel, name)
        note(request, "api_backfill_cancelled", schedule=stopped.schedule, backfill=name)
        return json_response(_shown(stopped))


def _from(request: web.Request) -> int | None:
    return instant_of("from", request.query["from"]) if "from" in request.query else None


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
