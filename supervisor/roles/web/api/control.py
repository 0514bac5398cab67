"""Changes by the API to queues, dead runs and processes, and the hand-over of the leadership.

Guarantees
    As of ``changes.py``. Queues and dead runs are for tokens with ``operate`` whose limits reach all that is changed;
    processes and the leadership are for ``admin`` without limits.
    A command to a process is signed where the cluster has a key, and its answer is awaited for ``ANSWER_S`` seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from aiohttp import web

from supervisor.operations import dead, leader, queues, runs, workers
from supervisor.operations.runs import Run
from supervisor.operations.workers import Word
from supervisor.roles.web.api.access import must_be_unlimited, must_reach_queue, permit_run
from supervisor.roles.web.api.base import ApiHandlers, body_of, note, seconds_of, who
from supervisor.roles.web.responses import ITEMS, bad_request, json_response

DEAD_MAX = 250
ANSWER_S = 3.0  # less than an answer may take


class QueuePauseBody(msgspec.Struct, forbid_unknown_fields=True):
    """A pause of a queue."""

    reason: str = ""


class PurgeBody(msgspec.Struct, forbid_unknown_fields=True):
    """The end of the waiting runs of a queue; with ``job`` of those of one job."""

    job: str = ""
    reason: str = ""


class MoveBody(msgspec.Struct, forbid_unknown_fields=True):
    """The queue to which waiting runs go."""

    to: str


class VerifyBody(msgspec.Struct, forbid_unknown_fields=True):
    """Queues to be verified, all without a name; with ``fix`` faults are mended, and no run is lost."""

    queues: list[str] = []
    fix: bool = False


class RequeueBody(msgspec.Struct, forbid_unknown_fields=True):
    """Another execution of a dead run, not before ``delay`` is over."""

    queue: str = ""
    delay: str = "0s"


class DropBody(msgspec.Struct, forbid_unknown_fields=True):
    """The end of a dead run."""

    queue: str = ""
    reason: str = ""


class DeadBody(msgspec.Struct, forbid_unknown_fields=True):
    """Dead runs, newest first: those that are named, those that match all filters, or all."""

    runs: Annotated[list[str], msgspec.Meta(max_length=DEAD_MAX)] = []
    queue: str | None = None
    job: str | None = None
    reason: str | None = None
    before_ms: int | None = None
    all: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=DEAD_MAX)] = ITEMS
    dry_run: bool = False


class RequeueRunsBody(DeadBody, forbid_unknown_fields=True):
    """Another execution of dead runs, not before ``delay`` is over."""

    delay: str = "0s"


class DropRunsBody(DeadBody, forbid_unknown_fields=True):
    """The end of dead runs; ``note`` says why, for people."""

    note: str = ""


class ResignBody(msgspec.Struct, forbid_unknown_fields=True):
    """A hand-over, to a replica that is named or to any."""

    to: str | None = None


class ApiControl(ApiHandlers):
    """The handlers."""

    async def pause_queue(self, request: web.Request) -> web.Response:
        """Let nothing be fetched from a queue."""
        body, queue = await body_of(request, QueuePauseBody), request.match_info["queue"]
        must_reach_queue(request, queue)
        ((_, is_new),) = await self._ask(
            queues.pause, [queue], by=who(request), reason=body.reason, configured=self._at.own_queues
        )
        note(request, "api_queue_paused", queue=queue)
        return json_response({"queue": queue, "result": "paused", "new": is_new})

    async def resume_queue(self, request: web.Request) -> web.Response:
        """End the pause of a queue."""
        queue = request.match_info["queue"]
        must_reach_queue(request, queue)
        ((_, was_paused),) = await self._ask(queues.resume, [queue], configured=self._at.own_queues)
        note(request, "api_queue_resumed", queue=queue)
        return json_response({"queue": queue, "result": "resumed" if was_paused else "running"})

    async def purge_queue(self, request: web.Request) -> web.Response:
        """End the waiting runs of a queue, or those of one job."""
        body, queue = await body_of(request, PurgeBody), request.match_info["queue"]
        must_reach_queue(request, queue, job=body.job)
        counts = await self._ask(queues.counts, queue, self._at.own_queues)
        ended = await self._ask(
            queues.purge, counts, job=body.job, by=who(request), reason=body.reason, history=self._history
        )
        note(request, "api_queue_purged", queue=queue, job=body.job, ended=str(ended))
        return json_response({"queue": queue, "ended": ended})

    async def move_queue(self, request: web.Request) -> web.Response:
        """Move the waiting runs of a queue to another, in their order."""
        body, queue = await body_of(request, MoveBody), request.match_info["queue"]
        if body.to == queue:
            raise bad_request("to", body.to, "the runs are in this queue already")
        for each in (queue, body.to):
            must_reach_queue(request, each)
        counts = await self._ask(queues.counts, queue, self._at.own_queues)
        await self._ask(queues.known, [body.to], self._at.own_queues)
        moved, stayed = await self._ask(queues.move, counts, body.to)
        note(request, "api_queue_moved", queue=queue, to=body.to, moved=str(moved))
        return json_response({"queue": queue, "to": body.to, "moved": moved, "stayed": stayed})

    async def verify_queues(self, request: web.Request) -> web.Response:
        """Verify that every run is in exactly one place, and that counters and limits are true."""
        must_be_unlimited(request)
        body = await body_of(request, VerifyBody)
        must_be_unlimited(request)  # by the token as it is when the body has come
        known = await self._ask(queues.known, body.queues, self._at.own_queues)
        found = await self._ask(queues.verify, known, is_mending=body.fix, dead_cap=self._at.settings.queues.dead)
        if any(each.remedy for each in found):
            note(request, "api_queues_mended", mended=str(sum(bool(each.remedy) for each in found)))
        return json_response({"queues": known, "faults": [each.record() for each in found]})

    async def requeue_dead(self, request: web.Request) -> web.Response:
        """Let a dead run be executed again."""
        body = await body_of(request, RequeueBody)
        requeue = dead.requeueing(round(seconds_of("delay", body.delay) * 1000))
        return await self._change_dead(request, body.queue, requeue)

    async def drop_dead(self, request: web.Request) -> web.Response:
        """Forget a dead run."""
        body = await body_of(request, DropBody)
        return await self._change_dead(request, body.queue, dead.dropping(body.reason))

    async def requeue_dead_runs(self, request: web.Request) -> web.Response:
        """Let dead runs be executed again."""
        body = await body_of(request, RequeueRunsBody)
        requeue = dead.requeueing(round(seconds_of("delay", body.delay) * 1000))
        return await self._change_many(request, body, requeue)

    async def drop_dead_runs(self, request: web.Request) -> web.Response:
        """Forget dead runs."""
        body = await body_of(request, DropRunsBody)
        return await self._change_many(request, body, dead.dropping(body.note))

    async def _change_many(self, request: web.Request, body: DeadBody, change: dead.DeadChange) -> web.Response:
        """Apply ``change`` to dead runs of a body, or judge it only, and answer with what became of each."""
        which = dead.DeadFilter(
            ids=tuple(body.runs),
            queue=body.queue,
            job=body.job,
            reason=body.reason,
            before_ms=body.before_ms,
            everything=body.all,
        )
        which.must_select()
        limit = DEAD_MAX if body.runs else body.limit
        found, refused = await self._ask_each_queue(dead.find, which, count=limit, configured=self._at.own_queues)
        permit = permit_run(request)

        async def changed(items: Sequence[Run]) -> list[tuple[Run, str]]:
            if body.dry_run:
                await self._ask(runs.permitted, items, permit)
                return [(item, "selected") for item in items]
            by_queue: dict[str, list[str]] = {}
            for queue, run_id in items:
                by_queue.setdefault(queue, []).append(run_id)
            done = await self._ask(dead.apply, change, by_queue, by=who(request), history=self._history, permit=permit)
            for _, run_id, result in done:
                if result == change.done:
                    note(request, f"api_dead_{change.done}", run=run_id)
            return [((queue, run_id), result) for queue, run_id, result in done]

        done = await self._each([(each.queue, each.run_id) for each in found], changed, together=permit is None)
        rows: list[dict[str, str | None]] = [
            {"run": run_id, "queue": queue, "result": result} for (queue, run_id), result in done
        ]
        missing = set(body.runs) - {each.run_id for each in found}
        rows += [{"run": run_id, "queue": None, "result": "is not dead"} for run_id in sorted(missing)]
        is_last = len(found) < limit
        # Those that died in the same millisecond as the last one come again, unless all of them stay.
        before_ms = None if is_last else found[-1].died_ms + any(row["result"] == change.done for row in rows)
        return json_response({"runs": rows, "before_ms": before_ms} | refused)

    async def _change_dead(self, request: web.Request, queue: str, change: dead.DeadChange) -> web.Response:
        found = await self._ask(dead.show, request.match_info["run"], queue)
        which, permit = {found.queue: [found.run_id]}, permit_run(request)
        ((_, run_id, result),) = await self._ask(
            dead.apply, change, which, by=who(request), history=self._history, permit=permit
        )
        if result != change.done:
            raise web.HTTPConflict(text=f"{run_id}: {result}")
        note(request, f"api_dead_{change.done}", run=run_id)
        return json_response({"run": run_id, "queue": found.queue, "result": result})

    async def _command(self, request: web.Request) -> web.Response:
        """Send a worker process, or all of a replica, the command at the end of the path, and answer what it said."""
        word = Word(request.path.rpartition("/")[2])
        must_be_unlimited(request)
        worker = request.match_info.get("worker") or request.match_info["replica"]
        replica, _, slot = worker.partition("/")
        target = await self._ask(workers.target, worker if "/" in slot else slot, replica)
        answer = await self._ask(
            workers.control,
            target,
            word,
            by=who(request),
            signer=self._at.signer,
            at_ms=self._at.clock.wall_ms(),
            wait_s=ANSWER_S,
        )
        note(request, "api_worker_commanded", worker=worker, word=word.value)
        shown: dict[str, Any] = {"replica": target.replica, "worker": target.slot or None}
        if answer is None:
            return json_response(shown | {"result": "sent"}, status_code=202)
        if not answer.is_done:
            raise web.HTTPConflict(text=answer.reason)
        return json_response(shown | {"result": "done"})

    quiet_worker = resume_worker = recycle_worker = worker_stacks = reload_replica = stop_replica = _command

    async def clear_hold(self, request: web.Request) -> web.Response:
        """Let the leader fire again after Redis lost data."""
        must_be_unlimited(request)
        lease = await self._ask(leader.view)
        if lease.hold:
            await self._ask(leader.clear_hold, by=who(request))
            note(request, "api_hold_cleared", hold=lease.hold)
        return json_response({"result": "cleared" if lease.hold else "not held", "hold": lease.hold or None})

    async def resign(self, request: web.Request) -> web.Response:
        """Ask the leader to hand over."""
        body = await body_of(request, ResignBody)
        must_be_unlimited(request)
        lease, heir = await self._ask(leader.successor, body.to)
        if heir != lease.holder:
            at_ms = self._at.clock.wall_ms()
            await self._ask(leader.resign, lease, heir, by=who(request), signer=self._at.signer, at_ms=at_ms)
            note(request, "api_resign_requested", replica=lease.holder, to=heir)
        shown = {"replica": lease.holder, "epoch": lease.epoch, "to": heir or None}
        return json_response(shown, status_code=200 if heir == lease.holder else 202)
