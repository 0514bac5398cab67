"""``--feature-gates=A=true,B=false``: features on the command line, over those of files and variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from supervisor.core import features

if TYPE_CHECKING:
    from supervisor.settings.overrides import Flag

OPTION = "--feature-gates"
_VALUES = {"true": True, "false": False}


def features_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--feature-gates`` to a command; its help lists every gate of this version."""
    return click.option(
        OPTION,
        metavar="NAME=true|false,...",
        help=f"Switch features on or off (features). {features.described()}",
    )(function)


def gate_flags(text: str | None) -> dict[str, Flag]:
    """Return the option as a flag of the setting ``features``.

    Raises:
        click.UsageError: it is no list of NAME=true or NAME=false.
    """
    from supervisor.settings.overrides import Flag

    if text is None:
        return {}
    given: dict[str, bool] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = part.partition("=")
        if value.strip().lower() not in _VALUES:
            raise click.UsageError(f"{OPTION}: {part!r} is not NAME=true or NAME=false")
        given[name.strip()] = _VALUES[value.strip().lower()]
    return {"features": Flag(OPTION, given)} if given else {}
