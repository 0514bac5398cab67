"""``tenure queue``: contents and control of queues."""

from __future__ import annotations

from typing import Any

import click

from supervisor.cli.cluster import PRIORITY_NAMES, checked_options, confirm, reason_option, who, yes_option
from supervisor.cli.connection import Connection, cluster_options, connected
from supervisor.cli.help import SectionedGroup
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import (
    distance,
    is_table,
    list_options,
    moment,
    output_option,
    print_rows,
    print_section,
    print_value,
    progress,
    say,
)
from supervisor.core.errors import EXIT_FAILED, EXIT_NO, EXIT_OK
from supervisor.operations import queues
from supervisor.telemetry.masking import mask


@click.group(cls=SectionedGroup)
def queue() -> None:
    """List and control queues, and check their content."""


@queue.command()
@click.argument("names", metavar="[QUEUE]...", nargs=-1)
@click.option("--fix", "is_mending", is_flag=True, help="Repair what was found. Loses no run.")
@cluster_options
@output_option
def fsck(*, names: tuple[str, ...], is_mending: bool, connection: Connection) -> int:
    """Verify that every run is in exactly one place, and that counters and limits are true. Safe while runs run.

    Exits with 3 when something is wrong, or with --fix when something is left that it could not mend.

    \b
    Examples:
      tenure queue fsck
      tenure queue fsck default --fix
    """
    known = connection.ask(queues.known, names, connection.configured_queues)
    total, dead_cap = connection.ask(queues.entries, known), connection.settings.queues.dead
    with progress("reading", total) as tell:
        found = connection.ask(queues.verify, known, is_mending=is_mending, dead_cap=dead_cap, tell=tell)
    rows = [each.record() for each in found]
    empty = f"nothing is wrong in {len(known)} queue{'' if len(known) == 1 else 's'}"
    columns = ("queue", "what", "problem", "done") if is_mending else ("queue", "what", "problem")
    print_rows(rows, columns=columns, empty=empty)
    return EXIT_OK if all(each.remedy for each in found) else EXIT_NO


@queue.command()
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@reason_option
@config_options
@output_option
def pause(*, names: tuple[str, ...], reason: str, load_settings: LoadSettings) -> None:
    """Let nothing be fetched. Started runs go on, and runs may still be put into the queue.

    \b
    Example:
      tenure queue pause reports --reason 'database moves'
    """
    with connected(load_settings().settings) as connection, checked_options():
        configured = connection.configured_queues
        done = connection.ask(queues.pause, names, by=who(), reason=reason, configured=configured)
    results = {True: "paused", False: "was paused; the reason is replaced"}
    rows = [{"queue": name, "result": results[is_new]} for name, is_new in done]
    print_rows(rows, columns=("queue", "result"))


@queue.command()
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@cluster_options
@output_option
def resume(*, names: tuple[str, ...], connection: Connection) -> None:
    """End a pause.

    \b
    Example:
      tenure queue resume reports
    """
    done = connection.ask(queues.resume, names, configured=connection.configured_queues)
    rows = [{"queue": name, "result": "resumed" if was_paused else "was not paused"} for name, was_paused in done]
    print_rows(rows, columns=("queue", "result"))


@queue.command()
@click.argument("name", metavar="QUEUE")
@click.option("--job", default="", help="Only runs of this job.")
@reason_option
@yes_option
@cluster_options
@output_option
def purge(*, name: str, job: str, reason: str, yes: bool, connection: Connection) -> None:
    """End the waiting runs of a queue: ready, delayed, blocked and suspect ones. Running ones go on; dead runs stay.

    Each run leaves a line in the history. Runs put into the queue meanwhile may stay.

    \b
    Examples:
      tenure queue purge reports
      tenure queue purge reports --job report.make --yes
    """
    counts = connection.ask(queues.counts, name, connection.configured_queues)
    waiting = queues.waiting(counts)
    which = f"all runs of job {job}" if job else f"all {waiting} runs"
    confirm(f"End {which} that wait in queue {name}?", yes=yes)
    history = connection.settings.queues.history
    with progress(f"purging {name}", waiting) as tell:
        ended = connection.ask(queues.purge, counts, job=job, by=who(), reason=reason, history=history, tell=tell)
    print_rows([{"queue": name, "ended": ended}], columns=("queue", "ended"))


@queue.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@yes_option
@config_options
@output_option
def move(*, source: str, target: str, yes: bool, load_settings: LoadSettings) -> int:
    """Move the waiting runs of a queue to another, in their order. Running and dead ones stay.

    Limits, priorities and charges go with each run. One whose id the target has stays; then it exits with 3.

    \b
    Example:
      tenure queue move reports reports-slow
    """
    if source == target:
        raise click.UsageError("FROM and TO are the same queue")
    with connected(load_settings().settings) as connection:
        configured = connection.configured_queues
        counts = connection.ask(queues.counts, source, configured)
        connection.ask(queues.known, [target], configured)
        confirm(f"Move {queues.waiting(counts)} runs from queue {source} to {target}?", yes=yes)
        with progress(f"moving {source}", queues.waiting(counts)) as tell:
            moved, stayed = connection.ask(queues.move, counts, target, tell=tell)
    row = {"from": source, "to": target, "moved": moved, "stayed": stayed}
    print_rows([row], columns=("from", "to", "moved", "stayed"))
    return EXIT_NO if stayed else EXIT_OK


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
        "paused": mask(counts.paused),
        "oldest_ready": distance(counts.oldest_ready_ms, counts.now_ms),
        "next_due": moment(counts.next_due_ms),
        "totals": counts.stats,
    }


def queue_rows(connection: Connection) -> tuple[list[dict[str, Any]], bool]:
    """Return the rows of all queues, and whether each could be read; people are told of one that could not."""
    served = connection.ask(queues.served_kinds)
    found, is_whole = connection.ask_each_queue(queues.overview)
    return [queue_row(each, served) for each in found], is_whole


@queue.command("list")
@cluster_options
@list_options
def queue_list(*, connection: Connection) -> int:
    """List queues: ready, blocked, running, later and dead runs, and which kinds of runs live workers take.

    Exits with 1 when one cannot be read, such as for a key of another program in its place; the others are listed.

    \b
    Example:
      tenure queue list -o json
    """
    rows, is_whole = queue_rows(connection)
    print_rows(rows, columns=_COLUMNS, empty="no queue was used yet" if is_whole else "")
    return EXIT_OK if is_whole else EXIT_FAILED


@queue.command("show")
@click.argument("name", metavar="QUEUE")
@cluster_options
@output_option
def queue_show(*, name: str, connection: Connection) -> None:
    """Show one queue: ready runs by kind and priority, the age of the oldest, totals and pace.

    \b
    Example:
      tenure queue show default
    """
    counts = connection.ask(queues.counts, name, connection.configured_queues)
    rate = connection.ask(queues.rate, counts)
    row = queue_row(counts, connection.ask(queues.served_kinds))
    lists = [
        {"kind": kind.value, "priority": PRIORITY_NAMES[priority], "ready": count}
        for (kind, priority), count in counts.ready.items()
    ]
    suspects = {kind.value: count for kind, count in counts.suspects.items()}
    if not is_table():
        row |= {"paused_by": counts.paused_by, "paused_since": moment(counts.paused_ms)}
        print_value(row | {"lists": lists, "suspects": suspects, "ended_per_s": rate})
        return
    print_rows([row], columns=_COLUMNS)
    if counts.paused is not None:
        since = distance(counts.paused_ms, counts.now_ms) or "at an unknown time"
        say(f"\npaused {since} by {counts.paused_by or 'nobody named'}: {mask(counts.paused) or 'no reason given'}")
    print_section("Ready", lists, columns=("kind", "priority", "ready"), empty="")
    if any(suspects.values()):
        say(f"\nto run alone, after a process died of one of them: {sum(suspects.values())}")
    totals = [{"what": what, "total": total} for what, total in sorted(counts.stats.items())]
    print_section("Totals", totals, columns=("what", "total"), empty="nothing yet")
    say(f"\nattempts that ended in a second, over the last minute: {rate:g}")
