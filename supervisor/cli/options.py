"""Options that several commands share: where the configuration is, and how its problems are printed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from supervisor.cli.config.setting_flags import SETTING_FLAGS
from supervisor.cli.output import say
from supervisor.core.errors import ConfigError, Problem

if TYPE_CHECKING:
    from supervisor.settings.loader import Loaded
from supervisor.importers import FORMATS

DEFAULT_FILES = (Path("tenure.yaml"), Path("config/tenure.yaml"), Path("/etc/tenure/tenure.yaml"))
PROBLEMS_MAX = 100
CONFIG_FILE = "SPACEONE_CONFIG_FILE"  # the file that the original would read

LoadSettings = Callable[..., "Loaded"]


class DurationType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """A duration as people write them in the configuration: ``250ms``, ``15s``, ``5m``. Becomes seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; a usage error names the fault."""
        from supervisor.core.durations import parse_duration

        if isinstance(value, float):
            return value
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = DurationType()


def config_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--config``, ``--set``, ``--compat``, ``-m`` and each setting as a flag, and pass ``load_settings``.

    ``load_settings(files=(), flags={})`` returns ``Loaded``; files that the command was given
    itself count like --config and replace TENURE_CONFIG, flags are values by path. It raises
    ConfigError when the configuration cannot be used; a command that lets it pass ends with 78,
    every problem printed.
    """

    @click.option(
        "-c",
        "--config",
        "config_files",
        multiple=True,
        type=click.Path(path_type=Path),
        envvar="TENURE_CONFIG",
        metavar="FILE|DIR",
        help="Configuration; may be repeated, later ones win. Of a directory every *.yaml. "
        "TENURE_CONFIG holds several separated by colons.  "
        "[default: the first that exists of tenure.yaml, config/tenure.yaml, /etc/tenure/tenure.yaml]",
    )
    @click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="KEY=VALUE",
        help="Set one value, over files and environment: --set web.port=9000. May be repeated. Most settings are "
        "flags too, --web-port 9000: `tenure config flags` lists them.",
    )
    @compat_options
    @wraps(function)
    def command(
        *args: Any,
        config_files: tuple[Path, ...],
        sets: tuple[str, ...],
        compat: str | None,
        module_paths: tuple[Path, ...],
        **options: Any,
    ) -> Any:
        search(module_paths)
        setting_flags = dict(click.get_current_context().meta.get(SETTING_FLAGS, {}))

        def load_for_command(
            *,
            files: Sequence[Path] = (),
            flags: Mapping[str, object] | None = None,
            with_jobs: bool = False,
        ) -> Loaded:
            context = click.get_current_context(silent=True)  # none: the tree runs, and reads everything again
            source = context.get_parameter_source("config_files") if context is not None else None
            given = () if files and source is ParameterSource.ENVIRONMENT else config_files
            overrides = {**setting_flags, **(flags or {})}
            return read_settings((*given, *files), sets, overrides, with_jobs=with_jobs, compat=compat)

        return function(*args, load_settings=load_for_command, **options)

    return command


def read_settings(
    config_files: Sequence[Path],
    sets: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    *,
    with_jobs: bool = False,
    compat: str | None = None,
) -> Loaded:
    """Return the configuration; without ``config_files`` that of the first default file that exists, or of no file.

    ``sets`` are ``section.key=value`` texts, ``flags`` values of options by path: a ``settings.overrides.Flag`` names
    its option in problems. ``compat`` is the format of files that are not native.

    Raises:
        ConfigError: it cannot be used; ``with_jobs`` with the problems of the job modules, which are imported then,
            unless a part of it did not answer.
    """
    from supervisor.app.configuration import load
    from supervisor.settings.loader import UnusableError
    from supervisor.settings.overrides import shown_secrets

    named = os.environ.get(CONFIG_FILE, "") if compat else ""
    given_files = config_files or ([Path(named)] if named else [])
    files = given_files or _found_files()
    given = {**parse_sets(sets), **(flags or {})}
    if shown := shown_secrets(given):
        raise ConfigError(shown)
    try:
        return load(files=files, environ=os.environ, flags=given, compat=compat, are_named=bool(given_files))
    except UnusableError as error:
        if not with_jobs or error.is_passing:  # a start that waits imports modules once it has all of it
            raise
        from supervisor.app.jobs import import_jobs_of
        from supervisor.settings.schedules.complete import with_late_problems

        if error.partial is not None:
            import_jobs_of(error.partial.settings)
        raise with_late_problems(error) from error


def _found_files() -> list[Path]:
    """Return the configuration that nobody named, if there is one.

    Raises:
        ConfigError: somebody else may have written it; a configuration names code that is run.
    """
    from supervisor.settings.loader import discover
    from supervisor.trust import distrust_path

    found = [file for file in DEFAULT_FILES if _is_there(file)][:1]
    distrusted = []
    for file in discover(found, []):
        try:
            why = distrust_path(file)
        except OSError as error:  # not read either: whoever owns its place could open that a moment later
            remedy = "check path and rights, or name a file: --config"
            raise ConfigError([Problem(str(file), "", f"cannot be read: {error.strerror}", remedy)]) from error
        if why:
            distrusted.append((file, why))
    if distrusted:
        remedy = f"if you trust it, name it: --config {found[0]}; else run this in another directory"
        raise ConfigError([Problem(str(file), "", f"is not read by itself: {why}", remedy) for file, why in distrusted])
    return found


def _is_there(file: Path) -> bool:
    """Return whether there is a file, or something that keeps us from seeing that: reading it says what."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def parse_sets(sets: Sequence[str]) -> dict[str, object]:
    """Return the value by its path for each ``section.key=value``; the last one of a path counts.

    Raises:
        click.UsageError: a text without ``=``. It is not quoted, since it may hold a password.
    """
    found: dict[str, object] = {}
    for position, text in enumerate(sets, start=1):
        path, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--set number {position} has no '='; write --set section.key=value")
        found[path.strip()] = value
    return found


def print_problems(problems: Iterable[Problem]) -> None:
    """Print one line for each problem on standard error, and how many were left out of a flood."""
    listed = list(problems)
    for problem in listed[:PROBLEMS_MAX]:
        say(" ".join(str(problem).splitlines()), err=True)
    if len(listed) > PROBLEMS_MAX:
        say(f"and {len(listed) - PROBLEMS_MAX} more", err=True)


def compat_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--compat`` and ``--module-path`` to a command."""
    function = click.option(
        "-m",
        "--module-path",
        "module_paths",
        multiple=True,
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        envvar="TENURE_MODULE_PATH",
        metavar="DIR",
        help="Look for the modules of jobs there too; may be repeated.",
    )(function)
    return click.option(
        "--compat",
        type=click.Choice(FORMATS),
        envvar="TENURE_COMPAT",
        help="The files are Cloudforet's: SCHEDULERS, QUEUES, WORKERS, GLOBAL, or a chart's values. "
        "Files with native settings may be listed too.",
    )(function)


def search(directories: Sequence[Path]) -> None:
    """Let modules that the configuration names be found in ``directories``."""
    if directories:
        from supervisor.settings.schedules import search_path

        search_path.search(directories)
