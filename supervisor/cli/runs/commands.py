"""``tenure runs``: running and ended runs, and what they printed."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import click
import msgspec

from supervisor.cli.connection import Connection, cluster_options, connected
from supervisor.cli.help import SectionedGroup
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import is_table, list_options, moment, output_option, print_rows, print_value, say, span
from supervisor.cli.runs.changes import cancel, requeue, set_priority
from supervisor.core.errors import EXIT_FAILED, EXIT_NO, EXIT_OK
from supervisor.core.json_values import JSON_DEPTH_MAX, is_deeper, read_json
from supervisor.operations import runs as run_operations
from supervisor.operations.runs import AttemptLog, HistoryEntry, RunningRun, RunView, Tally, status_of
from supervisor.telemetry.masking import mask, mask_text

COUNT_MAX = 10_000
_ENDED_COLUMNS = ("run", "job", "outcome", "attempt", "started", "duration", "session")
_RUNNING_COLUMNS = ("run", "job", "queue", "attempt", "fetched", "session")


def history_row(queue: str, entry: HistoryEntry) -> dict[str, Any]:
    """Return one ended attempt."""
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
@cluster_options
@list_options
def runs_list(*, queue: str | None, is_running: bool, count: int, connection: Connection) -> int:
    """List attempts that ended, newest first.

    Exits with 1 when a queue cannot be read, such as for a key of another program in its place; the others are listed.

    \b
    Examples:
      tenure runs list --count 50
      tenure runs list --running
    """
    if is_running:
        working, is_whole = connection.ask_each_queue(run_operations.running, count=count, queue=queue)
        rows = [_running_row(each) for each in working]
    else:
        ended, is_whole = connection.ask_each_queue(run_operations.latest, count=count, queue=queue)
        rows = [history_row(*each) for each in ended]
    columns = _RUNNING_COLUMNS if is_running else _ENDED_COLUMNS
    print_rows(rows, columns=columns, empty="no runs" if is_whole else "")
    return EXIT_OK if is_whole else EXIT_FAILED


def _running_row(each: RunningRun) -> dict[str, Any]:
    return {
        "run": each.run_id,
        "queue": each.queue,
        "job": each.envelope.template.job if each.envelope else None,
        "attempt": each.attempt,
        "maybe_duplicate": each.envelope.maybe_duplicate if each.envelope else None,
        "fetched": moment(each.fetched_ms),
        "session": each.session,
    }


@runs.command("show")
@click.argument("run_id", metavar="RUN")
@cluster_options
@output_option
def runs_show(*, run_id: str, connection: Connection) -> None:
    """Show one run: where it is and why, its progress, how its attempts ended, its result, its error.

    Of its arguments it shows the names only: any of them may be a secret. "forgotten" is a run whose line newer ones
    have pushed out of the history, while data on the runs below it and on its steps are still kept.

    \b
    Example:
      tenure runs show nightly-report@1795055400000
    """
    found = connection.ask(run_operations.show, run_id, is_thorough=True)
    own = {"run": run_id, "state": "forgotten"} if found.view is None else _record(found.view)
    record = own | family_record(found.below, found.steps)
    print_value(record)


def _record(view: RunView) -> dict[str, Any]:
    envelope, status = view.envelope, status_of(view.run_id, view)
    failure = {"type": status.error_type, "message": status.error_message} if status.error_type else {}
    record: dict[str, Any] = {
        "run": view.run_id,
        "state": view.state,
        "queue": view.queue,
        "job": status.job or next((each.job for each in view.history), None),
        "outcome": status.outcome,
        "schedule": envelope.schedule if envelope else None,
        "nominal": moment(envelope.nominal_ms) if envelope else None,
        "maybe_duplicate": (envelope.maybe_duplicate or None) if envelope else None,
        "arguments": sorted(status.arguments),
        "limits": view.limits.split(";") if view.limits else None,
        "waits_for": _why_blocked(view),
        "progress": stored_value(view.progress),
        "failed_attempts": view.attempts,
        "crashes": view.crashes,
        "interruptions": view.interrupts,
        "session": view.session,
        "due": moment(view.due_ms),
        "died": moment(view.died_ms),
        "error": mask(view.error or failure),
        "after": envelope.after if envelope else None,
        "parent": envelope.parent if envelope else None,
        "result": stored_value(view.result),
        "history": [history_row(view.queue, entry) for entry in view.history],
    }
    return {key: value for key, value in record.items() if value not in (None, "", {}, [])}


def stored_value(body: bytes | None) -> Any:
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


def family_record(tally: Tally | None, steps: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the parts of a run's record that are about its children and steps; nothing where there are none."""
    record: dict[str, Any] = {}
    if tally is not None:
        record["below"] = _below(tally)
    if steps:
        record["steps"] = [_step(name, step) for name, step in steps.items()]
    return record


def _below(tally: Tally) -> dict[str, Any]:
    always = {"total", "remaining", *tally.outcomes}
    return {key: value for key, value in run_operations.tally_row(tally).items() if value or key in always}


def _step(name: str, step: dict[str, Any]) -> dict[str, Any]:
    shown = {
        "step": name,
        "status": step.get("status"),
        "attempt": step.get("attempt"),
        "ended": moment(step.get("ended_ms")),
        "duration_ms": step.get("duration_ms"),
        "result": mask(step.get("result"), items=sys.maxsize),
        "error": mask_text(str(step.get("error") or "")),
    }
    return {key: value for key, value in shown.items() if value not in (None, "")}


@runs.command()
@click.argument("run_id", metavar="RUN")
@click.option("-f", "--follow", is_flag=True, help="Continue with new output, until the run has ended.")
@click.option("--attempt", type=click.IntRange(1), help="Only of this attempt.")
@config_options
@output_option
def logs(*, run_id: str, follow: bool, attempt: int | None, load_settings: LoadSettings) -> int:
    """Show what the attempts of a run printed and logged: of each the first and last 32 KiB, secrets masked.

    By default the output of failed attempts is kept (log.runs), for a week, and that of one that runs. It has no output
    of programs that a job starts. Exits with 3 when there is none.

    \b
    Examples:
      tenure runs logs nightly-report@1795055400000
      tenure runs logs import-17 --follow
    """
    if follow and not is_table():
        raise click.UsageError("--follow prints text: give it without --output")
    last: list[AttemptLog] = []

    def tell(log: AttemptLog, text: str) -> None:
        if not last or last[0].number != log.number:
            say(f"--- attempt {log.attempt}, started {moment(log.started_ms)}")
        last[:] = [log]
        say(text.removesuffix("\n").expandtabs())

    with connected(load_settings().settings) as connection:
        if follow:
            with suppress(KeyboardInterrupt):  # how a person ends it, not a failure
                connection.ask(run_operations.follow_logs, run_id, tell, attempt=attempt)
        else:
            found = connection.ask(run_operations.logs, run_id, attempt=attempt)
            if not is_table():
                print_value([_log_record(log) for log in found])
                return EXIT_OK if found else EXIT_NO
            for log in found:
                tell(log, run_operations.text_after(log)[0])
    if not last:
        say(f"no output of run {run_id} is kept; the setting log.runs says of which attempts it is", err=True)
    return EXIT_OK if last else EXIT_NO


def _log_record(log: AttemptLog) -> dict[str, Any]:
    return {**msgspec.structs.asdict(log), "started_ms": moment(log.started_ms), "updated_ms": moment(log.updated_ms)}
