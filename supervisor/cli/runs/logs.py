"""``tenure runs logs``: what a run printed and logged."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click
import msgspec

from supervisor.cli.connection import connected
from supervisor.cli.help import SectionedCommand
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import is_table, moment, output_option, print_value, say
from supervisor.core.errors import EXIT_NO, EXIT_OK
from supervisor.operations import run_logs
from supervisor.operations.run_logs import AttemptLog


@click.command(cls=SectionedCommand)
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
                connection.ask(run_logs.follow, run_id, tell, attempt=attempt)
        else:
            found = connection.ask(run_logs.read, run_id, attempt=attempt)
            if not is_table():
                print_value([_record(log) for log in found])
                return EXIT_OK if found else EXIT_NO
            for log in found:
                tell(log, run_logs.text_after(log)[0])
    if not last:
        say(f"no output of run {run_id} is kept; the setting log.runs says of which attempts it is", err=True)
    return EXIT_OK if last else EXIT_NO


def _record(log: AttemptLog) -> dict[str, Any]:
    return {**msgspec.structs.asdict(log), "started_ms": moment(log.started_ms), "updated_ms": moment(log.updated_ms)}
