"""Rights of limited tokens: what a token with ``jobs=``, ``queues=`` or ``labels=`` may change.

Guarantees
    A token changes no run, schedule or queue that its limits do not reach, and no process. Arguments of jobs that are
    as good as code are taken from ``admin``, or from a token that names the job. A limited token chooses run ids that
    begin with its name, so none that is a schedule's or another run's: a fire whose id is taken does not happen, and
    results are kept by id.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

from aiohttp import web

from supervisor.core.model import ScheduleDef
from supervisor.operations.runs import RunPermit
from supervisor.operations.schedule_control import Permit
from supervisor.roles.web.responses import HOLDER

_UNDERIVED_ID = re.compile(r"[A-Za-z0-9._:-]{1,255}", re.ASCII)
"""Run ids that are derived of a schedule or of another run hold one of @ ! / #."""


def permit_run(request: web.Request) -> RunPermit | None:
    """Return a check that raises 403 for a run that the token does not reach; None for a token without limits."""
    return functools.partial(_must_reach, request) if request[HOLDER].is_limited else None


def permit_schedule(request: web.Request) -> Permit | None:
    """Return a check that raises 403 for a schedule that the token does not reach; None for a token without limits."""

    def permit(definition: ScheduleDef) -> None:
        _must_reach(request, definition.template.job, definition.template.queue, definition.labels)

    return permit if request[HOLDER].is_limited else None


def _must_reach(request: web.Request, job: str, queue: str, labels: Mapping[str, str]) -> None:
    """Raise 403 unless the token reaches ``job`` in ``queue``, of a schedule with ``labels``."""
    token = request[HOLDER]
    if not token.reaches(job=job, queue=queue, labels=labels):
        of_labels = ", or not for a schedule without its labels" if token.labels else ""
        raise web.HTTPForbidden(text=f"the token {token.name} is not for job {job} in queue {queue}{of_labels}")


def must_reach_queue(request: web.Request, queue: str, *, job: str = "") -> None:
    """Raise 403 unless the token reaches all runs of a queue, or with ``job`` all runs of that job in it."""
    token = request[HOLDER]
    if token.labels or (token.jobs and not job):
        raise web.HTTPForbidden(text=f"the token {token.name} is limited, and queues hold runs that it does not reach")
    _must_reach(request, job, queue, {})


def must_be_unlimited(request: web.Request, why: str = "processes run what it does not reach") -> None:
    """Raise 403 where the token has limits: a process, or the leader, serves runs of all jobs."""
    token = request[HOLDER]
    if token.is_limited:
        raise web.HTTPForbidden(text=f"the token {token.name} is limited, and {why}")


def may_define(request: web.Request, definitions: Sequence[ScheduleDef]) -> None:
    """Raise 403 unless the token may choose arguments for the jobs of all ``definitions``."""
    token = request[HOLDER]
    for definition in definitions:
        job, replaces = definition.template.job, definition.template.concurrency_replaces
        if token.must_name(job, replaces=replaces):
            what = f"arguments of {definition.id}, of job {job}{token.remedy(job, replaces=replaces)}"
            raise web.HTTPForbidden(text=f"the token {token.name} may not choose {what}")


def may_enqueue(
    request: web.Request, job: str, *, queue: str | None, run_id: str | None, replaces: bool = False
) -> None:
    """Raise 403 unless the token may choose arguments for ``job``, its queue and the id of its run.

    ``replaces``: newer runs of it end older ones.
    """
    token = request[HOLDER]
    if token.labels:
        raise web.HTTPForbidden(text=f"the token {token.name} is limited by label, and a run by itself has none")
    if token.queues and queue is None:
        raise web.HTTPForbidden(text=f"the token {token.name} is limited by queue: say which one in the body")
    if run_id is not None and token.is_limited and not _is_of(token.name, run_id):
        remedy = f"choose a run_id that begins with {token.name}: and holds only letters, digits and . _ : -"
        raise web.HTTPForbidden(text=f"the token {token.name} is limited: {remedy}")
    if not token.may_enqueue(job, queue, replaces=replaces):
        remedy = token.remedy(job, replaces=replaces)
        raise web.HTTPForbidden(text=f"the token {token.name} may not enqueue job {job[:200]}{remedy}")


def _is_of(name: str, run_id: str) -> bool:
    return run_id.startswith(f"{name}:") and _UNDERIVED_ID.fullmatch(run_id) is not None
