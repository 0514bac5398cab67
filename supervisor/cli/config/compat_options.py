"""Options for configurations that were written for another program, and for the code that they name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from supervisor.importers import FORMATS

CONFIG_FILE = "SPACEONE_CONFIG_FILE"


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


def original_files(compat: str | None) -> list[Path]:
    """Return the file that the original would read by its variable, for those who give none."""
    named = os.environ.get(CONFIG_FILE, "")
    return [Path(named)] if compat and named else []
