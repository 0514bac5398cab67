"""Schedules that are applied by the API: the set in a request beside the stored ones.

Guarantees
    As of ``changes.py``. Everything is checked first; when anything is wrong, nothing is applied.
    A token that applies has no limits: a definition may take over the past of any other. Jobs whose arguments are as
    good as code are for ``admin``.
    Checks that take long (exclusions that leave no due time) keep no probe waiting; one request is checked at a time.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from aiohttp import web

from supervisor.core.errors import ConfigError
from supervisor.core.model import ScheduleDef
from supervisor.operations import apply, jobs
from supervisor.roles.web.api.access import may_define, must_be_unlimited
from supervisor.roles.web.api.base import ApiHandlers, body_of, note
from supervisor.roles.web.responses import bad_request, json_response
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


class ApiApply(ApiHandlers):
    """The handlers."""

    async def apply(self, request: web.Request) -> web.Response:
        """Create and change dynamic schedules; with ``dry_run`` answer with the changes only."""
        must_be_unlimited(request, "schedules can take over others that it does not reach")
        body = await body_of(request, ApplyBody)
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
            profiles=self._at.profiles,
            calendars=self._at.calendars,
        )
        (validated,) = await self._computed(map(check, [entries.schedules]))
        if problems := (*entries.problems, *validated.problems):
            raise ConfigError(problems)
        return validated.definitions
