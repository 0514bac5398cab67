"""Changes by the API: enqueue or cancel a run; pause, resume, trigger a schedule. For tokens with ``operate``.

Guarantees
    A body has at most ``BODY_BYTES_MAX`` bytes and no field that is not known. The requester is in the log, and in
    the history of the changed object.
    A token with ``jobs=``, ``queues=`` or ``labels=`` changes nothing of others; arguments of jobs that are as good
    as code are taken from ``admin``, or from a token that names the job. It chooses no run id that is a schedule's or
    another run's to give: a fire whose id is taken already does not happen.
    A queue that is named in an enqueue is one that somebody serves, unless ``force`` promises that it will be.
    Asked again with the same ``run_id`` or ``key``, an enqueue or a trigger enqueues nothing more.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import msgspec
import structlog
from aiohttp import web

from supervisor.clock import Clock
from supervisor.core.durations import parse_duration
from supervisor.core.effects import drive_async
from supervisor.core.errors import ArgumentsError, PayloadTooLargeError, UnknownJobError
from supervisor.core.json_values import read_json
from supervisor.core.model import ScheduleDef
from supervisor.operations import Delay, Effect, Operation, queues, runs, schedules
from supervisor.operations.runs import CancelCode, UnknownRunError
from supervisor.operations.schedules import UnknownScheduleError
from supervisor.roles.web.responses import ASKER, HOLDER, bad_request, json_response, not_found
from supervisor.store.client.sync_client import AsyncStore
from supervisor.store.keys import Keys
from supervisor.store.producer.producer import Producer
from supervisor.store.schedules.control import ResumeCode, TriggerCode

BODY_BYTES_MAX = 128 * 1024
_UNDERIVED_ID = re.compile(r"[A-Za-z0-9._:-]{1,255}", re.ASCII)
"""Run ids that are derived of a schedule or of another run hold one of @ ! / #."""

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R")
log = structlog.get_logger()


class EnqueueBody(msgspec.Struct, forbid_unknown_fields=True):
    """A run to be enqueued."""

    args: dict[str, Any] = {}
    queue: str | None = None
    priority: str | None = None
    delay: float | str | None = None
    run_id: str | None = None
    force: bool = False  # also into a queue from which no live worker takes runs


class PauseBody(msgspec.Struct, forbid_unknown_fields=True):
    """A pause; ``for`` is a duration after which it ends by itself."""

    reason: str = ""
    for_: str | None = msgspec.field(default=None, name="for")


class TriggerBody(msgspec.Struct, forbid_unknown_fields=True):
    """A run of a schedule, beside its plan."""

    key: str | None = None
    overlap: str = "allow"


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    """The end of a run."""

    reason: str = ""
    queue: str = ""


class EmptyBody(msgspec.Struct, forbid_unknown_fields=True):
    """An empty body."""


class ApiChanges:
    """The handlers."""

    def __init__(
        self,
        store: AsyncStore,
        keys: Keys,
        producer: Producer,
        clock: Clock,
        *,
        history: int,
        own_queues: Collection[str] = (),
    ) -> None:
        """Build them; ``own_queues``: those of this replica's pools, served also while their workers are replaced."""
        self._own_queues = frozenset(own_queues)
        self._keys = keys
        self._store = store
        self._history = history
        self._producer = producer
        self._clock = clock

    async def enqueue(self, request: web.Request) -> web.Response:
        """Enqueue a run of a job."""
        body, job = await _body(request, EnqueueBody), request.match_info["job"]
        _may_enqueue(request, job, body)
        if body.queue is not None and not body.force:
            await self._must_be_served(body.queue)
        try:
            put = await self._producer.put_async(
                job,
                body.args,
                queue=body.queue,
                priority=body.priority,
                delay=body.delay,
                run_id=body.run_id,
                traceparent=request.headers.get("traceparent"),
            )
        except UnknownJobError as error:
            raise not_found("job", job) from error
        except PayloadTooLargeError as error:
            raise web.HTTPRequestEntityTooLarge(max_size=BODY_BYTES_MAX, actual_size=0, text=str(error)) from error
        except (ArgumentsError, ValueError) as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        _note(request, "api_enqueued", run=put.run_id, job=job)
        return json_response({"run": put.run_id, "new": put.is_new}, status_code=201 if put.is_new else 200)

    async def _must_be_served(self, queue: str) -> None:
        """Raise 409 unless a pool of this replica, or a live worker of any, takes runs from ``queue``."""
        try:
            is_served = queue in self._own_queues or await self._ask(queues.is_served(self._keys, queue))
        except ValueError as error:
            raise bad_request("queue", queue, str(error)) from error
        if not is_served:
            remedy = 'correct the name, or send "force": true and start a worker for it'
            raise web.HTTPConflict(text=f"no live worker takes runs from queue {queue}; {remedy}")

    async def pause(self, request: web.Request) -> web.Response:
        """Pause a schedule."""
        body, name = await _body(request, PauseBody), request.match_info["schedule"]
        try:
            for_s = None if body.for_ is None else parse_duration(body.for_)
        except ValueError as error:
            raise bad_request("for", body.for_, str(error)) from error
        terms = schedules.PauseTerms(by=_who(request), reason=body.reason, for_s=for_s)
        (paused,) = await self._ask(schedules.pause(self._keys, [name], terms, permit=_permit(request)))
        if not paused.is_known:
            raise UnknownScheduleError(name)
        _note(request, "api_paused", schedule=name)
        return json_response({"schedule": name, "result": "paused", "until_ms": paused.until_ms})

    async def resume(self, request: web.Request) -> web.Response:
        """End the pause of a schedule."""
        await _body(request, EmptyBody)
        name = request.match_info["schedule"]
        ((_, code),) = await self._ask(schedules.resume(self._keys, [name], permit=_permit(request)))
        if code is ResumeCode.UNKNOWN:
            raise UnknownScheduleError(name)
        _note(request, "api_resumed", schedule=name)
        return json_response({"schedule": name, "result": code.value.lower()})

    async def trigger(self, request: web.Request) -> web.Response:
        """Run a schedule now."""
        body, name = await _body(request, TriggerBody), request.match_info["schedule"]
        if body.overlap not in {"allow", "skip"}:
            raise bad_request("overlap", body.overlap, "allow or skip")
        done = await self._ask(
            schedules.trigger(
                self._keys,
                name,
                key=body.key,
                heeds_overlap=body.overlap == "skip",
                permit=_permit(request),
                wall_ms=self._clock.wall_ms(),
            )
        )
        if done.code is TriggerCode.SKIPPED:
            raise web.HTTPConflict(text=f"an earlier run of {name} is unfinished")
        _note(request, "api_triggered", schedule=name, run=done.run_id)
        is_new = done.code is TriggerCode.TRIGGERED
        shown = {"schedule": name, "run": done.run_id, "result": done.code.value.lower()}
        return json_response(shown, status_code=201 if is_new else 200)

    async def _ask(self, operation: Operation[R]) -> R:
        """Return the result of ``operation``; its errors are answers by their ``http_status``."""
        return await drive_async(operation, self._perform)

    async def _perform(self, effect: Effect) -> Any:
        return await (asyncio.sleep(effect.seconds) if isinstance(effect, Delay) else self._store.run(effect))

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel a run: one that waits at once, one that runs is asked."""
        body, run_id = await _body(request, CancelBody), request.match_info["run"]
        operation = runs.cancel(
            self._keys,
            [(body.queue, run_id)],
            history=self._history,
            by=_who(request),
            reason=body.reason,
            permit=_permit_run(request),
        )
        ((_, found),) = await self._ask(operation)
        if found.code is CancelCode.UNKNOWN:
            raise UnknownRunError(run_id)
        if found.code is CancelCode.DEAD:
            raise web.HTTPConflict(text=f"{run_id} was given up before: drop it from the dead instead")
        _note(request, "api_cancelled", run=run_id)
        return json_response({"run": run_id, "queue": found.queue, "result": found.code.value.lower()})


def _must_reach(request: web.Request, job: str, queue: str, labels: Mapping[str, str]) -> None:
    """Raise 403 unless the token reaches ``job`` in ``queue``, of a schedule with ``labels``."""
    token = request[HOLDER]
    if not token.reaches(job=job, queue=queue, labels=labels):
        of_labels = ", or not for a schedule without its labels" if token.labels else ""
        raise web.HTTPForbidden(text=f"the token {token.name} is not for job {job} in queue {queue}{of_labels}")


def _permit_run(request: web.Request) -> runs.RunPermit | None:
    """Return a check that raises 403 for a run that the token does not reach; None for a token without limits."""
    return functools.partial(_must_reach, request) if request[HOLDER].is_limited else None


def _permit(request: web.Request) -> schedules.Permit | None:
    """Return a check that raises 403 for a schedule that the token does not reach; None for a token without limits."""

    def permit(definition: ScheduleDef) -> None:
        _must_reach(request, definition.template.job, definition.template.queue, definition.labels)

    return permit if request[HOLDER].is_limited else None


def _may_enqueue(request: web.Request, job: str, body: EnqueueBody) -> None:
    """Raise 403 unless the token may choose arguments for ``job``, its queue and the id of its run."""
    token = request[HOLDER]
    if token.labels:
        raise web.HTTPForbidden(text=f"the token {token.name} is limited by label, and a run by itself has none")
    if token.queues and body.queue is None:
        raise web.HTTPForbidden(text=f"the token {token.name} is limited by queue: say which one in the body")
    if token.is_limited and body.run_id is not None and not _UNDERIVED_ID.fullmatch(body.run_id):
        remedy = "choose a run_id of letters, digits and . _ : -, since others may be those of schedules"
        raise web.HTTPForbidden(text=f"the token {token.name} is limited: {remedy}")
    if not token.may_enqueue(job, body.queue):
        raise web.HTTPForbidden(text=f"the token {token.name} may not enqueue job {job[:200]}{token.remedy(job)}")


async def _body(request: web.Request, kind: type[T]) -> T:
    """Return the body of a request; none is the same as {}."""
    text = await request.read()
    try:
        return read_json(text or b"{}", kind)
    except msgspec.DecodeError as error:
        raise web.HTTPBadRequest(text=f"the body cannot be used: {error}") from error


def _who(request: web.Request) -> str:
    return f"{request.get(ASKER, '')}@http"


def _note(request: web.Request, event: str, **fields: str) -> None:
    log.info(event, by=request.get(ASKER, ""), **fields)
