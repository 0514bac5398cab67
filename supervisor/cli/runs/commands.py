"""``tenure runs`` and ``enqueue``: running and ended runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Unpack

import click
import msgspec

from supervisor.cli.connection import Connection, connected
from supervisor.cli.help import SectionedCommand, SectionedGroup
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import list_options, moment, output_option, print_rows, print_value, span
from supervisor.cli.queue.params import queue_names
from supervisor.cli.runs.changes import cancel, requeue, set_priority
from supervisor.cli.runs.family import family_record
from supervisor.core.errors import TenureError
from supervisor.core.json_values import JSON_DEPTH_MAX, is_deeper, read_json
from supervisor.store.producer.options import EnqueueOptions
from supervisor.store.queues.fanout_counts import Tallies
from supervisor.store.queues.reads import RunView
from supervisor.store.wire.history import HistoryEntry
from supervisor.telemetry.masking import mask, mask_text

COUNT_MAX = 10_000
PAGES_MAX = 1000


def latest_runs(connection: Connection, *, count: int, queue: str | None = None) -> list[dict[str, Any]]:
    """Return attempts that ended, newest first, over all queues or one."""
    rows: list[dict[str, Any]] = []
    for name in [queue] if queue else queue_names(connection):
        entries = connection.store.run(connection.queues.recent(name, count))
        rows += [_history_row(name, entry) for entry in entries]
    return sorted(rows, key=lambda row: row["ended"] or "", reverse=True)[:count]


def _history_row(queue: str, entry: HistoryEntry) -> dict[str, Any]:
    return {
        "run": entry.run_id,
        "queue": queue,
        "job": entry.job,
        "outcome": entry.outcome,
        "attempt": entry.attempt,
        "started": moment(entry.started_ms),
        "ended": moment(entry.ended_ms),
        "duration": span(max(0, entry.ended_ms - entry.started_ms) / 1000),
        "session": entry.session,
        "note": mask_text(entry.note),
    }


@click.group(cls=SectionedGroup)
def runs() -> None:
    """List and show runs, cancel them, change their turn."""


@runs.command("list")
@click.option("--queue", help="Only this queue.")
@click.option("--running", "is_running", is_flag=True, help="Runs in work instead of attempts that ended.")
@click.option("-n", "--count", type=click.IntRange(1, COUNT_MAX), default=20, show_default=True, help="How many.")
@config_options
@list_options
def runs_list(*, queue: str | None, is_running: bool, count: int, output: str, load_settings: LoadSettings) -> None:
    """List attempts that ended, newest first.

    \b
    Examples:
      tenure runs list --count 50
      tenure runs list --running
    """
    with connected(load_settings().settings) as connection:
        rows = _running(connection, queue, count) if is_running else latest_runs(connection, count=count, queue=queue)
    ended = ("run", "job", "outcome", "attempt", "started", "duration", "session")
    working = ("run", "job", "queue", "attempt", "fetched", "session")
    print_rows(rows, columns=working if is_running else ended, output=output, empty="no runs")


def _running(connection: Connection, queue: str | None, count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in [queue] if queue else queue_names(connection):
        cursor = "0"
        for _ in range(PAGES_MAX):
            page = connection.store.run(connection.queues.running(name, cursor))
            rows += [
                {
                    "run": each.run_id,
                    "queue": name,
                    "job": each.envelope.template.job if each.envelope else None,
                    "attempt": each.attempt,
                    "fetched": moment(each.fetched_ms),
                    "session": each.session,
                }
                for each in page.items
            ]
            cursor = page.cursor
            if cursor == "0" or len(rows) >= count:
                break
    return rows[:count]


@runs.command("show")
@click.argument("run_id", metavar="RUN")
@config_options
@output_option
def runs_show(*, run_id: str, output: str, load_settings: LoadSettings) -> None:
    """Show one run: where it is and why, its progress, how its attempts ended, its result, its error.

    Of its arguments it shows the names only: any of them may be a secret. "forgotten" is a run whose line newer ones
    have pushed out of the history, while data on the runs below it and on its steps are still kept.

    \b
    Example:
      tenure runs show nightly-report@1795055400000
    """
    with connected(load_settings().settings) as connection:
        view = _look(connection, run_id)
        below = connection.store.run(Tallies(connection.keys).read(run_id))
        steps = connection.store.run(Tallies(connection.keys).steps(run_id))
    if view is None and below is None and not steps:
        raise TenureError(f"no run is called {run_id!r}, or its history is gone; `tenure runs list` shows the latest")
    own = {"run": run_id, "state": "forgotten"} if view is None else _record(view)
    record = own | family_record(below, steps)
    print_value(record, output="yaml" if output == "table" else output)


def _look(connection: Connection, run_id: str) -> RunView | None:
    """Return the data of a run: of one that ended a while ago too, one queue at a time to hold nobody up."""
    names = queue_names(connection)
    view: RunView | None = connection.store.run(connection.queues.show(run_id, names))
    if view is None or (view.state == "finished" and not view.history):
        for name in names:
            older = connection.store.run(connection.queues.show(run_id, [name], scan=COUNT_MAX))
            if older is not None and older.history:
                return older
    return view


def _record(view: RunView) -> dict[str, Any]:
    envelope = view.envelope
    record: dict[str, Any] = {
        "run": view.run_id,
        "state": view.state,
        "queue": view.queue,
        "job": envelope.template.job if envelope else next((each.job for each in view.history), None),
        "schedule": envelope.schedule if envelope else None,
        "nominal": moment(envelope.nominal_ms) if envelope else None,
        "arguments": sorted(envelope.template.args) if envelope else None,
        "limits": view.limits.split(";") if view.limits else None,
        "waits_for": _why_blocked(view),
        "progress": _stored(view.progress),
        "failed_attempts": view.attempts,
        "crashes": view.crashes,
        "interruptions": view.interrupts,
        "session": view.session,
        "due": moment(view.due_ms),
        "died": moment(view.died_ms),
        "error": mask(view.error),
        "parent": envelope.parent if envelope else None,
        "result": _stored(view.result),
        "history": [_history_row(view.queue, entry) for entry in view.history],
    }
    return {key: value for key, value in record.items() if value not in (None, "", {}, [])}


def _stored(body: bytes | None) -> Any:
    """Return the data a run left as JSON; a sentence in place of data that only a foreign hand can have written."""
    if not body:
        return None
    if is_deeper(body, JSON_DEPTH_MAX):
        return f"nested deeper than {JSON_DEPTH_MAX} levels, not shown: {len(body)} bytes"
    try:
        return read_json(body)
    except msgspec.DecodeError as error:
        return f"not shown: {error}"


def _why_blocked(view: RunView) -> str | None:
    if not view.waits_for:
        return None
    held = ", ".join(f"{run_id} in queue {queue}" for queue, run_id in view.holders)
    return f"concurrency key {view.waits_for}, held by {held or 'nobody any more: it starts soon'}"


for each in (cancel, requeue, set_priority):
    runs.add_command(each)


@click.command(cls=SectionedCommand)
@click.argument("job_name", metavar="JOB")
@click.argument("arguments", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--queue", "queue_name", help="Queue; default: the job's.")
@click.option("--priority", type=click.Choice(["high", "normal", "low"]), help="Priority; default: the job's.")
@click.option("--delay", help="Run it no sooner than after this time, such as 30s or 2h.")
@click.option("--id", "run_id", help="Identity of the run; enqueued once in an hour.")
@config_options
def enqueue(
    *,
    job_name: str,
    arguments: Sequence[str],
    queue_name: str | None,
    priority: str | None,
    delay: str | None,
    run_id: str | None,
    load_settings: LoadSettings,
) -> None:
    """Put one run of a job into its queue and print its id.

    A VALUE is read as JSON if it is JSON, else as text.

    \b
    Examples:
      tenure enqueue shell.command 'command=["make", "report"]'
      tenure enqueue identity.token_cleanup batch=100 --delay 5m
    """
    put_run(load_settings, job_name, arguments, queue=queue_name, priority=priority, delay=delay, run_id=run_id)


def put_run(
    load_settings: LoadSettings, job_name: str, arguments: Sequence[str], **options: Unpack[EnqueueOptions]
) -> None:
    """Put one run of a job into its queue, by the configuration, and print its id."""
    from supervisor.app.jobs import prepare_jobs
    from supervisor.store.producer.producer import Producer

    loaded = load_settings()
    prepare_jobs(loaded)
    args = parse_arguments(arguments)
    with connected(loaded.settings) as connection:
        producer = Producer(loaded.settings.redis, cluster=loaded.settings.cluster, open_store=lambda: connection.store)
        click.echo(producer.enqueue(job_name, args, **options))


def parse_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` words: a value is read as JSON if it is JSON, else as text.

    Raises:
        click.UsageError: a word that is none.
    """
    args: dict[str, Any] = {}
    for argument in arguments:
        name, sign, text = argument.partition("=")
        if not sign or not name.isidentifier():
            raise click.UsageError(f"{argument!r} is not NAME=VALUE, such as batch=100")
        try:
            args[name] = json.loads(text)
        except ValueError:
            args[name] = text
    return args
