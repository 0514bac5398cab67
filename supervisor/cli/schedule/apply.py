"""``tenure schedule apply``: bring dynamic schedules from a file into the cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from supervisor.cli.cluster import LABEL, confirm, known_jobs
from supervisor.cli.connection import Connection, connected
from supervisor.cli.help import SectionedCommand
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import is_table, output_option, print_rows, print_value, progress, say
from supervisor.clock import SystemClock
from supervisor.core.errors import EXIT_FAILED, EXIT_OK, ConfigError, Problem
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.diff import DefinitionDifference
from supervisor.operations import apply as operations
from supervisor.operations.apply import ApplyPlan, ApplyResult
from supervisor.trust import is_directory

REFUSED_SHOWN = 50
NOTES_MAX = 20
FILES_MAX = 1000
_SUFFIXES = (".yaml", ".yml", ".json", ".ndjson", ".jsonl")
_COLUMNS = ("schedule", "difference", "fields")


@click.command(cls=SectionedCommand)
@click.option(
    "-f",
    "--file",
    "file",
    required=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="YAML, JSON or NDJSON, or a directory of such files; - is standard input.",
)
@click.option(
    "--format", "form", type=click.Choice(["auto", "yaml", "json", "ndjson"]), default="auto", show_default=True,
    help="How it is written; auto: by its name, else by its beginning.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
@click.option("--prune", is_flag=True, help="Delete dynamic schedules with all of --label that the file does not name.")
@click.option(
    "-l", "--label", "labels", multiple=True, type=LABEL, metavar="NAME=VALUE", help="With --prune: of these."
)
@click.option("--drop-buffered", is_flag=True, help="Drop buffered runs of schedules that change.")
@click.option("--yes", is_flag=True, help="Do not ask before --prune deletes.")
@config_options
@output_option
def apply(
    *,
    file: Path,
    form: str,
    dry_run: bool,
    prune: bool,
    labels: tuple[tuple[str, str], ...],
    drop_buffered: bool,
    yes: bool,
    load_settings: LoadSettings,
) -> int:
    """Create and change dynamic schedules from a file of schedules, written as in the configuration.

    Everything is checked first; when anything is wrong, every mistake is listed with its place, and nothing is applied.
    Equal ones are left alone, so applying again, also after an interruption, does only the rest.

    \b
    Examples:
      tenure schedule apply -f schedules.yaml --dry-run
      tenure schedule apply -f schedules/
      tenure schedule apply -f tenants.ndjson --prune --label source=tenants --yes
      generate-schedules | tenure schedule apply -f -
    """
    if prune and not labels:
        raise click.UsageError("--prune needs --label NAME=VALUE: which schedules this file is the whole of")
    if labels and not prune:
        raise click.UsageError("--label goes with --prune")
    if prune and str(file) == "-" and not yes and not dry_run:
        raise click.UsageError("--prune with -f - needs --yes: standard input cannot also answer a question")
    loaded = load_settings()
    read = read_files(file)
    empty = [name for name, raw in read if not raw.strip()]  # what is left when the program that writes it fails
    if prune and empty:
        why, remedy = "is empty, so --prune would delete all that it held", "for no schedule, let YAML or JSON hold []"
        raise ConfigError([Problem(name, "", why, remedy) for name in empty])
    with connected(loaded.settings) as connection:
        definitions = _validated(connection, loaded, read, name=str(file), form=form)
        with progress("comparing", len(definitions)) as advance:
            plan = connection.ask(operations.plan, definitions, labels=dict(labels) if prune else None, tell=advance)
        _note_new(plan)
        if dry_run:
            same = DefinitionDifference.UNCHANGED.value
            rows = [each for each in plan.rows() if not is_table() or each["difference"] != same]
            print_rows(rows, columns=_COLUMNS, empty="nothing would change")
            return EXIT_OK
        if plan.surplus:
            confirm(f"Delete {len(plan.surplus)} schedules that {file} does not name?", yes=yes)
        with progress("applying", len(plan.compared) + len(plan.surplus)) as advance:
            wall_ms = SystemClock().wall_ms()
            done = connection.ask(
                operations.carry_out, plan, wall_ms=wall_ms, drops_buffered=drop_buffered, tell=advance
            )
    _show(done)
    if drop_buffered:
        say(f"{done.dropped} waiting due times dropped", err=True)
    return EXIT_FAILED if done.refused else EXIT_OK


def read_raw(file: Path) -> bytes:
    """Return the content of ``file``, or of standard input for ``-``, up to what is refused as too large.

    A file that cannot be read ends the command.
    """
    from supervisor.settings.schedules.files import BYTES_MAX

    if str(file) == "-":
        return sys.stdin.buffer.read(BYTES_MAX + 1)
    try:
        with file.open("rb") as opened:
            return opened.read(BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: OSError) -> ConfigError:
    return ConfigError([Problem(str(file), "", f"cannot be read: {error.strerror or error}", "check path and rights")])


def read_files(file: Path) -> list[tuple[str, bytes]]:
    """Return name and content of ``file``, or of each file of schedules in a directory, in the order of their names."""
    if not is_directory(file):
        return [("standard input" if str(file) == "-" else str(file), read_raw(file))]
    try:
        inside = sorted(each for each in file.iterdir() if each.suffix in _SUFFIXES and not each.name.startswith("."))
    except OSError as error:
        raise _unreadable(file, error) from error
    if not inside or len(inside) > FILES_MAX:
        what = f"holds {len(inside)} files of schedules" if inside else "holds no file of schedules"
        remedy = f"up to {FILES_MAX} files that end in {', '.join(_SUFFIXES)} are read"
        raise ConfigError([Problem(str(file), "", what, remedy)])
    return [(str(each), read_raw(each)) for each in inside]


def _validated(
    connection: Connection, loaded: Any, read: list[tuple[str, bytes]], *, name: str, form: str
) -> tuple[ScheduleDef, ...]:
    """Return the definitions in ``read``; when anything is wrong, all of it is printed and the command ends with 78."""
    from supervisor.settings.schedules.definitions import validate_schedules
    from supervisor.settings.schedules.files import Format, read_all

    known = known_jobs(connection, loaded)
    shown = "standard input" if name == "-" else name
    entries = read_all(read, form=None if form == "auto" else Format(form))
    settings = loaded.settings
    with progress("checking", len(entries.schedules)) as advance:
        validated = validate_schedules(
            entries.schedules, known=known, where=shown, progress=advance,
            profiles=settings.profiles, calendars=settings.calendars,
        )  # fmt: skip
    problems = (*entries.problems, *validated.problems)
    if problems:
        for problem in problems:
            say(" ".join(str(problem).splitlines()), err=True)
        say(f"{len(problems)} problem{'' if len(problems) == 1 else 's'}; nothing was applied", err=True)
        raise click.exceptions.Exit(ConfigError.exit_code)
    _note_past(validated.definitions)
    return validated.definitions


def _note_past(definitions: tuple[ScheduleDef, ...]) -> None:
    from supervisor.core.schedules.lints import never_due

    now_ms = SystemClock().wall_ms()
    _say_notes((each.id, never_due(each, now_ms=now_ms)) for each in definitions)


def _note_new(plan: ApplyPlan) -> None:
    from supervisor.core.schedules.lints import begins_anew

    new = [each.change for each in plan.compared if each.difference is DefinitionDifference.CREATED]
    _say_notes((each.definition.id, begins_anew(each.definition)) for each in new if each is not None)


def _say_notes(found: Iterable[tuple[str, str | None]]) -> None:
    notes = [f"note: {name} {note}" for name, note in found if note is not None]
    for note in notes[:NOTES_MAX]:
        say(note, err=True)
    if len(notes) > NOTES_MAX:
        say(f"note: and {len(notes) - NOTES_MAX} more", err=True)


def _show(done: ApplyResult) -> None:
    if not is_table():
        print_value(done.record())
        return
    counts = {name: getattr(done, name) for name in ("created", "changed", "unchanged", "deleted")}
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count or name != "deleted")
    say(f"{told}, {len(done.refused)} refused" if done.refused else told)
    for name, why in done.refused[:REFUSED_SHOWN]:
        say(f"{name}: {why}", err=True)
