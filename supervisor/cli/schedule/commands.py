"""``tenure schedule``: what there is, and when it is due; commands that change it are in the files beside this one."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import click

from supervisor.cli.cluster import INSTANT, LABEL
from supervisor.cli.connection import Connection, cluster_options, connected
from supervisor.cli.help import SectionedGroup
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import (
    distance,
    is_table,
    list_options,
    moment,
    output_option,
    print_rows,
    print_value,
    say,
    span,
)
from supervisor.cli.schedule.apply import apply
from supervisor.cli.schedule.backfill import backfill
from supervisor.cli.schedule.control import delete, pause, resume, trigger
from supervisor.cli.schedule.format import COLUMNS, inspection_value, record_row, trigger_words
from supervisor.clock import SystemClock
from supervisor.core.errors import ConfigError, TenureError
from supervisor.core.jobs.profile_policies import DEFAULT_PROFILE
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.triggers import after_completion_ms
from supervisor.operations import backfills, due_times, schedules
from supervisor.operations.due_times import DueTime
from supervisor.operations.schedules import Record
from supervisor.settings.sections.models import Settings

NEXT_MAX = 10_000
_NEXT_SHOWN = 5
_TIME_COLUMNS = ("nominal", "local", "fire", "in")

_count_option = click.option(
    "-n", "--count", type=click.IntRange(1, NEXT_MAX), default=5, show_default=True, help="How many."
)
_from_option = click.option(
    "--from", "from_ms", type=INSTANT, help="Count from this instant; in UTC without an offset.  [default: now]"
)


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


@schedule.command("next")
@click.argument("schedule_id", metavar="SCHEDULE")
@_count_option
@_from_option
@cluster_options
@output_option
def schedule_next(*, schedule_id: str, count: int, from_ms: int | None, connection: Connection) -> None:
    """Show when a schedule is due next, computed by the code that fires it.

    \b
    Examples:
      tenure schedule next nightly-report --count 10
      tenure schedule next nightly-report --from 2027-03-27
    """
    found, definition, due = connection.ask(due_times.upcoming, schedule_id, count=count, from_ms=from_ms)
    rows = [_row(schedule_id, each, found.now_ms) for each in due]
    if found.record is not None and found.record.pause is not None:
        say(f"note: {schedule_id} is paused; these times pass without a run until it is resumed", err=True)
    empty = "is never due again"
    if delay_ms := after_completion_ms(definition):
        delay = span(delay_ms / 1000)
        empty = f"is due {delay} after a run of it has ended"
        if rows:
            say(f"note: it is also due {delay} after a run of it has ended", err=True)
    if definition.after is not None:
        empty = f"is due {trigger_words(definition)}"
    print_rows(rows, columns=_TIME_COLUMNS, empty=f"{schedule_id} {empty}")


@schedule.command()
@click.argument("schedule_id", metavar="[SCHEDULE]", required=False)
@click.option("--cron", help="An expression, instead of a schedule that exists.")
@click.option("--every", help="An interval, instead of a schedule that exists.")
@click.option("--timezone", default=None, help="IANA zone of --cron.  [default: UTC]")
@click.option("-f", "--file", "file", type=click.Path(path_type=Path, allow_dash=True), help="A file of schedules.")
@_count_option
@_from_option
@config_options
@output_option
def preview(
    *,
    schedule_id: str | None,
    cron: str | None,
    every: str | None,
    timezone: str | None,
    file: Path | None,
    count: int,
    from_ms: int | None,
    load_settings: LoadSettings,
) -> None:
    """Show when something would be due that need not be saved yet: an expression, an interval, or a file.

    \b
    Examples:
      tenure schedule preview --cron '30 2 * * *' --timezone Europe/Berlin --from 2027-03-27
      tenure schedule preview --every 90m
      tenure schedule preview -f schedules.yaml
    """
    given = [
        name for name, value in (("SCHEDULE", schedule_id), ("--cron", cron), ("--every", every), ("-f", file)) if value
    ]
    if not given or (len(given) > 1 and set(given) != {"SCHEDULE", "-f"}):
        raise click.UsageError("give one of SCHEDULE, --cron, --every and -f FILE")
    if file is None and schedule_id:
        with connected(load_settings().settings) as connection:
            definitions = [connection.ask(schedules.inspect, schedule_id)[1]]
    elif file is not None:
        definitions = [each for each in _from_file(file, load_settings().settings) if schedule_id in {None, each.id}]
    else:
        timing = {"cron": cron, "every": every, "timezone": timezone}
        definitions = [due_times.unsaved(timing, where="the command line")]
    now_ms = SystemClock().wall_ms()
    rows: list[dict[str, Any]] = []
    for definition in definitions:
        due = islice(due_times.due_times(definition, from_ms or now_ms), count)
        rows += [_row(definition.id, each, now_ms) for each in due]
    columns = _TIME_COLUMNS if len(definitions) == 1 else ("schedule", *_TIME_COLUMNS)
    print_rows(rows, columns=columns, empty="never due")


@schedule.command()
@click.argument("subject", metavar="SCHEDULE|EXPRESSION")
@click.option("--timezone", default=None, help="IANA zone of an expression.  [default: UTC]")
@config_options
@output_option
def explain(*, subject: str, timezone: str | None, load_settings: LoadSettings) -> None:
    """Describe in words when a schedule or a cron expression is due, and its pitfalls.

    \b
    Examples:
      tenure schedule explain nightly-report
      tenure schedule explain '0 3 1 * MON' --timezone Europe/Berlin
    """
    if " " in subject.strip() or subject.startswith("@"):
        definition = due_times.unsaved({"cron": subject, "timezone": timezone}, where="the command line")
        said = due_times.explained(definition, now_ms=SystemClock().wall_ms())
    else:
        settings = load_settings().settings
        with connected(settings) as connection:
            definition, said = connection.ask(due_times.explain, subject)
        said.sentences.extend(_hook_sentences(definition, settings))
    if not is_table():
        print_value({"sentences": said.sentences, "notes": said.notes})
        return
    for sentence in said.sentences:
        say(sentence)
    for note in said.notes:
        say(f"note: {note}")


def _row(schedule: str, due: DueTime, now_ms: int) -> dict[str, Any]:
    return {
        "schedule": schedule,
        "nominal_ms": due.nominal_ms,
        "nominal": moment(due.nominal_ms),
        "local": due.local,
        "fire": moment(due.fire_ms),
        "in": distance(due.fire_ms, now_ms),
    }


def _from_file(file: Path, settings: Settings) -> tuple[ScheduleDef, ...]:
    from supervisor.cli.schedule.apply import read_raw
    from supervisor.settings.schedules.files import read_entries

    entries = read_entries(read_raw(file), name=str(file))
    if entries.problems:
        raise ConfigError(entries.problems)
    return due_times.validated(entries.schedules, where=str(file), settings=settings)


def _hook_sentences(definition: ScheduleDef, settings: Settings) -> list[str]:
    """Return the hooks of its profile in words, by this configuration."""
    from supervisor.settings.schedules.hook_sources import UnusableHookError, find_hook, known_hooks, points_of

    name = definition.template.profile or DEFAULT_PROFILE
    profile = settings.profiles.get(name)
    if profile is None:
        return [f"The configuration here has no profile {name}, so its other hooks are not known."]
    try:
        known = known_hooks(settings)
        hooks = [find_hook(entry.rpartition("/")[2], known) for entry in dict.fromkeys(profile.hooks.enabled)]
    except (TenureError, UnusableHookError) as error:
        return [f"Its hooks cannot be looked up here: {error}."]
    found = []
    for hook in {each.name: each for each in hooks if not each.is_check}.values():
        points = points_of(profile.hooks, hook)
        found += [f"A worker asks {hook.name} at {', '.join(points)}."] if points else []
    return found


for _command in (trigger, pause, resume, backfill, apply, delete):
    schedule.add_command(_command)
