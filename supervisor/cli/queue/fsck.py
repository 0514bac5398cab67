"""``tenure queue fsck``: consistency of queues."""

from __future__ import annotations

from typing import Any

import click

from supervisor.cli.cluster import ask, run
from supervisor.cli.connection import Connection, connected
from supervisor.cli.help import SectionedCommand
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import output_option, print_rows
from supervisor.cli.progress import progress
from supervisor.cli.queue.params import configured_queues
from supervisor.core.errors import EXIT_NO, EXIT_OK
from supervisor.operations import queues
from supervisor.store.queues.fsck import Fsck, FsckFinding


@click.command(cls=SectionedCommand)
@click.argument("names", metavar="[QUEUE]...", nargs=-1)
@click.option("--fix", "is_mending", is_flag=True, help="Repair what was found. Loses no run.")
@config_options
@output_option
def fsck(*, names: tuple[str, ...], is_mending: bool, output: str, load_settings: LoadSettings) -> int:
    """Verify that every run is in exactly one place, and that counters and limits are true. Safe while runs run.

    Exits with 3 when something is wrong, or with --fix when something is left that it could not mend.

    \b
    Examples:
      tenure queue fsck
      tenure queue fsck default --fix
    """
    with connected(load_settings().settings) as connection:
        known = ask(connection, queues.known(connection.keys, names, configured_queues(connection)))
        found = _check(connection, known, is_mending=is_mending)
    rows = [{"queue": each.queue, "what": each.what, "problem": each.problem, "done": each.remedy} for each in found]
    empty = f"nothing is wrong in {len(known)} queue{'' if len(known) == 1 else 's'}"
    columns = ("queue", "what", "problem", "done") if is_mending else ("queue", "what", "problem")
    print_rows(rows, columns=columns, output=output, empty=empty)
    return EXIT_OK if all(each.remedy for each in found) else EXIT_NO


def _check(connection: Connection, names: list[str], *, is_mending: bool) -> list[FsckFinding]:
    total = sum(_entries(connection, name) for name in names)
    with progress("reading", total) as tell:

        def send(call: Any) -> Any:
            return run(connection, call)

        check = Fsck(
            send,
            connection.keys,
            is_mending=is_mending,
            dead_cap=connection.settings.queues.dead,
            tell=lambda done: tell(min(done, total)),
        )
        return [fault for name in names for fault in check.queue(name)] + check.shared()


def _entries(connection: Connection, name: str) -> int:
    counts = ask(connection, queues.counts(connection.keys, name, [name]))
    return 2 * (queues.waiting(counts) + counts.running + counts.dead)
