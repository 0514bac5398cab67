"""``tenure schedule next``, ``preview`` and ``explain``: when it is due, by the code that fires it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from supervisor.cli.cluster import INSTANT
from supervisor.cli.connection import Connection, cluster_options, connected
from supervisor.cli.help import SectionedCommand
from supervisor.cli.options import LoadSettings, config_options, fail
from supervisor.cli.output import distance, is_table, moment, output_option, print_rows, print_value, say, span
from supervisor.cli.schedule.format import trigger_words
from supervisor.clock import SystemClock
from supervisor.core.errors import ConfigError, TenureError
from supervisor.core.jobs.profile_policies import DEFAULT_PROFILE
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.catchup import next_fire
from supervisor.operations import followers, schedules
from supervisor.operations.schedules import Inspection, ScheduleState
from supervisor.settings.sections.models import Settings

NEXT_MAX = 10_000
_COLUMNS = ("nominal", "local", "fire", "in")
_SECOND_MAX = 200

_count_option = click.option(
    "-n", "--count", type=click.IntRange(1, NEXT_MAX), default=5, show_default=True, help="How many."
)
_from_option = click.option("--from", "from_ms", type=INSTANT, help="Count from this instant.  [default: now]")


@click.command("next", cls=SectionedCommand)
@click.argument("schedule_id", metavar="SCHEDULE")
@_count_option
@_from_option
@cluster_options
@output_option
def next_command(*, schedule_id: str, count: int, from_ms: int | None, connection: Connection) -> None:
    """Show when a schedule is due next, computed by the code that fires it.

    \b
    Examples:
      tenure schedule next nightly-report --count 10
      tenure schedule next nightly-report --from 2027-03-27
    """
    found, definition = connection.ask(schedules.inspect, schedule_id)
    assert found.record is not None
    if from_ms is None:
        rows = coming_rows(found, count=count)
    else:
        rows = due_rows(definition, after_ms=from_ms, now_ms=found.now_ms, count=count)
    if found.record.pause is not None:
        say(f"note: {schedule_id} is paused; these times pass without a run until it is resumed", err=True)
    empty = "is never due again"
    if delay_ms := _after_completion_ms(definition):
        delay = span(delay_ms / 1000)
        empty = f"is due {delay} after a run of it has ended"
        if rows:
            say(f"note: it is also due {delay} after a run of it has ended", err=True)
    if definition.after is not None:
        empty = f"is due {trigger_words(definition)}"
    print_rows(rows, columns=_COLUMNS, empty=f"{schedule_id} {empty}")


@click.command(cls=SectionedCommand)
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
        definitions = [_unsaved(cron=cron, every=every, timezone=timezone)]
    now_ms = SystemClock().wall_ms()
    rows: list[dict[str, Any]] = []
    for definition in definitions:
        rows += due_rows(definition, after_ms=from_ms or now_ms, now_ms=now_ms, count=count)
    columns = _COLUMNS if len(definitions) == 1 else ("schedule", *_COLUMNS)
    print_rows(rows, columns=columns, empty="never due")


@click.command(cls=SectionedCommand)
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
    from supervisor.core.schedules.lints import calendar_notes, lints, sentences

    others, awaited = 0, []
    now_ms = SystemClock().wall_ms()
    if " " in subject.strip() or subject.startswith("@"):
        definition = _unsaved(cron=subject, every=None, timezone=timezone)
    else:
        with connected(load_settings().settings) as connection:
            found, definition = connection.ask(schedules.inspect, subject)
            assert found.record is not None
            now_ms = found.now_ms
            awaited = connection.ask(followers.awaited_words, found, definition)
            if found.record.next_ms is not None and found.record.next_ms > 0:
                others = sum(
                    name != subject
                    for name in connection.ask(schedules.due_together, found.record.next_ms, limit=_SECOND_MAX + 1)
                )
    notes = [*lints(definition, now_ms=now_ms), *calendar_notes(definition, now_ms=now_ms)]
    value = {"sentences": sentences(definition), "notes": notes}
    if definition.id == subject:
        value["sentences"] += awaited
        value["sentences"] += profile_sentences(definition, load_settings().settings)
        value["notes"] += kept_back(definition, now_ms=now_ms)
    if others:
        more = "at least " if others >= _SECOND_MAX else ""
        noun = "schedule is" if others == 1 else "schedules are"
        value["notes"].append(
            f"{more}{others} other {noun} due in the same second as its next run; jitter or H spreads them"
        )
    if not is_table():
        print_value(value)
        return
    for sentence in value["sentences"]:
        say(sentence)
    for note in value["notes"]:
        say(f"note: {note}")


def coming_rows(found: Inspection, *, count: int) -> list[dict[str, Any]]:
    """Return the next ``count`` times at which a stored schedule is due, no more than its ``max_runs`` leaves."""
    assert found.record is not None
    definition, counters = found.record.definition(), ScheduleState.parse(found.state).counters
    if counters.completed_ms or found.record.invalid:
        return []
    if definition.max_runs is not None:
        count = min(count, max(0, definition.max_runs - counters.fired))
    return due_rows(definition, after_ms=found.now_ms, now_ms=found.now_ms, count=count)


def _after_completion_ms(definition: ScheduleDef) -> int | None:
    delays = [definition.after_completion_ms, *(each.after_completion_ms for each in definition.when)]
    return min((delay for delay in delays if delay is not None), default=None)


def due_rows(definition: ScheduleDef, *, after_ms: int, now_ms: int, count: int) -> list[dict[str, Any]]:
    """Return the next ``count`` times at which ``definition`` is due after ``after_ms``."""
    from supervisor.core.calendars.moments import Moment
    from supervisor.core.schedules.triggers import trigger_of

    trigger = trigger_of(definition)
    rows: list[dict[str, Any]] = []
    planned = next_fire(definition, trigger, after_ms)
    while planned is not None and len(rows) < count:
        rows.append(
            {
                "schedule": definition.id,
                "nominal_ms": planned.nominal_ms,
                "nominal": moment(planned.nominal_ms),
                "local": Moment(planned.nominal_ms, definition.timezone).iso(),
                "fire": moment(planned.fire_ms),
                "in": distance(planned.fire_ms, now_ms),
            }
        )
        planned = next_fire(definition, trigger, planned.nominal_ms)
    return rows


def _unsaved(*, cron: str | None, every: str | None, timezone: str | None) -> ScheduleDef:
    entry = {"job": "preview", "cron": cron, "every": every, "timezone": timezone}
    (definition,) = _validated({"preview": {key: value for key, value in entry.items() if value}}, "the command line")
    return definition


def _from_file(file: Path, settings: Settings) -> tuple[ScheduleDef, ...]:
    from supervisor.cli.schedule.apply import read_raw
    from supervisor.settings.schedules.files import read_entries

    entries = read_entries(read_raw(file), name=str(file))
    if entries.problems:
        fail(ConfigError(entries.problems))
    return _validated(entries.schedules, str(file), settings)


def _validated(entries: Any, where: str, settings: Settings | None = None) -> tuple[ScheduleDef, ...]:
    """Return the definitions in ``entries``, of whatever jobs they are: here only their times matter."""
    from supervisor.operations.jobs import AnyJob
    from supervisor.settings.schedules.definitions import validate_schedules

    profiles, calendars = ({}, {}) if settings is None else (settings.profiles, settings.calendars)
    validated = validate_schedules(entries, known=AnyJob(), where=where, profiles=profiles, calendars=calendars)
    if validated.problems:
        fail(ConfigError(validated.problems))
    return validated.definitions


LOOKED_AT_MAX = 100
NAMED_MAX = 3


def profile_sentences(definition: ScheduleDef, settings: Settings) -> list[str]:
    """Return hooks and checks in words: checks as Redis keeps them with ``definition``, hooks by this configuration."""
    from supervisor.core.schedules import checks as fire_checks
    from supervisor.settings.schedules.hook_sources import UnusableHookError, find_hook, known_hooks, points_of

    name = definition.template.profile or DEFAULT_PROFILE
    found = [f"Goes by profile {name}."] if definition.template.profile else []
    found += fire_checks.sentences(definition.checks)
    profile = settings.profiles.get(name)
    if profile is None:
        return [*found, f"The configuration here has no profile {name}, so its other hooks are not known."]
    try:
        known = known_hooks(settings)
        hooks = [find_hook(entry.rpartition("/")[2], known) for entry in dict.fromkeys(profile.hooks.enabled)]
    except (TenureError, UnusableHookError) as error:
        return [*found, f"Its hooks cannot be looked up here: {error}."]
    for hook in {each.name: each for each in hooks if not each.is_check}.values():
        points = points_of(profile.hooks, hook)
        found += [f"A worker asks {hook.name} at {', '.join(points)}."] if points else []
    return found


def kept_back(definition: ScheduleDef, *, now_ms: int) -> list[str]:
    """Return which of the next due times a check keeps back, and why."""
    from supervisor.core.schedules.checks import checks_of_definition
    from supervisor.core.schedules.triggers import trigger_of

    checks = checks_of_definition(definition)
    if checks is None:
        return []
    trigger, at_ms, found, count = trigger_of(definition), now_ms, [], 0
    for _ in range(LOOKED_AT_MAX):
        planned = next_fire(definition, trigger, at_ms)
        if planned is None:
            break
        at_ms = planned.nominal_ms
        refusal = checks.refusal(at_ms, planned.fire_ms, trigger)
        if refusal is not None:
            count += 1
            if count <= NAMED_MAX:
                found.append(f"{moment(at_ms)} will not be fired: {refusal.point} {refusal.hook}: {refusal.reason}")
    if count > NAMED_MAX:
        found.append(f"and {count - NAMED_MAX} more of the next {LOOKED_AT_MAX} due times")
    return found
