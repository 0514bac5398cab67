"""``tenure schedule trigger``, ``pause``, ``resume`` and ``delete``."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import click

from supervisor.cli.cluster import (
    INSTANT,
    LABEL,
    checked_options,
    confirm,
    known_jobs,
    who,
    yes_option,
)
from supervisor.cli.connection import Connection, cluster_options, connected
from supervisor.cli.help import SectionedCommand
from supervisor.cli.options import DURATION, LoadSettings, config_options
from supervisor.cli.output import is_table, moment, output_option, print_outcome, print_rows, print_value, say
from supervisor.clock import SystemClock
from supervisor.core.errors import EXIT_FAILED, EXIT_NO, EXIT_OK
from supervisor.operations import schedule_control, schedules
from supervisor.operations.schedule_control import PauseCode, ResumeCode, TriggerCode
from supervisor.operations.schedules import ScheduleFilter

Labels = tuple[tuple[str, str], ...]

_label_option = click.option(
    "-l", "--label", "labels", multiple=True, type=LABEL, metavar="NAME=VALUE", help="Those with this label."
)
_all_option = click.option("--all", "everything", is_flag=True, help="Every schedule.")


@click.command(cls=SectionedCommand)
@click.argument("schedule_id", metavar="SCHEDULE")
@click.argument("arguments", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--key", help="The same key within 24 h is the same run.  [default: a fresh one]")
@click.option(
    "--overlap",
    type=click.Choice(["allow", "skip"]),
    default="allow",
    show_default=True,
    help="skip: not while an earlier run of it is unfinished.",
)
@config_options
@output_option
def trigger(
    *,
    schedule_id: str,
    arguments: tuple[str, ...],
    key: str | None,
    overlap: str,
    load_settings: LoadSettings,
) -> int:
    """Run a schedule now, beside its plan, and print the run's id. Works while it is paused or completed.

    NAME=VALUE replaces an argument of the schedule; a VALUE is read as JSON if it is JSON, else as text. Exits with 3
    when --overlap skip kept it from running.

    \b
    Examples:
      tenure schedule trigger nightly-report
      tenure schedule trigger nightly-report date=2026-11-20 --key rerun-2026-11-20
    """
    from supervisor.cli.runs.enqueueing import parse_arguments

    loaded = load_settings()
    given = parse_arguments(arguments)
    with connected(loaded.settings) as connection:
        jobs = functools.cache(lambda: known_jobs(connection, loaded))

        def check(job: str, args: Mapping[str, Any]) -> None:
            jobs().get(job).check(args)

        done = connection.ask(
            schedule_control.trigger,
            schedule_id,
            key=key,
            args=given,
            heeds_overlap=overlap == "skip",
            check=check if given else None,
            wall_ms=SystemClock().wall_ms(),
        )
    code, run_id = done.code, done.run_id
    if code is TriggerCode.SKIPPED:
        say(f"skipped: an earlier run of {schedule_id} is unfinished", err=True)
        if not is_table():
            print_value({"schedule": schedule_id, "run": None, "result": "skipped"})
        return EXIT_NO
    if code is TriggerCode.DUPLICATE and key is not None:
        say(f"note: key {key!r} was used within the last 24 h; this is its run", err=True)
    result = "duplicate" if code is TriggerCode.DUPLICATE else "triggered"
    print_outcome({"schedule": schedule_id, "run": run_id, "result": result}, line=run_id)
    return EXIT_OK


@click.command(cls=SectionedCommand)
@click.argument("ids", metavar="[SCHEDULE]...", nargs=-1)
@_label_option
@_all_option
@click.option("--reason", default="", help="For people; shown beside the schedule.")
@click.option("--for", "for_s", type=DURATION, help="Resume by itself after this time, such as 2h.")
@click.option(
    "--until",
    "until_ms",
    type=INSTANT,
    help="Resume by itself then, such as 2027-01-02T08:00:00+01:00; in UTC without an offset.",
)
@yes_option
@config_options
@output_option
def pause(
    *,
    ids: tuple[str, ...],
    labels: Labels,
    everything: bool,
    reason: str,
    for_s: float | None,
    until_ms: int | None,
    yes: bool,
    load_settings: LoadSettings,
) -> int:
    """Stop scheduled starts, static or dynamic. Running jobs, triggers and backfills go on.

    The pause survives reloads and deploys. Runs due meanwhile are not made up for, unless the schedule has
    `on_resume: catchup`. A pause that ends by itself does not end that of a definition (`paused: true`). Of
    schedules that --label or --all selects it leaves those as they are that are paused for longer.

    \b
    Examples:
      tenure schedule pause nightly-report --reason 'database moves' --for 2h
      tenure schedule pause --label team=billing --yes
    """
    if for_s is not None and until_ms is not None:
        raise click.UsageError("give --for or --until, not both")
    which = ScheduleFilter(ids=ids, labels=dict(labels), everything=everything)
    with checked_options():
        terms = schedule_control.PauseTerms(by=who(), reason=reason, for_s=for_s, until_ms=until_ms)
    with connected(load_settings().settings) as connection:
        if until_ms is not None and until_ms <= connection.ask(schedules.now_ms):
            raise click.UsageError(f"--until {moment(until_ms)} has passed; name a later instant, or --for 2h")
        names, _ = connection.ask(schedules.selected, which)
        if not ids and names:
            confirm(f"Pause {len(names)} schedules?", yes=yes)
        done = connection.ask(schedule_control.pause, names, terms, is_selected=not ids)
        rows = [
            {"schedule": each.schedule, "result": each.code.value.lower(), "until": moment(each.until_ms)}
            for each in done
        ]
        _tell_unknown(connection, rows)
    if kept := sum(each.code is PauseCode.KEPT for each in done):
        say(f"note: {kept} of {len(done)} were paused for longer, and still are", err=True)
    print_rows(rows, columns=("schedule", "result", "until"), empty="no schedule matches")
    return _code(rows)


@click.command(cls=SectionedCommand)
@click.argument("ids", metavar="[SCHEDULE]...", nargs=-1)
@_label_option
@_all_option
@yes_option
@cluster_options
@output_option
def resume(*, ids: tuple[str, ...], labels: Labels, everything: bool, yes: bool, connection: Connection) -> int:
    """End a pause, whoever made it: the schedule goes on with its next due time.

    --label and --all end those of definitions (`paused: true`), plugins and other people too; how many there are of
    each is told.

    \b
    Examples:
      tenure schedule resume nightly-report
      tenure schedule resume --all --yes
    """
    words = {ResumeCode.RESUMED: "resumed", ResumeCode.RUNNING: "was not paused", ResumeCode.UNKNOWN: "unknown"}
    which = ScheduleFilter(ids=ids, labels=dict(labels), everything=everything)
    names, _ = connection.ask(schedules.selected, which)
    pauses = "" if ids or not names else _pauses(connection, names)
    if not ids and names:
        confirm(f"Resume {len(names)} schedules ({pauses or 'none is paused'})?", yes=yes)
    done = connection.ask(schedule_control.resume, names)
    if pauses:
        say(f"note: of {len(names)} schedules {pauses}", err=True)
    rows = [{"schedule": name, "result": words[code]} for name, code in done]
    _tell_unknown(connection, rows)
    print_rows(rows, columns=("schedule", "result"), empty="no schedule matches")
    return _code(rows)


@click.command(cls=SectionedCommand)
@click.argument("ids", metavar="SCHEDULE...", nargs=-1, required=True)
@click.option("--revision", type=click.IntRange(1), help="Only if it is at this revision.")
@yes_option
@cluster_options
@output_option
def delete(*, ids: tuple[str, ...], revision: int | None, yes: bool, connection: Connection) -> int:
    """Delete dynamic schedules: no more fires, runs in their buffer are dropped, running jobs end normally.

    For 24 hours, adding one again restores its counters and its pause. A static schedule goes when its configuration
    no longer names it.

    \b
    Examples:
      tenure schedule delete tenant-4711-report
      tenure schedule delete tenant-4711-report --revision 3 --yes
    """
    names = list(dict.fromkeys(ids))
    confirm(f"Delete {names[0] if len(names) == 1 else f'{len(names)} schedules'}?", yes=yes)
    done = connection.ask(schedule_control.delete, [(name, revision) for name in names])
    rows = [{"schedule": each.schedule, "result": "deleted" if each.is_gone else each.why} for each in done]
    print_rows(rows, columns=("schedule", "result"), empty="nothing")
    return EXIT_OK if all(row["result"] == "deleted" for row in rows) else EXIT_FAILED


def _pauses(connection: Connection, names: Sequence[str]) -> str:
    """Return how many of ``names`` are paused, and how many of them by whom; empty for none."""
    chosen, me = frozenset(names), who()
    found = connection.ask(schedules.browse, lambda each: each.pause is not None and each.id in chosen)
    authors = [each.pause.by for each in found if each.pause is not None]
    counts = {
        "you": authors.count(me),
        "definitions": authors.count("definition"),
        "failures in a row": authors.count("tenure"),
        "plugins": sum(author.startswith("plugin ") for author in authors),
    }
    counts["others"] = len(authors) - sum(counts.values())
    told = ", ".join(f"{count} by {author}" for author, count in counts.items() if count)
    return f"{len(authors)} paused: {told}" if authors else ""


def _tell_unknown(connection: Connection, rows: list[dict[str, Any]]) -> None:
    unknown = [row["schedule"] for row in rows if row["result"] == "unknown"]
    for name in unknown[:3]:
        say(f"tenure: {connection.unknown_message(name)}", err=True)


def _code(rows: list[dict[str, Any]]) -> int:
    return EXIT_FAILED if any(row["result"] == "unknown" for row in rows) else EXIT_OK
