"""``tenure config``: validate it, show the settings in effect, describe all settings."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from supervisor.cli.config.output_file import is_standard_output, write_file
from supervisor.cli.help import SectionedGroup
from supervisor.cli.options import LoadSettings, compat_options, config_options, print_problems, search
from supervisor.cli.output import list_options, print_rows, say
from supervisor.core.errors import CannotCreateError, ConfigError
from supervisor.importers import FORMATS

if TYPE_CHECKING:
    from supervisor.core.model import ScheduleDef
    from supervisor.settings.loader import Loaded
    from supervisor.settings.sections.models import Settings

STANDARD_OUTPUT = "-"
NOTES_MAX = 20


@click.group("config", cls=SectionedGroup)
def config_group() -> None:
    """Validate, show or describe the configuration."""


@config_group.command("validate")
@click.argument("files", metavar="[FILE|DIR]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--no-jobs", is_flag=True, help="Do not import the job modules, so do not check schedules against them.")
@config_options
def validate(*, files: tuple[Path, ...], no_jobs: bool, load_settings: LoadSettings) -> None:
    """List everything that is wrong with the configuration.

    Reads FILEs as one configuration in the given order, imports the job modules and checks
    every schedule against them. Neither Redis nor anything else is contacted.

    \b
    Exit codes: 0 it can be used, 78 it cannot; each problem is one line on standard error.

    \b
    Example:
      tenure config validate /etc/tenure
    """
    loaded = load_settings(files=files, with_jobs=not no_jobs)
    if not no_jobs:
        loaded = _check_jobs(loaded)
    read = ", ".join(str(file) for file in loaded.files) or "defaults"
    counts = f"{len(loaded.settings.schedules)} schedules, {len(loaded.settings.workers)} pools"
    _print_notices(loaded)
    say(f"ok: {read} ({counts})")


def _print_notices(loaded: Loaded) -> None:
    """Print to standard error uses that work today and will not for ever, and the conversions of foreign files."""
    from supervisor.core import features

    print_conversion(loaded)

    for notice in loaded.notices[:NOTES_MAX]:
        say(f"deprecated: {notice}", err=True)
    for name, why in features.warnings(loaded.settings.features):
        say(f"deprecated: {loaded.origin('features', name)}: features.{name}: {why}", err=True)


def print_conversion(loaded: Loaded) -> None:
    """Print remarks on files in another program's format to standard error."""
    for notice in loaded.conversion.notices if loaded.conversion is not None else ():
        say(f"note: {notice}", err=True)


def _check_jobs(loaded: Loaded) -> Loaded:
    """Import the job modules and return the configuration with what they declare; end the command on problems."""
    from supervisor.app.jobs import prepare_plugins
    from supervisor.plugins.registry import check_schedules
    from supervisor.settings.schedules.complete import complete, import_jobs, unserved
    from supervisor.settings.schedules.declarations import with_declared
    from supervisor.settings.web.check import web_problems

    problems = import_jobs(loaded.settings.jobs, loaded.origins)
    # A module that is missing would only be reported again, by every schedule that needs it.
    if not problems:
        try:
            prepare_plugins(loaded.settings, loaded.origins)
            loaded = with_declared(loaded)
            definitions = complete(loaded)
            check_schedules(definitions, loaded)
            _print_notes(definitions, loaded.settings)
            for problem in unserved(loaded, definitions)[:NOTES_MAX]:
                say(f"note: {problem}", err=True)
        except ConfigError as error:
            problems = list(error.problems)
    problems = [*problems, *web_problems(loaded)]
    if problems:
        raise ConfigError(problems)
    return loaded


def _print_notes(definitions: Iterable[ScheduleDef], settings: Settings) -> None:
    """Print settings that are allowed and may surprise to standard error."""
    from supervisor.clock import SystemClock
    from supervisor.core.schedules.lints import lints
    from supervisor.settings.schedules.calendars import ending_notes

    now_ms = SystemClock().wall_ms()
    notes = [f"note: {note}" for note in ending_notes(settings.calendars, now_ms=now_ms)]
    notes += [
        f"note: schedules.{definition.id}: {note}"
        for definition in definitions
        for note in lints(definition, now_ms=now_ms)
    ]
    for note in notes[:NOTES_MAX]:
        say(note, err=True)
    if len(notes) > NOTES_MAX:
        say(f"note: and {len(notes) - NOTES_MAX} more", err=True)


@config_group.command("show")
@click.option(
    "--sources", "with_sources", is_flag=True, help="Tell for each value which file, variable or flag set it."
)
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="How to print."
)
@click.option(
    "--write-config-to", metavar="FILE|-", help="Write the complete configuration there as YAML; - is standard output."
)
@config_options
def show(*, with_sources: bool, output: str, write_config_to: str | None, load_settings: LoadSettings) -> None:
    """Print the complete configuration that is in effect. Secrets are masked.

    \b
    Example:
      tenure config show --config /etc/tenure --sources
    """
    loaded = load_settings()
    print_conversion(loaded)
    if write_config_to is not None:
        write_config(loaded, write_config_to)
        return
    click.echo(_shown(_with_declared(loaded), output, with_sources=with_sources), nl=False)


def _with_declared(loaded: Loaded) -> Loaded:
    """Return the configuration with the schedules that its job modules declare; without, where they cannot be used."""
    import contextlib
    import sys

    from supervisor.settings.schedules.complete import import_jobs
    from supervisor.settings.schedules.declarations import with_declared

    with contextlib.redirect_stdout(sys.stderr):  # what modules print is no configuration
        problems = import_jobs(loaded.settings.jobs, loaded.origins)
        try:
            loaded = loaded if problems else with_declared(loaded)
        except ConfigError as error:
            problems = list(error.problems)
    for problem in problems[:NOTES_MAX]:
        say(f"note: schedules that code declares are left out: {problem}", err=True)
    return loaded


def _shown(loaded: Loaded, output: str, *, with_sources: bool) -> str:
    import json

    from supervisor.settings import render

    if output == "yaml":
        return render.sources_text(loaded) if with_sources else render.to_yaml(loaded.settings)
    text = render.to_json(loaded.settings)
    return f"{json.dumps(render.sources(loaded), indent=2, ensure_ascii=False) if with_sources else text}\n"


@config_group.command("flags")
@click.argument("section", required=False)
@list_options
def flags(*, section: str | None) -> None:
    """List the settings that are flags too, all or those of one SECTION.

    Pools, schedules and plugins have names that you choose: use --set workers.io.concurrency=10.

    \b
    Example:
      tenure config flags election
    """
    from supervisor.cli.config.setting_flags import flag_rows

    rows = [row for row in flag_rows() if section in {None, row["section"]}]
    if not rows:
        raise click.UsageError(f"there is no section {section}")
    print_rows(rows, columns=("flag", "default", "meaning"))


@config_group.command("convert")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    default=STANDARD_OUTPUT,
    show_default=True,
    metavar="FILE|-",
    help="Where to write; - is standard output.",
)
@click.option("--force", is_flag=True, help="Replace the output file if it exists.")
@compat_options
def convert(
    *, files: tuple[Path, ...], output: str, force: bool, compat: str | None, module_paths: tuple[Path, ...]
) -> None:
    """Turn Cloudforet's configuration into a native one that gives the same schedules.

    FILEs are one configuration, later ones win: the files of `run --compat cloudforet -c FILE`. Notices, such as
    keys that are not used, become comments. Secrets become variables, which the head of the file lists.

    \b
    Exit codes: 0 written, 73 FILE exists or cannot be written, 78 it cannot be used; each problem is one line on
    standard error, and nothing is written.

    \b
    Example:
      tenure config convert application.yaml -o tenure.yaml
    """
    from supervisor.app.configuration import load
    from supervisor.importers.cloudforet.conversion import to_yaml

    search(module_paths)
    # What the variables of this shell say about settings is no part of the files.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    try:
        loaded = load(files=files, environ=environ, flags={}, compat=compat or FORMATS[0])
    except ConfigError as error:
        print_problems(error.problems)
        raise click.exceptions.Exit(error.exit_code) from error
    assert loaded.conversion is not None
    _write(to_yaml(loaded.conversion, files), output, replaces=force, sources=loaded.files)


@config_group.command("schema")
def schema() -> None:
    """Print the JSON Schema of a configuration file, for editors."""
    import json

    from supervisor.settings import render

    click.echo(json.dumps(render.schema(), indent=2, ensure_ascii=False))


@config_group.command("default")
def default() -> None:
    """Print a file with every setting, its default and its meaning."""
    from supervisor.settings.render import default_file

    click.echo(default_file(), nl=False)


def write_config(loaded: Loaded, target: str) -> None:
    """Write the complete configuration to a file, replacing it in one step, or to standard output for ``-``.

    A file that is not plain is written to, and stays the same file.

    Raises:
        CannotCreateError: the file cannot be written, or is one of those that the configuration was read from.
    """
    from supervisor.settings.render import to_yaml

    _write(to_yaml(loaded.settings), target, replaces=True, sources=loaded.files)


def _write(text: str, target: str, *, replaces: bool, sources: Iterable[Path]) -> None:
    if is_standard_output(target):
        click.echo(text, nl=False)
        return
    if not target:
        raise CannotCreateError("cannot write the configuration to a file without a name; name one, or - to print it")
    write_file(text, target, replaces=replaces, sources=sources)
