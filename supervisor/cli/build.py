"""``tenure version``: build information, also for ``--version=raw`` and bug reports."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import click

from supervisor.cli.help import SectionedCommand
from supervisor.cli.output import print_value
from supervisor.version import __version__

LIBRARIES = ("click", "pydantic", "redis", "hiredis", "aiohttp", "uvloop", "msgspec", "structlog", "prometheus-client")


def build_info() -> dict[str, str | Mapping[str, str]]:
    """Return version, interpreter, platform and the versions of Tenure's dependencies; ``-`` where one is absent."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": f"{platform.system().lower()}-{platform.machine()}",
        "executable": sys.executable,
        "installed_in": str(Path(__file__).resolve().parent.parent),
        "libraries": {name: _version(name) for name in LIBRARIES},
    }


def raw() -> str:
    """Return all of it as lines of ``name: value``, the names of libraries among them."""
    lines = []
    for name, value in build_info().items():
        if isinstance(value, Mapping):
            lines += [f"{library}: {each}" for library, each in value.items()]
        else:
            lines.append(f"{name}: {value}")
    return "\n".join(lines)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "-"


@click.command(cls=SectionedCommand)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "raw", "json", "yaml"]),
    default="text",
    show_default=True,
    help="Output format; all but text have all details of the installation.",
)
def version(*, output: str) -> None:
    """Print the version. Neither a configuration nor Redis is needed.

    \b
    Example:
      tenure version -o json
    """
    if output == "text":
        click.echo(__version__)
    elif output == "raw":
        click.echo(raw())
    else:
        print_value(build_info(), output=output)
