"""``tenure status`` and ``job``: look, change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import click

from supervisor.cli.connection import Connection, cluster_options
from supervisor.cli.help import SectionedCommand, SectionedGroup
from supervisor.cli.leader import CANDIDATE_COLUMNS, leader_line, lease_row, replica_rows
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import is_table, list_options, output_option, print_rows, print_section, print_value, say
from supervisor.cli.runs.enqueueing import RunOptions, enqueue_options, put_run
from supervisor.cli.schedule.format import record_row
from supervisor.core.errors import EXIT_NO
from supervisor.core.jobs.registry import JobSpec


@click.command(cls=SectionedCommand)
@cluster_options
@output_option
def status(*, connection: Connection) -> int:
    """Show the leader, the replicas, the queues, the latest runs and the next fires.

    Exits with 3 when nobody leads.

    \b
    Example:
      tenure status --config /etc/tenure
    """
    from supervisor.cli.queue.commands import queue_rows
    from supervisor.cli.runs.commands import history_row
    from supervisor.operations import leader, runs, schedules

    lease, candidates = connection.ask(leader.show)
    replicas = replica_rows(lease, candidates)
    now_ms = connection.ask(schedules.now_ms)
    rows = [record_row(record, now_ms) for record in connection.ask(schedules.browse)]
    depths, _ = queue_rows(connection)
    recent = [history_row(*each) for each in connection.ask_each_queue(runs.latest, count=10)[0]]
    if not is_table():
        value = {
            "leader": lease_row(lease),
            "replicas": replicas,
            "queues": depths,
            "schedules": rows,
            "recent_runs": recent,
        }
        print_value(value)
        return 0 if lease.holder else EXIT_NO
    say(leader_line(lease))
    print_section("Replicas", replicas, columns=CANDIDATE_COLUMNS, empty="none has campaigned yet")
    print_section(
        "Queues", depths, columns=("queue", "ready", "running", "later", "dead", "served"), empty="none was used yet"
    )
    latest = ("run", "job", "outcome", "attempt", "ended", "duration")
    print_section("Latest runs", recent, columns=latest, empty="none has ended yet")
    rows.sort(key=lambda row: row.get("next_ms") or 1 << 62)
    fires = ("schedule", "job", "trigger", "next", "in")
    print_section("Next fires", rows[:10], columns=fires, empty="no schedules")
    return 0 if lease.holder else EXIT_NO


@click.group(cls=SectionedGroup)
def job() -> None:
    """List and show the jobs that the configuration imports."""


@job.command("list")
@config_options
@list_options
def job_list(*, load_settings: LoadSettings) -> None:
    """List the jobs that the modules under ``jobs:`` register. Needs no running tree.

    \b
    Example:
      tenure job list --config config/demo
    """
    from supervisor.app.jobs import prepare_jobs
    from supervisor.core.jobs.registry import registry

    prepare_jobs(load_settings())
    print_rows(
        [_job_row(registry.get(name)) for name in registry.names()],
        columns=("job", "kind", "queue", "timeout_s", "attempts", "signature"),
        empty="no jobs: list modules under jobs:",
    )


def _job_row(spec: JobSpec) -> dict[str, Any]:
    return {
        "job": spec.name,
        "kind": spec.kind.value,
        "queue": spec.base.queue,
        "timeout_s": spec.base.timeout_s,
        "attempts": spec.base.retry.attempts,
        "signature": spec.signature,
        "origin": spec.origin,
    }


@job.command("show")
@click.argument("name")
@config_options
@output_option
def job_show(*, name: str, load_settings: LoadSettings) -> None:
    """Show one job: its options, and the JSON Schema of its arguments. Needs no running tree.

    \b
    Example:
      tenure job show identity.token_cleanup -o json
    """
    from supervisor.app.jobs import prepare_jobs
    from supervisor.core.jobs.job_spec import arguments_schema
    from supervisor.core.jobs.registry import registry

    prepare_jobs(load_settings())
    spec = registry.get(name)
    row = _job_row(spec)
    value = {
        **{name: row[name] for name in ("job", "kind", "queue", "timeout_s", "attempts")},
        "delivery": "at_most_once" if spec.base.at_most_once else "at_least_once",
        **{name: row[name] for name in ("signature", "origin")},
        "description": (spec.function.__doc__ or "").strip().split("\n")[0],
        "arguments": arguments_schema(spec),
    }
    print_value(value)


@job.command("run")
@click.argument("job_name", metavar="JOB")
@click.option("--param", "arguments", metavar="NAME=VALUE", multiple=True, help="An argument; may be given many times.")
@enqueue_options
@config_options
def job_run(
    *, job_name: str, arguments: Sequence[str], load_settings: LoadSettings, **options: Unpack[RunOptions]
) -> None:
    """Put one run of a job into its queue, as `tenure enqueue` does, and print its id.

    \b
    Example:
      tenure job run identity.token_cleanup --param batch=100
    """
    put_run(load_settings, job_name, arguments, **options)
