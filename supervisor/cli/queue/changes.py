"""``tenure queue pause``, ``resume``, ``purge`` and ``move``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from supervisor.cli.cluster import confirm, run, who
from supervisor.cli.connection import Connection, connected
from supervisor.cli.help import SectionedCommand
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import output_option, print_rows
from supervisor.cli.progress import progress
from supervisor.cli.queue.params import PAGES_MAX, control, known_queue, reason_option, waiting_parts, yes_option
from supervisor.core.errors import EXIT_NO, EXIT_OK
from supervisor.store.keys import LETTER_KIND
from supervisor.store.queues.control import PAGE, REASON_MAX
from supervisor.store.queues.reads import QueueCounts


@click.command(cls=SectionedCommand)
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@reason_option
@config_options
@output_option
def pause(*, names: tuple[str, ...], reason: str, output: str, load_settings: LoadSettings) -> None:
    """Let nothing be fetched. Started runs go on, and runs may still be put into the queue.

    \b
    Example:
      tenure queue pause reports --reason 'database moves'
    """
    if len(reason) > REASON_MAX:
        raise click.UsageError(f"--reason has {len(reason)} characters; at most {REASON_MAX} are kept")
    rows = []
    with connected(load_settings().settings) as connection:
        for name in [known_queue(connection, each) for each in dict.fromkeys(names)]:
            is_new = run(connection, control(connection).pause(name, by=who(), reason=reason))
            rows.append({"queue": name, "result": "paused" if is_new else "was paused; the reason is replaced"})
    print_rows(rows, columns=("queue", "result"), output=output, empty="")


@click.command(cls=SectionedCommand)
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@config_options
@output_option
def resume(*, names: tuple[str, ...], output: str, load_settings: LoadSettings) -> None:
    """End a pause.

    \b
    Example:
      tenure queue resume reports
    """
    rows = []
    with connected(load_settings().settings) as connection:
        for name in [known_queue(connection, each) for each in dict.fromkeys(names)]:
            was = run(connection, control(connection).resume(name))
            rows.append({"queue": name, "result": "resumed" if was else "was not paused"})
    print_rows(rows, columns=("queue", "result"), output=output, empty="")


@click.command(cls=SectionedCommand)
@click.argument("name", metavar="QUEUE")
@click.option("--job", default="", help="Only runs of this job.")
@reason_option
@yes_option
@config_options
@output_option
def purge(*, name: str, job: str, reason: str, yes: bool, output: str, load_settings: LoadSettings) -> None:
    """End the waiting runs of a queue: ready, delayed, blocked and suspect ones. Running ones go on; dead runs stay.

    Each run leaves a line in the history. Runs put into the queue meanwhile may stay.

    \b
    Examples:
      tenure queue purge reports
      tenure queue purge reports --job report.make --yes
    """
    with connected(load_settings().settings) as connection:
        counts = run(connection, connection.queues.counts(known_queue(connection, name)))
        which = f"all runs of job {job}" if job else f"all {_waiting(counts)} runs"
        confirm(f"End {which} that wait in queue {name}?", yes=yes)
        ended = _purge(connection, counts, job=job, reason=reason)
    print_rows([{"queue": name, "ended": ended}], columns=("queue", "ended"), output=output, empty="")


def _purge(connection: Connection, counts: QueueCounts, *, job: str, reason: str) -> int:
    ended, waiting = 0, _waiting(counts)
    with progress(f"purging {counts.queue}", waiting) as tell:
        for part in waiting_parts(connection, counts.queue):
            left, position = _length(counts, part), "0"
            for _ in range(PAGES_MAX):
                call = control(connection).purge(
                    counts.queue, part, job=job, position=position, by=who(), reason=reason
                )
                page = run(connection, call)
                ended, left = ended + page.ended, left - page.ended
                tell(min(ended, waiting))
                position = page.position
                if not position or left <= 0:  # else a producer that is faster would keep this going for ever
                    break
    return ended


@click.command(cls=SectionedCommand)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@yes_option
@config_options
@output_option
def move(*, source: str, target: str, yes: bool, output: str, load_settings: LoadSettings) -> int:
    """Move the waiting runs of a queue to another, in their order. Running and dead ones stay.

    Limits, priorities and charges go with each run. One whose id the target has stays; then it exits with 3.

    \b
    Example:
      tenure queue move reports reports-slow
    """
    if source == target:
        raise click.UsageError("FROM and TO are the same queue")
    with connected(load_settings().settings) as connection:
        counts = run(connection, connection.queues.counts(known_queue(connection, source)))
        known_queue(connection, target)
        confirm(f"Move {_waiting(counts)} runs from queue {source} to {target}?", yes=yes)
        with progress(f"moving {source}", _waiting(counts)) as tell:
            moved, stayed = _move(connection, counts, target, tell)
    row = {"from": source, "to": target, "moved": moved, "stayed": stayed}
    print_rows([row], columns=("from", "to", "moved", "stayed"), output=output, empty="")
    return EXIT_NO if stayed else EXIT_OK


def _move(connection: Connection, counts: QueueCounts, target: str, tell: Callable[[int], Any]) -> tuple[int, int]:
    moved, stayed = 0, 0
    for part in waiting_parts(connection, counts.queue):
        left, offset = _length(counts, part), 0
        for _ in range(PAGES_MAX):
            count = min(PAGE, max(1, left))  # one that stays goes to the tail, and must not come twice
            page = run(connection, control(connection).move(counts.queue, target, part, count=count, offset=offset))
            moved, stayed, left = moved + page.moved, stayed + page.stayed, left - page.moved - page.stayed
            offset += page.stayed if part == "later" else 0
            tell(min(moved, _waiting(counts)))
            if page.seen < count or left <= 0:
                break
    return moved, stayed


def _waiting(counts: QueueCounts) -> int:
    return counts.ready_total + counts.later + counts.blocked + sum(counts.suspects.values())


def _length(counts: QueueCounts, part: str) -> int:
    """Return about how many runs waited in ``part`` when the command began."""
    place, _, rest = part.partition(":")
    if place == "later":
        return counts.later
    if place == "wait":
        return counts.blocked
    kind = LETTER_KIND[rest[0]]
    return counts.suspects[kind] if place == "suspect" else counts.ready[kind, int(rest[2])]
