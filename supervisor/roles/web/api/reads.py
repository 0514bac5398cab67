"""Reads of the API: leader, schedules, queues, jobs, one run. Of arguments their names, of results nothing.

Guarantees
    Each answer costs a bounded number of calls of Redis, with a page of at most ``PAGE_MAX`` items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from supervisor.core.jobs.job_cards import JobCard
from supervisor.core.json_values import read_json
from supervisor.roles.web.cluster_snapshot import Overviews
from supervisor.roles.web.responses import bad_request, json_response, limit_of, not_found
from supervisor.store.client.sync_client import AsyncStore
from supervisor.store.election.leases import Leases
from supervisor.store.keys import Keys
from supervisor.store.queues.fanout_counts import Tallies, Tally
from supervisor.store.queues.reads import RunView
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.schedules.reads import Record, Views
from supervisor.telemetry.masking import mask

PAGE_MAX = 250
HISTORY_MAX = 20


class ApiReads:
    """The handlers."""

    def __init__(self, store: AsyncStore, keys: Keys, overviews: Overviews) -> None:
        self._store = store
        self._leases = Leases(keys)
        self._views = Views(keys)
        self._queues = Queues(keys)
        self._sessions = Sessions(keys)
        self._tallies = Tallies(keys)
        self._overviews = overviews

    async def leader(self, _request: web.Request) -> web.Response:
        """Answer with the leader."""
        lease = await self._store.run(self._leases.view())
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

    async def schedules(self, request: web.Request) -> web.Response:
        """A page of the schedules."""
        cursor = request.query.get("cursor", "0")
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 20 and int(cursor) < 1 << 64):
            raise bad_request("cursor", cursor, "give the one of the page before, or none")
        page = await self._store.run(self._views.browse(cursor, count=limit_of(request, most=PAGE_MAX)))
        rows = [_schedule(record) for record in page.items]
        return json_response({"schedules": rows, "cursor": page.cursor if page.cursor != "0" else None})

    async def schedule(self, request: web.Request) -> web.Response:
        """One schedule."""
        name = request.match_info["schedule"]
        (found,) = await self._store.run(self._views.inspect([name]))
        if found.record is None:
            raise not_found("schedule", name)
        live = [run for _, run in found.live]
        return json_response(_schedule(found.record) | {"live_runs": live, "buffered": found.buffered})

    async def queues(self, _request: web.Request) -> web.Response:
        """Every queue, as it stood within the last seconds."""
        overview = await self._overviews.get()
        if overview is None:
            raise web.HTTPServiceUnavailable(text="Redis does not answer", headers={"Retry-After": "1"})
        shown = [
            {
                "queue": queue.queue,
                "ready": sum(queue.ready.values()),
                "running": queue.running,
                "later": queue.later,
                "blocked": queue.blocked,
                "dead": queue.dead,
                "paused": queue.is_paused,
            }
            for queue in overview.queues
        ]
        return json_response({"queues": shown})

    async def jobs(self, request: web.Request) -> web.Response:
        """A page of the jobs that replicas run, by name."""
        after, limit = request.query.get("cursor", ""), limit_of(request, most=PAGE_MAX)
        published = await self._store.run(self._sessions.read_jobs())
        names = sorted(name for name in published if name > after)
        shown = [_job(name, published[name]) for name in names[:limit]]
        return json_response({"jobs": shown, "cursor": names[limit - 1] if len(names) > limit else None})

    async def run(self, request: web.Request) -> web.Response:
        """One run: its place, its attempts, its steps and the runs below it."""
        run_id = request.match_info["run"]
        found = await self._store.run(self._queues.show(run_id))
        try:
            below = await self._store.run(self._tallies.read(run_id))
            steps = await self._store.run(self._tallies.steps(run_id))
        except ValueError:  # no run can have this id
            raise not_found("run", run_id) from None
        if found is None and below is None and not steps:
            raise not_found("run", run_id)
        shown = {"run": run_id, "state": "forgotten"} if found is None else _run(found)
        of_below = None if below is None else _below(below)
        return json_response(shown | {"below": of_below, "steps": [_step(name, step) for name, step in steps.items()]})


def _schedule(record: Record) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "schedule": record.id,
        "revision": record.revision,
        "kind": "dynamic" if record.is_dynamic else "static",
        "next_ms": record.next_ms if record.next_ms and record.next_ms > 0 and not record.invalid else None,
        "watermark_ms": record.mark_ms,
        "completed_ms": record.completed_ms or None,
        "invalid": record.invalid or None,
        "paused": None if record.pause is None else msgspec.to_builtins(record.pause),
    }
    try:
        definition = record.definition()
    except msgspec.DecodeError:  # a newer version wrote it
        return shown
    template = definition.template
    return shown | {
        "job": template.job,
        "queue": template.queue,
        "args": sorted(template.args),
        "overlap": definition.overlap,
        "missed": definition.missed,
        "labels": definition.labels,
        "owner": definition.owner,
        "description": mask(definition.description),
    }


def _job(name: str, stored: bytes) -> dict[str, Any]:
    try:
        card = read_json(stored, JobCard)
    except msgspec.DecodeError:
        return {"job": name}
    template = card.template
    return {
        "job": name,
        "kind": template.kind,
        "queue": template.queue,
        "required": card.required,
        "optional": card.optional,
    }


def _run(view: RunView) -> dict[str, Any]:
    template = None if view.envelope is None else view.envelope.template
    return {
        "run": view.run_id,
        "state": view.state,
        "queue": view.queue,
        "job": None if template is None else template.job,
        "args": None if template is None else sorted(template.args),
        "schedule": None if view.envelope is None else view.envelope.schedule,
        "attempts": view.attempts,
        "crashes": view.crashes,
        "session": view.session or None,
        "due_ms": view.due_ms,
        "died_ms": view.died_ms,
        "error": mask(view.error) or None,
        "progress": mask(_decoded(view.progress)),
        "history": [
            {
                "outcome": entry.outcome,
                "attempt": entry.attempt,
                "started_ms": entry.started_ms,
                "ended_ms": entry.ended_ms,
                "note": mask(entry.note),
            }
            for entry in view.history[:HISTORY_MAX]
        ],
    }


def _below(tally: Tally) -> dict[str, Any]:
    names = ("run", "code", "message")
    return {
        "total": tally.total,
        "remaining": tally.left,
        **tally.outcomes,
        "counts": tally.counts,
        "errors": tally.errors,
        "first_errors": [{name: mask(str(each.get(name, ""))) for name in names} for each in tally.first_errors],
        "then": tally.waiting,
    }


def _step(name: str, step: Mapping[str, Any]) -> dict[str, Any]:
    times = {key: step.get(key) for key in ("status", "attempt", "ended_ms", "duration_ms")}
    return {"step": name, **times, "error": mask(str(step.get("error") or "")) or None}


def _decoded(stored: bytes | None) -> Any:
    try:
        return read_json(stored) if stored else None
    except msgspec.DecodeError:
        return None
