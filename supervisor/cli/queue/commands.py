"""``tenure queue``: contents and control of queues."""

from __future__ import annotations

from typing import Any

import click

from supervisor.cli.cluster import run
from supervisor.cli.connection import Connection, connected
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
from supervisor.cli.queue.params import PRIORITY_NAMES, known_queue, queue_names
from supervisor.store.queues.reads import QueueCounts

RATE_SAMPLE = 1000
RATE_S = 60.0
_COLUMNS = ("queue", "ready", "blocked", "running", "later", "dead", "oldest_ready", "paused")


def queue_rows(connection: Connection) -> list[dict[str, Any]]:
    """Return one row for each queue that was ever used."""
    return [queue_row(run(connection, connection.queues.counts(name))) for name in queue_names(connection)]


def queue_row(counts: QueueCounts) -> dict[str, Any]:
    """Return the row of one queue in a list."""
    return {
        "queue": counts.queue,
        "ready": counts.ready_total,
        "blocked": counts.blocked,
        "running": counts.running,
        "later": counts.later,
        "dead": counts.dead,
        "paused": counts.paused,
        "oldest_ready": distance(counts.oldest_ready_ms, counts.now_ms),
        "next_due": moment(counts.next_due_ms),
        "totals": counts.stats,
    }


def _rate(connection: Connection, counts: QueueCounts) -> float:
    """Return how many attempts end in a second: of the last minute, or of the newest thousand if they are newer."""
    ended = [each.ended_ms for each in run(connection, connection.queues.recent(counts.queue, RATE_SAMPLE))]
    since_ms = counts.now_ms - RATE_S * 1000
    recent = [each for each in ended if each >= since_ms]
    span_s = RATE_S if len(recent) < RATE_SAMPLE else max(1.0, counts.now_ms - min(recent)) / 1000
    return round(len(recent) / span_s, 3)


@click.group(cls=SectionedGroup)
def queue() -> None:
    """List and control queues, and check their content."""


@queue.command("list")
@config_options
@list_options
def queue_list(*, output: str, load_settings: LoadSettings) -> None:
    """List queues: ready, blocked, running, later and dead runs.

    \b
    Example:
      tenure queue list -o json
    """
    with connected(load_settings().settings) as connection:
        rows = queue_rows(connection)
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
        counts = run(connection, connection.queues.counts(known_queue(connection, name)))
        rate = _rate(connection, counts)
    lists = [
        {"kind": kind.value, "priority": PRIORITY_NAMES[priority], "ready": count}
        for (kind, priority), count in counts.ready.items()
    ]
    suspects = {kind.value: count for kind, count in counts.suspects.items()}
    if output != "table":
        row = queue_row(counts) | {"paused_by": counts.paused_by, "paused_since": moment(counts.paused_ms)}
        print_value(row | {"lists": lists, "suspects": suspects, "ended_per_s": rate}, output=output)
        return
    print_rows([queue_row(counts)], columns=_COLUMNS, output=output, empty="")
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
