"""``tenure dead``: runs that were given up, kept for inspection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from supervisor.cli.cluster import INSTANT, confirm, who, yes_option
from supervisor.cli.connection import Connection, cluster_options, connected
from supervisor.cli.help import SectionedGroup
from supervisor.cli.options import DURATION, LoadSettings, config_options
from supervisor.cli.output import list_options, moment, output_option, print_rows, print_value, progress
from supervisor.core.errors import EXIT_FAILED, EXIT_NO, EXIT_OK
from supervisor.operations import dead as operations
from supervisor.operations.dead import DeadFilter, DeadRun, reason_of
from supervisor.operations.runs import RunView
from supervisor.telemetry.masking import mask_text

COUNT_MAX = 100_000
_COLUMNS = ("run", "queue", "job", "died", "attempts", "crashes", "reason")


def filtered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select dead runs; the command is passed ``which``."""
    from functools import wraps

    @click.option("--queue", help="Only of this queue.")
    @click.option("--job", help="Only runs of this job.")
    @click.option("--reason", metavar="TEXT", help="Only with this in the reason, as `dead list` shows it.")
    @click.option("--error", metavar="TEXT", help="Only with this anywhere in the error, its traceback too.")
    @click.option(
        "--before", "before_ms", type=INSTANT, help="Only those that died before, such as -2h or 2026-11-20 (in UTC)."
    )
    @wraps(function)
    def command(**options: Any) -> Any:
        ids, everything = options.pop("run_ids", ()), options.pop("everything", False)
        parts = {name: options.pop(name) for name in ("queue", "job", "reason", "error", "before_ms")}
        return function(which=DeadFilter(ids=tuple(dict.fromkeys(ids)), everything=everything, **parts), **options)

    return command


_ids_argument = click.argument("run_ids", metavar="[RUN]...", nargs=-1)
_all_option = click.option("--all", "everything", is_flag=True, help="Every dead run, or with --queue all of it.")


@click.group(cls=SectionedGroup)
def dead() -> None:
    """List, requeue and drop runs that were given up."""


@dead.command("list")
@filtered
@click.option("-n", "--count", type=click.IntRange(1, COUNT_MAX), default=50, show_default=True, help="How many.")
@cluster_options
@list_options
def dead_list(*, which: DeadFilter, count: int, connection: Connection) -> int:
    """List dead runs, newest first.

    Exits with 1 when a queue cannot be read, such as for a key of another program in its place; the others are listed.

    \b
    Examples:
      tenure dead list --job report.make
      tenure dead list --error ConnectionRefused --before -1h -o json
    """
    configured = connection.configured_queues
    found, is_whole = connection.ask_each_queue(operations.find, which, count=count, configured=configured)
    print_rows([dead_row(each) for each in found], columns=_COLUMNS, empty="no dead run" if is_whole else "")
    return EXIT_OK if is_whole else EXIT_FAILED


@dead.command("show")
@click.argument("run_id", metavar="RUN")
@cluster_options
@output_option
def dead_show(*, run_id: str, connection: Connection) -> None:
    """Show one dead run: why, its traceback, its worker, how often it was tried.

    \b
    Example:
      tenure dead show nightly-report@1795055400000
    """
    view = connection.ask(operations.show, run_id)
    print_value(dead_record(view))


@dead.command("requeue")
@_ids_argument
@_all_option
@filtered
@click.option("--delay", "delay_s", type=DURATION, default="0s", help="Not sooner than after this time.")
@yes_option
@config_options
@output_option
def dead_requeue(*, which: DeadFilter, delay_s: float, yes: bool, load_settings: LoadSettings) -> int:
    """Let dead runs run again, with all their attempts, from the tail of their queue.

    Exits with 3 when one could not: another run holds its unique key, or nothing that could run is left of it.

    \b
    Examples:
      tenure dead requeue nightly-report@1795055400000
      tenure dead requeue --job report.make --error Timeout --delay 10m --yes
    """
    requeue = operations.requeueing(round(delay_s * 1000))
    return _change(which, "Requeue", requeue, yes=yes, load_settings=load_settings)


@dead.command("drop")
@_ids_argument
@_all_option
@filtered
@click.option("--note", default="", help="Why, for people; kept in the history.")
@yes_option
@config_options
@output_option
def dead_drop(*, which: DeadFilter, note: str, yes: bool, load_settings: LoadSettings) -> int:
    """Forget dead runs. The history keeps a line of each.

    \b
    Examples:
      tenure dead drop nightly-report@1795055400000
      tenure dead drop --before -7d --yes
    """
    drop = operations.dropping(note)
    return _change(which, "Drop", drop, yes=yes, load_settings=load_settings)


def _change(
    which: DeadFilter,
    verb: str,
    change: operations.DeadChange,
    *,
    yes: bool,
    load_settings: LoadSettings,
) -> int:
    which.must_select()
    with connected(load_settings().settings) as connection:
        configured = connection.configured_queues
        found, is_whole = connection.ask_each_queue(operations.selected, which, configured=configured)
        total = sum(map(len, found.values()))
        if total:
            confirm(f"{verb} {total} dead run{'s' if total > 1 else ''}?", yes=yes)
        with progress(verb.lower(), total) as tell:
            history = connection.settings.queues.history
            results = connection.ask(operations.apply, change, found, by=who(), history=history, tell=tell)
    rows: list[dict[str, Any]] = [{"run": each, "queue": name, "result": result} for name, each, result in results]
    missing = set(which.ids) - {row["run"] for row in rows}
    rows += [{"run": each, "queue": None, "result": "is not dead"} for each in which.ids if each in missing]
    print_rows(rows, columns=("run", "queue", "result"), empty="no dead run matches")
    if missing or not is_whole:
        return EXIT_FAILED
    return EXIT_OK if all(row["result"] == change.done for row in rows) else EXIT_NO


def dead_row(dead: DeadRun) -> dict[str, Any]:
    """Return the row of one dead run in a list."""
    return {
        "run": dead.run_id,
        "queue": dead.queue,
        "job": dead.envelope.template.job if dead.envelope else None,
        "schedule": dead.envelope.schedule if dead.envelope else None,
        "maybe_duplicate": dead.envelope.maybe_duplicate if dead.envelope else None,
        "died": moment(dead.died_ms),
        "attempts": dead.attempts,
        "crashes": dead.crashes,
        "interruptions": dead.interrupts,
        "reason": reason_of(dead.error) or None,
        "worker": dead.error.get("worker") or dead.error.get("session"),
    }


def dead_record(view: RunView) -> dict[str, Any]:
    """Return everything there is to know about one."""
    envelope, error = view.envelope, view.error
    record: dict[str, Any] = {
        "run": view.run_id,
        "queue": view.queue,
        "job": envelope.template.job if envelope else None,
        "schedule": envelope.schedule if envelope else None,
        "nominal": moment(envelope.nominal_ms) if envelope else None,
        "maybe_duplicate": (envelope.maybe_duplicate or None) if envelope else None,
        "arguments": sorted(envelope.template.args) if envelope else None,
        "died": moment(view.died_ms),
        "reason": reason_of(error),
        "worker": error.get("worker") or error.get("session"),
        "failed_attempts": view.attempts,
        "crashes": view.crashes,
        "interruptions": view.interrupts,
        "traceback": mask_text(str(error["traceback"])) if error.get("traceback") else None,
        "history": [
            f"{moment(each.ended_ms)} attempt {each.attempt} {each.outcome} {mask_text(each.note)}".rstrip()
            for each in view.history
        ],
    }
    return {key: value for key, value in record.items() if value not in (None, "", {}, [])}
