"""Commands beside the routes of the API: whatever a command does over Redis has a route, or a reason to have none."""

from __future__ import annotations

from supervisor.cli.main import cli
from supervisor.roles.web.api.routes import ROUTES
from tests.unit.cli.test_help import commands

HERE = "about files, modules or processes of this machine; asks no cluster"
TRIED_HERE = "calls a plugin in the process of the command"

ROUTES_OF: dict[str, str | set[str]] = {
    "run": HERE,
    "status": {"leader", "queues", "runs", "schedules"},
    "leader show": {"leader"},
    "leader watch": {"events"},
    "leader history": {"leader_history"},
    "leader resign": {"resign"},
    "leader clear-hold": {"clear_hold"},
    "schedule list": {"schedules"},
    "schedule show": {"schedule", "backfills"},
    "schedule next": {"next_times"},
    "schedule preview": {"next_times", "preview"},
    "schedule explain": {"explain", "preview"},
    "schedule trigger": {"trigger"},
    "schedule pause": {"pause", "pause_schedules"},
    "schedule resume": {"resume", "resume_schedules"},
    "schedule backfill": {"add_backfill", "backfill", "backfills", "cancel_backfill"},
    "schedule apply": {"apply"},
    "schedule delete": {"delete"},
    "job list": HERE,
    "job show": HERE,
    "job run": {"enqueue", "jobs"},
    "runs list": {"runs"},
    "runs show": {"run"},
    "runs logs": {"run_log"},
    "runs cancel": {"cancel"},
    "runs requeue": {"requeue"},
    "runs set-priority": {"set_priority"},
    "queue list": {"queues"},
    "queue show": {"queues"},
    "queue pause": {"pause_queue"},
    "queue resume": {"resume_queue"},
    "queue purge": {"purge_queue"},
    "queue move": {"move_queue"},
    "queue fsck": {"verify_queues"},
    "dead list": {"dead"},
    "dead show": {"dead_run"},
    "dead requeue": {"requeue_dead", "requeue_dead_runs"},
    "dead drop": {"drop_dead", "drop_dead_runs"},
    "enqueue": {"enqueue", "run"},
    "worker list": {"workers"},
    "worker quiet": {"quiet_worker"},
    "worker resume": {"resume_worker"},
    "worker recycle": {"recycle_worker"},
    "worker stacks": {"worker_stacks"},
    "plugin list": {"plugins"},
    "plugin show": {"plugins"},
    "plugin verify": TRIED_HERE,
    "plugin run": TRIED_HERE,
    "events": {"events"},
    "reload": {"reload_replica"},
    "stop": {"stop_replica"},
    "config validate": HERE,
    "config show": HERE,
    "config flags": HERE,
    "config convert": HERE,
    "config schema": HERE,
    "config default": HERE,
    "import crontab": HERE,
    "token new": HERE,
    "init": HERE,
    "doctor": HERE,
    "completion": HERE,
    "version": HERE,
}


def test_every_command_has_a_route_or_a_reason() -> None:
    """A new command that asks the cluster is offered by both doors."""
    assert {" ".join(path) for path in commands(cli)} == ROUTES_OF.keys()


def test_every_route_is_that_of_a_command() -> None:
    """A new route is a command too; the document has no route of its own in the table."""
    named = {handler for found in ROUTES_OF.values() if not isinstance(found, str) for handler in found}
    assert named == {route.handler for route in ROUTES}
