"""``tenure status``, ``leader``, ``schedule`` and ``job``: look, change nothing."""

from __future__ import annotations

from typing import Any

import click

from supervisor.cli.connection import Connection, connected
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import distance, moment, output_option, print_rows, print_value, span
from supervisor.core.errors import EXIT_NO, TenureError
from supervisor.core.triggers import trigger_of
from supervisor.store.leases import CandidateInfo, LeaseView
from supervisor.store.schedules import StoredSchedule

NEXT_MAX = 1000


@click.command()
@config_options
@output_option
def status(*, output: str, load_settings: LoadSettings) -> int:
    """Show who leads, the replicas, the queues, the latest runs and the next fires.

    Exits with 3 when nobody leads.

    \b
    Example:
      tenure status --config /etc/tenure
    """
    from supervisor.cli.runs import latest_runs, queue_rows

    with connected(load_settings().settings) as connection:
        lease = connection.store.run(connection.leases.view())
        replicas = _replica_rows(connection, lease)
        schedules, now_ms = connection.all_schedules()
        rows = _schedule_rows(schedules, now_ms)
        queues = queue_rows(connection)
        recent = latest_runs(connection, count=10)
    if output != "table":
        value = {
            "leader": _lease_row(lease),
            "replicas": replicas,
            "queues": queues,
            "schedules": rows,
            "recent_runs": recent,
        }
        print_value(value, output=output)
        return 0 if lease.holder else EXIT_NO
    click.echo(_leader_line(lease))
    _section("Replicas", replicas, ("replica", "role", "host", "pid", "version", "seen"), "none has campaigned yet")
    _section("Queues", queues, ("queue", "ready", "running", "later", "dead"), "none was used yet")
    _section("Latest runs", recent, ("run", "job", "outcome", "attempt", "ended", "duration"), "none has ended yet")
    rows.sort(key=lambda row: row["next_ms"] or 1 << 62)
    _section("Next fires", rows[:10], ("schedule", "job", "trigger", "next", "in"), "no schedules")
    return 0 if lease.holder else EXIT_NO


def _section(title: str, rows: list[dict[str, Any]], columns: tuple[str, ...], empty: str) -> None:
    click.echo(f"\n{title}")
    print_rows(rows, columns=columns, output="table", empty=f"  {empty}")


@click.group()
def leader() -> None:
    """Show the election."""


@leader.command("show")
@config_options
@output_option
def leader_show(*, output: str, load_settings: LoadSettings) -> int:
    """Show the lease and who could lead. Exits with 3 when nobody leads.

    \b
    Example:
      tenure leader show -o json
    """
    with connected(load_settings().settings) as connection:
        lease = connection.store.run(connection.leases.view())
        replicas = _replica_rows(connection, lease)
    if output == "table":
        click.echo(_leader_line(lease))
        _section("Candidates", replicas, ("replica", "role", "host", "pid", "version", "seen"), "none")
    else:
        print_value({**_lease_row(lease), "candidates": replicas}, output=output)
    return 0 if lease.holder else EXIT_NO


def _leader_line(lease: LeaseView) -> str:
    if not lease.holder:
        return f"Nobody leads (last epoch {lease.epoch})."
    held = span(max(0, lease.now_ms - lease.acquired_ms) / 1000)
    late = "" if lease.remaining_ms > 0 else f"; its lease ran out {span(-lease.remaining_ms / 1000)} ago"
    return f"Leader: {lease.holder} (epoch {lease.epoch}, for {held}, renewed {lease.seq} times{late})"


def _lease_row(lease: LeaseView) -> dict[str, Any]:
    return {
        "holder": lease.holder or None,
        "epoch": lease.epoch,
        "seq": lease.seq,
        "remaining_ms": lease.remaining_ms,
        "duration_ms": lease.duration_ms,
        "acquired": moment(lease.acquired_ms),
        "transitions": lease.transitions,
        "host": lease.host,
        "pid": lease.pid,
        "version": lease.version,
    }


def _replica_rows(connection: Connection, lease: LeaseView) -> list[dict[str, Any]]:
    found = connection.store.run(connection.leases.candidates())
    rows = [_replica_row(candidate, lease) for candidate in sorted(found, key=lambda each: each.replica)]
    if lease.holder and lease.holder not in {row["replica"] for row in rows}:
        rows.insert(0, {"replica": lease.holder, "role": "leader", "host": lease.host, "pid": lease.pid})
    return rows


def _replica_row(candidate: CandidateInfo, lease: LeaseView) -> dict[str, Any]:
    role = "leader" if candidate.replica == lease.holder else "draining" if candidate.draining else "standby"
    return {
        "replica": candidate.replica,
        "role": role,
        "host": candidate.host,
        "pid": candidate.pid,
        "version": candidate.version,
        "started": moment(candidate.started_ms),
        "seen": distance(candidate.seen_ms, lease.now_ms),
    }


@click.group()
def schedule() -> None:
    """List schedules and their next fires."""


@schedule.command("list")
@config_options
@output_option
def schedule_list(*, output: str, load_settings: LoadSettings) -> None:
    """List the schedules that the cluster runs.

    \b
    Example:
      tenure schedule list -o json
    """
    with connected(load_settings().settings) as connection:
        schedules, now_ms = connection.all_schedules()
    columns = ("schedule", "job", "trigger", "overlap", "next", "in", "last", "description")
    print_rows(_schedule_rows(schedules, now_ms), columns=columns, output=output, empty="no schedules")


def _schedule_rows(schedules: list[StoredSchedule], now_ms: int) -> list[dict[str, Any]]:
    rows = []
    for stored in schedules:
        definition = stored.definition
        rows.append(
            {
                "schedule": definition.id,
                "job": definition.template.job,
                "trigger": trigger_of(definition).describe(),
                "overlap": definition.overlap,
                "missed": definition.missed,
                "queue": definition.template.queue,
                "revision": stored.revision,
                "next": moment(stored.next_ms),
                "next_ms": stored.next_ms,
                "in": distance(stored.next_ms, now_ms),
                "last": moment(stored.mark_ms),
                "description": definition.description,
            }
        )
    return rows


@schedule.command("next")
@click.argument("schedule_id", metavar="SCHEDULE")
@click.option("-n", "--count", type=click.IntRange(1, NEXT_MAX), default=5, show_default=True, help="How many.")
@config_options
@output_option
def schedule_next(*, schedule_id: str, count: int, output: str, load_settings: LoadSettings) -> None:
    """Show when a schedule is due next, computed by the code that fires it.

    \b
    Example:
      tenure schedule next nightly-report --count 10
    """
    with connected(load_settings().settings) as connection:
        schedules, now_ms = connection.all_schedules()
    found = next((each for each in schedules if each.definition.id == schedule_id), None)
    if found is None:
        known = ", ".join(each.definition.id for each in schedules[:20]) or "none"
        raise TenureError(f"no schedule is called {schedule_id!r}; known: {known}")
    trigger = trigger_of(found.definition)
    rows: list[dict[str, Any]] = []
    at_ms = trigger.next_ms(now_ms)
    while at_ms is not None and len(rows) < count:
        rows.append(
            {"schedule": schedule_id, "nominal_ms": at_ms, "nominal": moment(at_ms), "in": distance(at_ms, now_ms)}
        )
        at_ms = trigger.next_ms(at_ms)
    print_rows(rows, columns=("nominal", "in"), output=output, empty=f"{schedule_id} is never due again")


@click.group()
def job() -> None:
    """List the jobs that the configuration imports."""


@job.command("list")
@config_options
@output_option
def job_list(*, output: str, load_settings: LoadSettings) -> None:
    """List the jobs that the modules under ``jobs:`` register. Needs no running tree.

    \b
    Example:
      tenure job list --config config/demo
    """
    from supervisor.app import prepare_jobs
    from supervisor.core.registry import registry

    prepare_jobs(load_settings())
    rows = []
    for name in registry.names():
        spec = registry.get(name)
        rows.append(
            {
                "job": name,
                "kind": spec.kind.value,
                "queue": spec.queue,
                "timeout_s": spec.timeout_s,
                "attempts": spec.retry.attempts,
                "signature": spec.signature,
                "origin": spec.origin,
            }
        )
    print_rows(
        rows,
        columns=("job", "kind", "queue", "timeout_s", "attempts", "signature"),
        output=output,
        empty="no jobs: list modules under jobs:",
    )
