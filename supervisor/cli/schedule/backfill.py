"""``tenure schedule backfill``: run due times of a schedule's past."""

from __future__ import annotations

import click

from supervisor.cli.cluster import INSTANT, LAST_INSTANT, confirm, who, yes_option
from supervisor.cli.connection import Connection, connected, moment_of_patience
from supervisor.cli.help import SectionedCommand
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import is_table, moment, output_option, print_outcome, print_rows, print_value, progress, say
from supervisor.cli.schedule.format import backfill_row
from supervisor.core.calendars.moments import Moment
from supervisor.core.errors import EXIT_FAILED, EXIT_OK
from supervisor.core.schedules.triggers import after_completion_ms
from supervisor.operations import backfills, schedules
from supervisor.operations.backfills import OVERLAPS, REMEMBERED_MAX, BackfillPlan, BackfillState
from supervisor.operations.backfills import Request as BackfillRequest

_NOT_PLANNED = "a schedule that is due after the end of a run has no due times in the past to backfill"
_LIST_COLUMNS = ("backfill", "schedule", "state", "from", "to", "enqueued", "of", "skipped", "updated", "note")


@click.command(cls=SectionedCommand)
@click.argument("schedule_id", metavar="[SCHEDULE]", required=False)
@click.option(
    "--from",
    "from_ms",
    type=INSTANT,
    help="First instant, included: 2026-11-01T06:00+09:00, -2d, or 2026-11-01, a day in UTC.",
)
@click.option(
    "--to",
    "to_ms",
    type=LAST_INSTANT,
    help="Last instant, included; a day (in UTC) is meant to its end.  [default: now]",
)
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    default="allow",
    show_default=True,
    help="buffer_all: one after the other. skip: not those for which an earlier run is unfinished.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, REMEMBERED_MAX),
    default=REMEMBERED_MAX,
    show_default=True,
    help="Limit of runs; the oldest are taken.",
)
@click.option("--force", is_flag=True, help="Include due times that have run or have no record; ids end in #n.")
@click.option("--dry-run", is_flag=True, help="Only list the runs.")
@click.option("--no-wait", is_flag=True, help="Do not follow the progress.")
@click.option("--list", "is_list", is_flag=True, help="List backfills of the last seven days.")
@click.option("--cancel", "cancelled", metavar="ID", help="Stop a backfill. What it enqueued stays.")
@yes_option
@config_options
@output_option
def backfill(
    *,
    schedule_id: str | None,
    from_ms: int | None,
    to_ms: int | None,
    overlap: str,
    limit: int,
    force: bool,
    dry_run: bool,
    no_wait: bool,
    is_list: bool,
    cancelled: str | None,
    yes: bool,
    load_settings: LoadSettings,
) -> int:
    """Run a schedule for due times that have passed: each at most once, under the id that the plan would have used.

    The leader enqueues them behind everything that is due now. Ctrl-C stops following, not the backfill. Days, and
    instants without an offset, are in UTC, whatever the zone of the schedule; the first and last due time are told.

    \b
    Examples:
      tenure schedule backfill nightly-report --from 2026-11-01 --to 2026-11-07 --dry-run
      tenure schedule backfill nightly-report --from -7d --overlap buffer_all
      tenure schedule backfill --list
      tenure schedule backfill --cancel 3f2a9c01
    """
    asked = [bool(schedule_id), is_list, bool(cancelled)]
    if sum(asked) != 1 or (schedule_id and from_ms is None):
        raise click.UsageError("give SCHEDULE and --from, or --list, or --cancel ID")
    with connected(load_settings().settings) as connection:
        if is_list:
            return _list(connection)
        if cancelled:
            return _cancel(connection, cancelled)
        assert schedule_id is not None
        assert from_ms is not None
        until_ms = connection.ask(schedules.now_ms) if to_ms is None else to_ms
        if until_ms < from_ms:
            raise click.UsageError(f"--to {moment(until_ms)} lies before --from {moment(from_ms)}")
        plan = connection.ask(
            backfills.plan, schedule_id, from_ms=from_ms, until_ms=until_ms, limit=limit, is_forced=force
        )
        if after_completion_ms(plan.definition) is not None:
            say(f"note: {_NOT_PLANNED}", err=True)
        if dry_run:
            return _dry_run(plan)
        _warn(plan, until_ms)
        _tell_range(plan)
        if not plan.count:
            return _nothing(len(plan.runs) + plan.skipped)
        confirm(f"Enqueue up to {plan.count} runs of {schedule_id}?", yes=yes or plan.count == 1)
        request = BackfillRequest(from_ms=from_ms, until_ms=until_ms, overlap=overlap, by=who(), at_ms=until_ms)
        name = connection.ask(backfills.add, schedule_id, request, limit=plan.count, is_forced=force)
        if no_wait:
            return _asked(name, schedule_id, plan.count)
        return _follow(connection, name, plan.count)


def _warn(plan: BackfillPlan, until_ms: int) -> None:
    if plan.unknown:
        say(
            f"note: {plan.unknown} due times are left out: too long ago to know whether they ran; --force runs them",
            err=True,
        )
    last, mark_ms = plan.last, plan.known.mark_ms
    if not last.is_last:
        say(f"note: the limit ends it at {moment(last.cursor_ms)}; more would follow", err=True)
    elif until_ms > mark_ms:
        say(f"note: due times after {moment(mark_ms)} are left to the schedule, which has not decided them", err=True)


def _tell_range(plan: BackfillPlan) -> None:
    """Name the first and last due time: a day in UTC is not that of the schedule's zone."""
    taken = [each.nominal_ms for each in plan.runs if not each.is_left_out]
    times = taken or [each.nominal_ms for each in plan.runs]
    if times:
        ends = dict.fromkeys((min(times), max(times)))
        told = " to ".join(_both(each, plan.definition.timezone) for each in ends)
        say(f"note: {'due' if taken else 'left out'}: {told}", err=True)


def _both(at_ms: int, timezone: str) -> str:
    local = "" if timezone == "UTC" else f" ({Moment(at_ms, timezone).iso()} in {timezone})"
    return f"{moment(at_ms)}{local}"


def _asked(name: str, schedule: str, limit: int) -> int:
    print_outcome({"backfill": name, "schedule": schedule, "limit": limit}, line=name)
    return EXIT_OK


def _nothing(left_out: int) -> int:
    value = {"backfill": None, "enqueued": 0, "skipped": left_out}
    print_outcome(value, line=f"nothing to run: {left_out} due times ran or are left out")
    return EXIT_OK


def _dry_run(plan: BackfillPlan) -> int:
    rows = [{"nominal": moment(each.nominal_ms), "run": each.run_id, "does": each.effect} for each in plan.runs]
    print_rows(rows, columns=("nominal", "run", "does"), empty="nothing to run")
    known = plan.skipped - plan.unknown
    say(f"{len(rows)} listed, {known} known to have run or waiting, {plan.unknown} too long ago to know", err=True)
    return EXIT_OK


def _follow(connection: Connection, name: str, total: int) -> int:
    try:
        with progress(f"backfill {name}", total) as advance:
            while True:
                now = connection.ask(backfills.show, name)
                advance(min(now.enqueued + now.skipped, total))
                if now.state is not BackfillState.ACTIVE:
                    break
                moment_of_patience()
    except KeyboardInterrupt:
        say(f"\nit goes on; stop it with: tenure schedule backfill --cancel {name}", err=True)
        return EXIT_OK
    if is_table():
        note = f": {now.note}" if now.note else ""
        say(f"{now.state.value}: {now.enqueued} enqueued, {now.skipped} left out{note}")
    else:
        print_value(backfill_row(now, connection.ask(schedules.now_ms)))
    return EXIT_OK if now.state is BackfillState.DONE else EXIT_FAILED


def _list(connection: Connection) -> int:
    now_ms = connection.ask(schedules.now_ms)
    rows = [backfill_row(each, now_ms) for each in connection.ask(backfills.remembered)]
    print_rows(rows, columns=_LIST_COLUMNS, empty="no backfill within seven days")
    return EXIT_OK


def _cancel(connection: Connection, name: str) -> int:
    stopped = connection.ask(backfills.cancel, name)
    if stopped.state is BackfillState.CANCELLED:
        say(f"cancelled {name} after {stopped.enqueued} runs, which stay enqueued")
    else:
        say(f"{name} had ended: {stopped.state.value}, {stopped.enqueued} enqueued")
    return EXIT_OK
