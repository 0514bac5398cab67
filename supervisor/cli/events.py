"""``tenure events``: past and current events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice

import click

from supervisor.cli.connection import Connection, cluster_options, moment_of_patience
from supervisor.cli.help import SectionedCommand
from supervisor.cli.options import DURATION
from supervisor.cli.output import moment, output_option, print_record, print_rows, say
from supervisor.clock import SystemClock
from supervisor.core.errors import StoreUnavailableError
from supervisor.core.events import LEVELS
from supervisor.operations import events as operations
from supervisor.operations.events import EVENT_ID, READ_MAX, KeptEvent

LISTEN_S = 1.0
COLUMNS = ("time", "level", "reason", "subject", "count", "note", "replica", "role")


@click.command(cls=SectionedCommand)
@click.option("-f", "--follow", is_flag=True, help="Continue with new events, until Ctrl-C.")
@click.option("--since", "since_s", type=DURATION, help="Only newer than this, such as 1h.  [default: all kept]")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1, READ_MAX),
    default=50,
    show_default=True,
    help="Limit of past events.",
)
@click.option("--reason", "reasons", multiple=True, metavar="REASON", help="Only these reasons; may be repeated.")
@click.option("--level", type=click.Choice(LEVELS), default=LEVELS[0], show_default=True, help="Least level shown.")
@click.option("--after", metavar="ID", default="", help="Only after the event with this id.")
@click.option(
    "--limit",
    "limit",
    type=click.IntRange(1),
    help="With --follow: exit after this many, past ones included.  [default: never]",
)
@cluster_options
@output_option
def events(
    *,
    follow: bool,
    since_s: float | None,
    count: int,
    reasons: tuple[str, ...],
    level: str,
    after: str,
    limit: int | None,
    connection: Connection,
) -> None:
    """Show events: leader changes, failures, refusals; oldest first.

    Equal events are shown once, with their count. Redis keeps the newest 10,000 or so (events.kept).

    \b
    Examples:
      tenure events --since 1h --level warning
      tenure events --follow --reason leader_acquired --reason leader_lost -o json
    """
    if after and not EVENT_ID.fullmatch(after):
        raise click.BadParameter("is no id of an event: `tenure events -o json` shows them", param_hint="--after")
    least = LEVELS.index(level)

    def is_wanted(kept: KeptEvent) -> bool:
        event = kept.event
        index = LEVELS.index(event.level) if event.level in LEVELS else 0
        return index >= least and (not reasons or event.reason in reasons)

    since_ms = 0 if since_s is None else max(0, SystemClock().wall_ms() - int(since_s * 1000))
    found = connection.ask(operations.read, after=after, since_ms=since_ms, count=count)
    rows = [_row(kept) for kept in found if is_wanted(kept)]
    if not follow:
        print_rows(rows, columns=COLUMNS, empty="no events")
        return
    fresh = (_row(kept) for kept in _added(connection, found.last_id) if is_wanted(kept))
    with suppress(KeyboardInterrupt):  # how a person ends it, not a failure
        for row in islice(chain(rows, fresh), limit):
            print_record(row, line=_line(row))


def _added(connection: Connection, last_id: str) -> Iterator[KeptEvent]:
    """Yield the events added after one, through outages of Redis."""
    is_away = False
    while True:
        try:
            entries = connection.store.listen(connection.keys.event_log, last_id, LISTEN_S)
        except StoreUnavailableError as error:
            if not is_away:
                say(f"tenure: {error}; waiting for it", err=True)
            is_away = True
            moment_of_patience()
            continue
        is_away = False
        if entries:
            last_id = entries[-1][0]
        yield from operations.listened(entries)


def _row(kept: KeptEvent) -> dict[str, object]:
    row = kept.row()
    first_ms, last_ms = row.pop("first_ms"), row.pop("last_ms")
    return {"time": moment(last_ms), "first": moment(first_ms), **row}


def _line(row: dict[str, object]) -> str:
    count = row["count"]
    times = f" x{count}" if isinstance(count, int) and count > 1 else ""
    subject = f" {row['subject']}" if row["subject"] else ""
    note = f": {row['note']}" if row["note"] else ""
    line = f"{row['time']}  {row['level']:<7} {row['reason']}{subject}{times}{note}  [{row['replica']} {row['role']}]"
    return line if line.isprintable() else "".join(each if each.isprintable() else "?" for each in line)
