"""``tenure schedule``: list and show; the other commands of the group are in the files beside this one."""

from __future__ import annotations

from itertools import islice

import click

from supervisor.cli.cluster import LABEL
from supervisor.cli.connection import Connection, cluster_options
from supervisor.cli.help import SectionedGroup
from supervisor.cli.output import list_options, output_option, print_rows, print_value
from supervisor.cli.schedule.apply import apply
from supervisor.cli.schedule.backfill import backfill
from supervisor.cli.schedule.control import delete, pause, resume, trigger
from supervisor.cli.schedule.format import COLUMNS, inspection_value, record_row
from supervisor.cli.schedule.times import explain, next_command, preview
from supervisor.core.errors import TenureError
from supervisor.operations import backfills, due_times, schedules
from supervisor.operations.schedules import Record

_NEXT_SHOWN = 5


@click.group(cls=SectionedGroup)
def schedule() -> None:
    """List, explain and control schedules.

    Static schedules come from the configuration of the replicas, dynamic ones from `tenure schedule apply`. Both can be
    paused, triggered and backfilled; only dynamic ones can be changed or deleted here.
    """


@schedule.command("list")
@click.option("-l", "--label", "labels", multiple=True, type=LABEL, metavar="NAME=VALUE", help="Only with this label.")
@click.option("--prefix", default="", help="Only ids that begin so.")
@click.option("--paused", "is_paused", is_flag=True, help="Only paused ones.")
@click.option("--kind", type=click.Choice(["static", "dynamic"]), help="Only of this kind.")
@cluster_options
@list_options
def schedule_list(
    *, labels: tuple[tuple[str, str], ...], prefix: str, is_paused: bool, kind: str | None, connection: Connection
) -> None:
    """List the schedules that the cluster runs.

    \b
    Examples:
      tenure schedule list
      tenure schedule list --paused --label team=billing
      tenure schedule list --prefix reports/ -o json
    """

    def is_shown(record: Record) -> bool:
        return (
            record.id.startswith(prefix)
            and (not is_paused or record.pause is not None)
            and (kind is None or record.is_dynamic == (kind == "dynamic"))
            and schedules.has_labels(record, dict(labels))
        )

    now_ms = connection.ask(schedules.now_ms)
    rows = [record_row(each, now_ms) for each in connection.ask(schedules.browse, is_shown)]
    print_rows(rows, columns=COLUMNS, empty="no schedules")


@schedule.command("show")
@click.argument("schedule_id", metavar="SCHEDULE")
@cluster_options
@output_option
def schedule_show(*, schedule_id: str, connection: Connection) -> None:
    """Show one schedule: definition, next fires, decisions with reasons, pause, unfinished and waiting runs.

    \b
    Example:
      tenure schedule show nightly-report
    """
    found = connection.ask(schedules.read, schedule_id)
    requests = connection.ask(backfills.remembered, schedule_id)
    assert found.record is not None
    upcoming: list[int] = []
    if found.record.pause is None:
        try:
            upcoming = [due.nominal_ms for due in islice(due_times.coming(found), _NEXT_SHOWN)]
        except (TenureError, ValueError):
            upcoming = []  # the status says why
    value = inspection_value(found, requests, upcoming)
    print_value(value)


for _command in (next_command, preview, explain, trigger, pause, resume, backfill, apply, delete):
    schedule.add_command(_command)
