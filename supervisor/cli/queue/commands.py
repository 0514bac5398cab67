"""``tenure queue``: contents and control of queues."""

from __future__ import annotations

from typing import Any

import click

from supervisor.cli.cluster import ask
from supervisor.cli.connection import connected
from supervisor.cli.help import SectionedGroup
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import (
    distance,
    list_options,
    moment,
    output_option,
    print_rows,
    print_section,
    print_value,
    say,
)
from supervisor.cli.queue.changes import move, pause, purge, resume
from supervisor.cli.queue.fsck import fsck
from supervisor.cli.queue.params import PRIORITY_NAMES, configured_queues
from supervisor.operations import queues

_COLUMNS = ("queue", "ready", "blocked", "running", "later", "dead", "oldest_ready", "served", "paused")


def queue_row(counts: queues.QueueCounts, served: queues.ServedKinds) -> dict[str, Any]:
    """Return the row of one queue in a list; ``served``: kinds of runs that live workers take, by queue."""
    return {
        "queue": counts.queue,
        "ready": counts.ready_total,
        "blocked": counts.blocked,
        "running": counts.running,
        "later": counts.later,
        "dead": counts.dead,
        "served": ", ".join(served.get(counts.queue, ())) or "no",
        "paused": counts.paused,
        "oldest_ready": distance(counts.oldest_ready_ms, counts.now_ms),
        "next_due": moment(counts.next_due_ms),
        "totals": counts.stats,
    }


@click.group(cls=SectionedGroup)
def queue() -> None:
    """List and control queues, and check their content."""


@queue.command("list")
@config_options
@list_options
def queue_list(*, output: str, load_settings: LoadSettings) -> None:
    """List queues: ready, blocked, running, later and dead runs, and which kinds of runs live workers take.

    \b
    Example:
      tenure queue list -o json
    """
    with connected(load_settings().settings) as connection:
        served = ask(connection, queues.served_kinds(connection.keys))
        rows = [queue_row(each, served) for each in ask(connection, queues.overview(connection.keys))]
    print_rows(rows, columns=_COLUMNS, output=output, empty="no queue was used yet")


@queue.command("show")
@click.argument("name", metavar="QUEUE")
@config_options
@output_option
def queue_show(*, name: str, output: str, load_settings: LoadSettings) -> None:
    """Show one queue: ready runs by kind and priority, the age of the oldest, totals and pace.

    \b
    Example:
      tenure queue show default
    """
    with connected(load_settings().settings) as connection:
        counts = ask(connection, queues.counts(connection.keys, name, configured_queues(connection)))
        rate = ask(connection, queues.rate(connection.keys, counts))
        row = queue_row(counts, ask(connection, queues.served_kinds(connection.keys)))
    lists = [
        {"kind": kind.value, "priority": PRIORITY_NAMES[priority], "ready": count}
        for (kind, priority), count in counts.ready.items()
    ]
    suspects = {kind.value: count for kind, count in counts.suspects.items()}
    if output != "table":
        row |= {"paused_by": counts.paused_by, "paused_since": moment(counts.paused_ms)}
        print_value(row | {"lists": lists, "suspects": suspects, "ended_per_s": rate}, output=output)
        return
    print_rows([row], columns=_COLUMNS, output=output, empty="")
    if counts.paused is not None:
        since = distance(counts.paused_ms, counts.now_ms) or "at an unknown time"
        say(f"\npaused {since} by {counts.paused_by or 'nobody named'}: {counts.paused or 'no reason given'}")
    print_section("Ready", lists, columns=("kind", "priority", "ready"), empty="")
    if any(suspects.values()):
        click.echo(f"\nto run alone, after a process died of one of them: {sum(suspects.values())}")
    totals = [{"what": what, "total": total} for what, total in sorted(counts.stats.items())]
    print_section("Totals", totals, columns=("what", "total"), empty="nothing yet")
    click.echo(f"\nattempts that ended in a second, over the last minute: {rate:g}")


for each in (pause, resume, purge, move, fsck):
    queue.add_command(each)
