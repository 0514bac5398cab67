"""``tenure queue pause``, ``resume``, ``purge`` and ``move``."""

from __future__ import annotations

import click

from supervisor.cli.cluster import ask, checked_options, confirm, who
from supervisor.cli.connection import connected
from supervisor.cli.help import SectionedCommand
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import output_option, print_rows
from supervisor.cli.progress import progress
from supervisor.cli.queue.params import configured_queues, reason_option, yes_option
from supervisor.core.errors import EXIT_NO, EXIT_OK
from supervisor.operations import queues


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
    with connected(load_settings().settings) as connection, checked_options():
        configured = configured_queues(connection)
        done = ask(connection, queues.pause(connection.keys, names, by=who(), reason=reason, configured=configured))
    results = {True: "paused", False: "was paused; the reason is replaced"}
    rows = [{"queue": name, "result": results[is_new]} for name, is_new in done]
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
    with connected(load_settings().settings) as connection:
        done = ask(connection, queues.resume(connection.keys, names, configured=configured_queues(connection)))
    rows = [{"queue": name, "result": "resumed" if was_paused else "was not paused"} for name, was_paused in done]
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
        counts = ask(connection, queues.counts(connection.keys, name, configured_queues(connection)))
        waiting = queues.waiting(counts)
        which = f"all runs of job {job}" if job else f"all {waiting} runs"
        confirm(f"End {which} that wait in queue {name}?", yes=yes)
        history = connection.settings.queues.history
        with progress(f"purging {name}", waiting) as tell:
            purge = queues.purge(connection.keys, counts, job=job, by=who(), reason=reason, history=history, tell=tell)
            ended = ask(connection, purge)
    print_rows([{"queue": name, "ended": ended}], columns=("queue", "ended"), output=output, empty="")


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
        configured = configured_queues(connection)
        counts = ask(connection, queues.counts(connection.keys, source, configured))
        ask(connection, queues.known(connection.keys, [target], configured))
        confirm(f"Move {queues.waiting(counts)} runs from queue {source} to {target}?", yes=yes)
        with progress(f"moving {source}", queues.waiting(counts)) as tell:
            moved, stayed = ask(connection, queues.move(connection.keys, counts, target, tell=tell))
    row = {"from": source, "to": target, "moved": moved, "stayed": stayed}
    print_rows([row], columns=("from", "to", "moved", "stayed"), output=output, empty="")
    return EXIT_NO if stayed else EXIT_OK
