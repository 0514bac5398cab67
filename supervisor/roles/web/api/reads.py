"""Reads of the API, for tokens with ``read``. Of arguments they show the names; results to tokens with that scope.

Guarantees
    Each answer costs a bounded number of calls of Redis, with a page of at most ``PAGE_MAX`` items.
    Replicas are asked for their workers once at a time, however many clients ask: each question is a command in the
    place where operators' commands wait too.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from supervisor.core.jobs.job_spec import JobCard
from supervisor.core.json_values import read_json
from supervisor.core.units import SECOND_NS
from supervisor.operations import dead, jobs, leader, queues, runs, schedules, workers
from supervisor.operations.dead import DeadRun
from supervisor.operations.jobs import PluginRecord
from supervisor.operations.runs import HistoryEntry, RunningRun, RunView, status_of
from supervisor.operations.schedules import Record
from supervisor.operations.workers import WorkerView
from supervisor.roles.web.api.base import ApiContext, ApiHandlers
from supervisor.roles.web.responses import HOLDER, bad_request, json_response, limit_of
from supervisor.roles.web.status import shown_queues
from supervisor.telemetry.masking import mask

PAGE_MAX = 250
HISTORY_MAX = 20
REPORT_FRESH_S = 1.0
REPORT_WAIT_S = 2.0  # a replica that is gone must not keep the answer from coming in time


class ApiReads(ApiHandlers):
    """The handlers."""

    def __init__(self, context: ApiContext) -> None:
        super().__init__(context)
        self._reports: tuple[list[WorkerView], dict[str, Any]] = [], {}
        self._reports_until_ns = 0
        self._reports_turn = asyncio.Lock()

    async def leader(self, _request: web.Request) -> web.Response:
        """Answer with the leader."""
        lease = await self._ask(leader.view)
        shown = {
            "replica": lease.holder or None,
            "epoch": lease.epoch,
            "host": lease.host,
            "pid": lease.pid,
            "version": lease.version,
            "acquired_ms": lease.acquired_ms,
            "remaining_ms": lease.remaining_ms if lease.holder else None,
            "transitions": lease.transitions,
            "hold": lease.hold or None,
        }
        return json_response(shown)

    async def leader_history(self, request: web.Request) -> web.Response:
        """Answer with the newest changes of the lease, newest first."""
        changes = await self._ask(leader.history, limit_of(request, most=PAGE_MAX))
        return json_response({"changes": [msgspec.to_builtins(each) for each in changes]})

    async def schedules(self, request: web.Request) -> web.Response:
        """A page of the schedules."""
        cursor = request.query.get("cursor", "0")
        if not _is_number(cursor):
            raise bad_request("cursor", cursor, "give the one of the page before, or none")
        page = await self._ask(schedules.page, cursor, count=limit_of(request, most=PAGE_MAX))
        rows = [_schedule(record, page.now_ms) for record in page.items]
        return json_response({"schedules": rows, "cursor": page.cursor if page.cursor != "0" else None})

    async def schedule(self, request: web.Request) -> web.Response:
        """One schedule."""
        found = await self._ask(schedules.read, request.match_info["schedule"])
        assert found.record is not None
        live = [run for _, run in found.live]
        return json_response(_schedule(found.record, found.now_ms) | {"live_runs": live, "buffered": found.buffered})

    async def queues(self, _request: web.Request) -> web.Response:
        """Every queue, as it stood within the last seconds."""
        overview = await self._at.overviews.get()
        if overview is None:
            raise web.HTTPServiceUnavailable(text="Redis does not answer", headers={"Retry-After": "1"})
        shown = zip(shown_queues(overview), overview.queues, strict=True)
        return json_response({"queues": [row | {"blocked": each.blocked} for row, each in shown]})

    async def jobs(self, request: web.Request) -> web.Response:
        """A page of the jobs that replicas run, by name."""
        after, limit = request.query.get("cursor", ""), limit_of(request, most=PAGE_MAX)
        published = await self._ask(jobs.published)
        names = sorted(name for name in published if name > after)
        shown = [_job(name, published[name]) for name in names[:limit]]
        return json_response({"jobs": shown, "cursor": names[limit - 1] if len(names) > limit else None})

    async def run(self, request: web.Request) -> web.Response:
        """One run, when it has ended if so asked: place, attempts, steps, runs below it, and its result if allowed."""
        run_id = request.match_info["run"]
        await self._at.waits.until_ended(request, run_id)
        found = await self._ask(runs.show, run_id)
        shown: dict[str, Any] = {"run": run_id, "state": "forgotten"}
        if found.view is not None:
            shown = _run(found.view) | _result(request, found.view)
        below = None if found.below is None else runs.tally_row(found.below)
        steps = [_step(name, step) for name, step in found.steps.items()]
        return json_response(shown | {"below": below, "steps": steps})

    async def run_log(self, request: web.Request) -> web.Response:
        """Output of the attempts of a run, where the token of the request shows results of such runs."""
        attempt, token = request.query.get("attempt"), request.get(HOLDER)
        if attempt is not None and not (_is_number(attempt) and int(attempt)):
            raise bad_request("attempt", attempt, "a number from 1")
        run_id = request.match_info["run"]
        found = await self._ask(runs.logs, run_id, attempt=None if attempt is None else int(attempt))
        if token is None or not token.shows_results:
            raise web.HTTPForbidden(text="output may hold what only the scope results shows; use a token that has it")
        shown = [each for each in found if token.may_see_result(job=each.job, queue=each.queue)]
        if found and not shown:
            raise web.HTTPForbidden(text=f"the token {token.name} does not reach results of this run")
        return json_response({"run": run_id, "logs": shown})

    async def runs(self, request: web.Request) -> web.Response:
        """The newest ended attempts, or with ``state=running`` the runs that are executed."""
        state, limit = request.query.get("state", "ended"), limit_of(request, most=PAGE_MAX)
        if state not in {"ended", "running"}:
            raise bad_request("state", state, "ended or running")
        queue = await self._queue_of(request)
        if state == "running":
            working, refused = await self._ask_each_queue(runs.running, count=limit, queue=queue)
            rows = [_running(each) for each in working]
        else:
            ended, refused = await self._ask_each_queue(runs.latest, count=limit, queue=queue)
            rows = [_ended(*each) for each in ended]
        return json_response({"runs": rows} | refused)

    async def dead(self, request: web.Request) -> web.Response:
        """The newest dead runs."""
        limit, before = limit_of(request, most=PAGE_MAX), request.query.get("before_ms")
        if before is not None and not _is_number(before):
            raise bad_request("before_ms", before, "milliseconds since 1970")
        which = dead.DeadFilter(
            queue=request.query.get("queue"),
            job=request.query.get("job"),
            reason=request.query.get("reason"),
            before_ms=None if before is None else int(before),
        )
        found, refused = await self._ask_each_queue(dead.find, which, count=limit, configured=self._at.own_queues)
        return json_response({"dead": [_dead(each) for each in found]} | refused)

    async def dead_run(self, request: web.Request) -> web.Response:
        """One dead run."""
        return json_response(_run(await self._ask(dead.show, request.match_info["run"])))

    async def workers(self, _request: web.Request) -> web.Response:
        """The worker processes of all replicas, as they stood within the last second."""
        async with self._reports_turn:
            if self._at.clock.elapsed_ns() >= self._reports_until_ns:
                self._reports = await self._ask_each_queue(workers.overview, wait_s=REPORT_WAIT_S)
                self._reports_until_ns = self._at.clock.elapsed_ns() + int(REPORT_FRESH_S * SECOND_NS)
        found, refused = self._reports
        return json_response({"workers": [_worker(each) for each in found]} | refused)

    async def plugins(self, _request: web.Request) -> web.Response:
        """The state of every plugin that a worker needed, one for each set of options."""
        found = await self._ask(jobs.plugin_records)
        return json_response({"plugins": [_plugin(each) for name in sorted(found) for each in found[name]]})

    async def _queue_of(self, request: web.Request) -> str | None:
        queue = request.query.get("queue")
        if queue is not None:
            await self._ask(queues.known, [queue], self._at.own_queues)
        return queue


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < 1 << 64


def _place(run: RunningRun | DeadRun) -> dict[str, Any]:
    job = None if run.envelope is None else run.envelope.template.job
    flag = None if run.envelope is None else run.envelope.maybe_duplicate
    return {"run": run.run_id, "queue": run.queue, "job": job, "maybe_duplicate": flag}


def _running(run: RunningRun) -> dict[str, Any]:
    return _place(run) | {"attempt": run.attempt, "fetched_ms": run.fetched_ms, "session": run.session}


def _ended(queue: str, entry: HistoryEntry) -> dict[str, Any]:
    return {"run": entry.run_id, "queue": queue, "job": entry.job, "session": entry.session} | _attempt(entry)


def _attempt(entry: HistoryEntry) -> dict[str, Any]:
    return {
        "outcome": entry.outcome,
        "attempt": entry.attempt,
        "started_ms": entry.started_ms,
        "ended_ms": entry.ended_ms,
        "note": mask(entry.note),
    }


def _dead(run: DeadRun) -> dict[str, Any]:
    return _place(run) | {
        "schedule": None if run.envelope is None else run.envelope.schedule,
        "died_ms": run.died_ms,
        "attempts": run.attempts,
        "crashes": run.crashes,
        "interruptions": run.interrupts,
        "reason": dead.reason_of(run.error) or None,
    }


def _worker(worker: WorkerView) -> dict[str, Any]:
    report = worker.report
    return {
        "replica": worker.replica,
        "slot": report.slot,
        "session": worker.session,
        "pool": report.pool or worker.info.get("pool"),
        "state": report.state,
        "pid": report.pid or None,
        "busy": report.busy,
        "done": report.done,
        "rss_kib": report.rss_kib or None,
        "age_s": report.age_s,
        "version": worker.info.get("version"),
        "runs": worker.runs,
    }


def _schedule(record: Record, now_ms: int) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "schedule": record.id,
        "revision": record.revision,
        "kind": "dynamic" if record.is_dynamic else "static",
        "next_ms": record.next_ms if record.next_ms and record.next_ms > 0 and not record.invalid else None,
        "watermark_ms": record.mark_ms,
        "completed_ms": record.completed_ms or None,
        "invalid": record.invalid or None,
        "last_success_ms": (record.expected.ok_ms or None) if record.expected else None,
        "late": record.lateness(now_ms) or None,
        "paused": None if record.pause is None else mask(msgspec.to_builtins(record.pause)),
    }
    try:
        definition = record.definition()
    except msgspec.DecodeError:  # a newer version wrote it
        return shown
    template = definition.template
    return shown | {
        "job": template.job, "queue": template.queue, "args": sorted(template.args), "overlap": definition.overlap,
        "missed": definition.missed, **schedules.free_texts(definition),
    }  # fmt: skip


def _plugin(record: PluginRecord) -> dict[str, Any]:
    shown = msgspec.structs.asdict(record) | {"reason": mask(record.reason)}
    return {name: value for name, value in shown.items() if name not in {"v", "metadata"}}


def _job(name: str, stored: bytes) -> dict[str, Any]:
    try:
        card = read_json(stored, JobCard)
    except msgspec.DecodeError:
        return {"job": name}
    needs = {"required": card.required, "optional": card.optional}
    return {"job": name, "kind": card.template.kind, "queue": card.template.queue} | needs


def _result(request: web.Request, view: RunView) -> dict[str, Any]:
    """Return the result of a run that ended, where the token of the request shows it.

    Redis keeps results by id alone: one that is there is that of any run of this id that ended ok. So all their jobs
    must be reached, and their queue is unknown if they were in several.
    """
    status, token = status_of(view.run_id, view), request.get(HOLDER)
    if not status.is_ended or token is None:
        return {}
    is_ok, queue, jobs = status.outcome == "ok", view.queue, {status.job}
    if is_ok:
        queue = view.ok_queues[0] if len(view.ok_queues) == 1 else ""
        jobs |= {entry.job for entry in view.history if entry.outcome == "ok"}
    if not all(token.may_see_result(job=job, queue=queue) for job in jobs):
        return {}
    return {"result": _decoded(view.result) if is_ok else None}


def _run(view: RunView) -> dict[str, Any]:
    status = status_of(view.run_id, view)
    return {
        "run": view.run_id,
        "state": view.state,
        "outcome": status.outcome or None,
        "queue": view.queue,
        "job": status.job or None,
        "args": sorted(status.arguments) if view.envelope is not None or status.arguments else None,
        "schedule": None if view.envelope is None else view.envelope.schedule,
        "maybe_duplicate": None if view.envelope is None else view.envelope.maybe_duplicate,
        "attempts": view.attempts or (status.attempt if status.is_ended else 0),
        "has_result": view.result is not None,
        "crashes": view.crashes,
        "session": view.session or None,
        "due_ms": view.due_ms,
        "died_ms": view.died_ms,
        "error": mask(view.error) or None,
        "progress": mask(_decoded(view.progress), items=sys.maxsize),  # its bytes have a limit
        "history": [_attempt(entry) for entry in view.history[:HISTORY_MAX]],
    }


def _step(name: str, step: Mapping[str, Any]) -> dict[str, Any]:
    times = {key: step.get(key) for key in ("status", "attempt", "ended_ms", "duration_ms")}
    return {"step": name, **times, "error": mask(str(step.get("error") or "")) or None}


def _decoded(stored: bytes | None) -> Any:
    try:
        return read_json(stored) if stored else None
    except msgspec.DecodeError:
        return None
