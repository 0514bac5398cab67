"""Changes by the API to schedules and runs: enqueue, cancel, requeue; pause, resume, trigger. For ``operate``.

Guarantees
    A body has at most 128 KiB and no field that is not known. The requester is in the log, and in
    the history of the changed object. Limits of a token hold (see access.py).
    A queue that is named in an enqueue is one that somebody serves, unless ``force`` promises that it will be.
    Asked again with the same ``run_id`` or ``key``, an enqueue or a trigger enqueues nothing more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from aiohttp import web

from supervisor.core.errors import ArgumentsError, UnknownJobError
from supervisor.core.model import PRIORITIES, ScheduleDef
from supervisor.operations import jobs, runs, schedule_control, schedules
from supervisor.operations.runs import CancelCode, Placed, UnknownRunError
from supervisor.operations.schedule_control import DeleteCode, PauseCode, ResumeCode, TriggerCode
from supervisor.operations.schedules import ScheduleFilter, UnknownScheduleError
from supervisor.roles.web.api.access import may_define, may_enqueue, permit_run, permit_schedule
from supervisor.roles.web.api.base import ApiHandlers, body_of, instant_of, note, seconds_of, who
from supervisor.roles.web.responses import HOLDER, bad_request, json_response

SCHEDULES_MAX = 250
JUDGED_MAX = 50
PAGES_MAX = 4
"""Of schedules that a filter is compared with for one answer; the next request goes on behind them."""

UNKNOWN = "unknown"


class EnqueueBody(msgspec.Struct, forbid_unknown_fields=True):
    """A run to be enqueued."""

    args: dict[str, Any] = {}
    queue: str | None = None
    priority: str | None = None
    delay: float | str | None = None
    run_id: str | None = None
    force: bool = False  # also into a queue from which no live worker takes runs


class PauseBody(msgspec.Struct, forbid_unknown_fields=True):
    """A pause; ``for`` is a duration after which it ends by itself, ``until`` an instant in ISO 8601."""

    reason: str = ""
    for_: str | None = msgspec.field(default=None, name="for")
    until: str | None = None


class SchedulesBody(msgspec.Struct, forbid_unknown_fields=True):
    """Schedules: those that are named, those that have all of ``labels``, or all, from ``cursor`` of an answer on."""

    schedules: Annotated[list[str], msgspec.Meta(max_length=SCHEDULES_MAX)] = []
    labels: dict[str, str] = {}
    all: bool = False
    cursor: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,19}(?!\n)$")] = "0"
    dry_run: bool = False


class PauseSchedulesBody(SchedulesBody, forbid_unknown_fields=True):
    """A pause of schedules; the fields as of one."""

    reason: str = ""
    for_: str | None = msgspec.field(default=None, name="for")
    until: str | None = None


class TriggerBody(msgspec.Struct, forbid_unknown_fields=True):
    """A run of a schedule, beside its plan; ``args`` replace those of the definition, by name."""

    args: dict[str, Any] = {}
    key: str | None = None
    overlap: str = "allow"


class DeleteBody(msgspec.Struct, forbid_unknown_fields=True):
    """The end of a schedule, with ``revision`` only at that one."""

    revision: int | None = None


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    """The end of a run; one that goes on for longer than ``kill`` after it was asked is killed with its process."""

    reason: str = ""
    queue: str = ""
    kill: str | None = None


class RunBody(msgspec.Struct, forbid_unknown_fields=True):
    """The queue of a run; empty: wherever it is."""

    queue: str = ""


class PriorityBody(msgspec.Struct, forbid_unknown_fields=True):
    """Another priority of a run: high, normal or low."""

    priority: str
    queue: str = ""


class EmptyBody(msgspec.Struct, forbid_unknown_fields=True):
    """An empty body."""


class ApiChanges(ApiHandlers):
    """The handlers."""

    async def enqueue(self, request: web.Request) -> web.Response:
        """Enqueue a run of a job."""
        body, job = await body_of(request, EnqueueBody), request.match_info["job"]
        known = await self._ask(jobs.known) if request[HOLDER].queues else None
        replaces = known is not None and job in known and known.get(job).base.concurrency_replaces
        may_enqueue(request, job, queue=body.queue, run_id=body.run_id, replaces=replaces)
        try:
            put = await self._ask(
                jobs.enqueue,
                job,
                body.args,
                is_forced=body.force,
                configured=self._at.own_queues,
                remedy='correct the name, or send "force": true and start a worker for it',
                queue=body.queue,
                priority=body.priority,
                delay=body.delay,
                run_id=body.run_id,
                traceparent=request.headers.get("traceparent"),
            )
        except UnknownJobError as error:
            raise web.HTTPNotFound(text=f"there is no job {job[:200]!r}") from error
        except (ArgumentsError, ValueError) as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        note(request, "api_enqueued", run=put.run_id, job=job)
        return json_response({"run": put.run_id, "new": put.is_new}, status_code=201 if put.is_new else 200)

    async def pause(self, request: web.Request) -> web.Response:
        """Pause a schedule."""
        body, name = await body_of(request, PauseBody), request.match_info["schedule"]
        terms = await self._terms(request, body)
        (paused,) = await self._ask(schedule_control.pause, [name], terms, permit=permit_schedule(request))
        if paused.code is PauseCode.UNKNOWN:
            raise UnknownScheduleError(name)
        note(request, "api_paused", schedule=name)
        return json_response({"schedule": name, "result": paused.code.value.lower(), "until_ms": paused.until_ms})

    async def pause_schedules(self, request: web.Request) -> web.Response:
        """Pause schedules that are named, or selected by label."""
        body = await body_of(request, PauseSchedulesBody)
        terms = await self._terms(request, body)

        async def pause(names: Sequence[str]) -> list[tuple[str, str]]:
            done = await self._ask(
                schedule_control.pause, names, terms, is_selected=not body.schedules, permit=permit_schedule(request)
            )
            return [(each.schedule, each.code.value.lower()) for each in done]

        return await self._change_many(request, body, "api_paused", pause)

    async def _terms(self, request: web.Request, body: PauseBody | PauseSchedulesBody) -> schedule_control.PauseTerms:
        for_s = None if body.for_ is None else seconds_of("for", body.for_)
        until_ms = None if body.until is None else instant_of("until", body.until)
        if until_ms is not None and until_ms <= await self._ask(schedules.now_ms):
            raise bad_request("until", body.until, "it has passed; name a later instant")
        return schedule_control.PauseTerms(by=who(request), reason=body.reason, for_s=for_s, until_ms=until_ms)

    async def resume(self, request: web.Request) -> web.Response:
        """End the pause of a schedule."""
        name = request.match_info["schedule"]
        ((_, code),) = await self._ask(schedule_control.resume, [name], permit=permit_schedule(request))
        if code is ResumeCode.UNKNOWN:
            raise UnknownScheduleError(name)
        note(request, "api_resumed", schedule=name)
        return json_response({"schedule": name, "result": code.value.lower()})

    async def resume_schedules(self, request: web.Request) -> web.Response:
        """End the pauses of schedules that are named, or selected by label."""

        async def resume(names: Sequence[str]) -> list[tuple[str, str]]:
            done = await self._ask(schedule_control.resume, names, permit=permit_schedule(request))
            return [(name, code.value.lower()) for name, code in done]

        return await self._change_many(request, await body_of(request, SchedulesBody), "api_resumed", resume)

    async def _change_many(
        self,
        request: web.Request,
        body: SchedulesBody,
        event: str,
        change: Callable[[Sequence[str]], Awaitable[list[tuple[str, str]]]],
    ) -> web.Response:
        """Apply ``change`` to the schedules of a body, or judge it only, and answer with what became of each."""
        which = ScheduleFilter(ids=body.schedules, labels=body.labels, everything=body.all)
        permit = permit_schedule(request)
        # One by one, each written to the disk of the server: more of them would take longer than an answer may.
        limits = {"count": JUDGED_MAX, "pages_max": 1} if permit is not None else {"pages_max": PAGES_MAX}
        names, cursor = await self._ask(schedules.selected, which, cursor=body.cursor, **limits)

        async def judge(names: Sequence[str]) -> list[tuple[str, str]]:
            _, definition = await self._ask(schedules.inspect, names[0])
            if permit is not None:
                permit(definition)
            return [(names[0], "selected")]

        async def changed(names: Sequence[str]) -> list[tuple[str, str]]:
            done = await change(names)
            for name, result in done:
                if result != UNKNOWN:
                    note(request, event, schedule=name)
            return done

        is_together = permit is None and not body.dry_run
        done = await self._each(names, judge if body.dry_run else changed, together=is_together)
        rows = [{"schedule": name, "result": result} for name, result in done]
        return json_response({"schedules": rows, "cursor": None if cursor == "0" else cursor})

    async def trigger(self, request: web.Request) -> web.Response:
        """Run a schedule now."""
        body, name = await body_of(request, TriggerBody), request.match_info["schedule"]
        if body.overlap not in {"allow", "skip"}:
            raise bad_request("overlap", body.overlap, "allow or skip")
        known = await self._ask(jobs.known) if body.args else None
        reaches = permit_schedule(request)

        def permit(definition: ScheduleDef) -> None:
            if reaches is not None:
                reaches(definition)
            if body.args:
                may_define(request, [definition])

        def check(job: str, args: Mapping[str, Any]) -> None:
            assert known is not None
            known.get(job).check(args)

        done = await self._ask(
            schedule_control.trigger,
            name,
            key=body.key,
            args=body.args,
            heeds_overlap=body.overlap == "skip",
            permit=permit,
            check=None if known is None else check,
            wall_ms=self._at.clock.wall_ms(),
        )
        if done.code is TriggerCode.SKIPPED:
            raise web.HTTPConflict(text=f"an earlier run of {name} is unfinished")
        note(request, "api_triggered", schedule=name, run=done.run_id)
        is_new = done.code is TriggerCode.TRIGGERED
        shown = {"schedule": name, "run": done.run_id, "result": done.code.value.lower()}
        return json_response(shown, status_code=201 if is_new else 200)

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a dynamic schedule."""
        body, name = await body_of(request, DeleteBody), request.match_info["schedule"]
        revision, judged = body.revision, await self._judged_revision(request, name)
        if None not in {revision, judged} and revision != judged:
            raise web.HTTPConflict(text=f"{name}: its revision is {judged}, not {revision}")
        revision = judged if revision is None else revision
        (deleted,) = await self._ask(schedule_control.delete, [(name, revision)])
        if deleted.code is DeleteCode.UNKNOWN:
            raise UnknownScheduleError(name)
        if not deleted.is_gone:
            raise web.HTTPConflict(text=f"{name}: {deleted.why}")
        note(request, "api_schedule_deleted", schedule=name)
        return json_response({"schedule": name, "result": "deleted"})

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel a run: one that waits at once, one that runs is asked."""
        body, run_id = await body_of(request, CancelBody), request.match_info["run"]
        ((_, found),) = await self._ask(
            runs.cancel,
            [(body.queue, run_id)],
            history=self._history,
            by=who(request),
            reason=body.reason,
            kill_ms=0 if body.kill is None else max(1, round(seconds_of("kill", body.kill) * 1000)),
            permit=permit_run(request),
        )
        if found.code is CancelCode.UNKNOWN:
            raise UnknownRunError(run_id)
        if found.code is CancelCode.DEAD:
            raise web.HTTPConflict(text=f"{run_id} was given up before: drop it from the dead instead")
        note(request, "api_cancelled", run=run_id)
        return json_response({"run": run_id, "queue": found.queue, "result": found.code.value.lower()})

    async def requeue(self, request: web.Request) -> web.Response:
        """Let a delayed or retrying run start now."""
        body, run_id = await body_of(request, RunBody), request.match_info["run"]
        ((_, found),) = await self._ask(runs.hasten, [(body.queue, run_id)], permit=permit_run(request))
        return _placed(request, "api_run_requeued", run_id, found)

    async def set_priority(self, request: web.Request) -> web.Response:
        """Give a run another priority."""
        body, run_id = await body_of(request, PriorityBody), request.match_info["run"]
        if body.priority not in PRIORITIES:
            raise bad_request("priority", body.priority, f"give one of {', '.join(PRIORITIES)}")
        ((_, found),) = await self._ask(
            runs.set_priority, [(body.queue, run_id)], PRIORITIES[body.priority], permit=permit_run(request)
        )
        return _placed(request, "api_priority_set", run_id, found)


def _placed(request: web.Request, event: str, run_id: str, found: Placed) -> web.Response:
    """Answer with the former place of a run that was changed."""
    if not found.queue:
        raise UnknownRunError(run_id)
    if found.place == "dead":
        raise web.HTTPConflict(text=f"{run_id} was given up before: requeue it from the dead instead")
    note(request, event, run=run_id)
    return json_response({"run": run_id, "queue": found.queue, "place": found.place})
