"""Every setting as a flag: ``--election-lease-duration 5s`` is ``--set election.lease_duration=5s``.

Nothing is built before somebody uses one: help and the other commands stay fast. Pools and
schedules have names that people chose, so they have no flags; ``--set workers.io.concurrency=10`` reaches them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, get_args

import click

from supervisor.core import features
from supervisor.core.suggestions import closest

if TYPE_CHECKING:
    from supervisor.settings.overrides import Flag
    from supervisor.settings.schema import Shape

SETTING_FLAGS = "tenure.setting_flags"
"""Key of the parsed flags in a command's context."""


def take_setting_flags(
    args: list[str], known: Mapping[str, bool], normal: Callable[[str], str]
) -> tuple[list[str], dict[str, Flag]]:
    """Return the words after a command without flags that are settings, and these by the path of the setting.

    ``known`` are options that the command has itself, and whether each takes a value: they are left alone; ``normal``
    gives an option's name its one spelling.

    Raises:
        click.UsageError: the last word is a flag that needs a value, or a flag is nearly one of a setting.
    """
    from supervisor.settings.overrides import FOREIGN_FLAGS

    rest: list[str] = []
    found: dict[str, Flag] = {}
    words = iter(args)
    for word in words:
        name, equals, value = word.partition("=")
        name = normal(name)
        if word == "--":
            rest += [word, *words]
        elif name in known:
            rest.append(word)
            if known[name] and not equals:
                rest += islice(words, 1)  # its value, whatever that looks like
        elif name in FOREIGN_FLAGS:
            raise click.UsageError(f"No such option '{name}': {FOREIGN_FLAGS[name]}.")
        elif not name.startswith("--"):
            rest.append(word)
        elif (path := _path(name)) is None:
            _suggest(name, known)
            rest.append(word)
        else:
            found[path] = _flag(name, value if equals else None, path, words)
    return rest, found


def _suggest(name: str, known: Collection[str]) -> None:
    close = closest(name, [*known, *flag_paths()], count=2, likeness_min=0.8)
    if close:
        raise click.NoSuchOption(name, possibilities=close)


def _path(name: str) -> str | None:
    from supervisor.settings.overrides import OLD_FLAGS

    return OLD_FLAGS.get(name) or flag_paths().get(name)


def _flag(name: str, value: str | None, path: str, words: Iterator[str]) -> Flag:
    from supervisor.settings.overrides import Flag

    if value is None and is_switch(path):
        value = "true"  # as in Go: a switch takes its value with "=" only
    if value is None:
        value = next(words, None)
    if value is None:
        raise click.UsageError(f"Option '{name}' requires an argument.")
    return Flag(name, value)


@cache
def flag_paths() -> dict[str, str]:
    """Return the path of each setting that has a flag, by the flag."""
    from supervisor.settings.document import format_path
    from supervisor.settings.overrides import flag_of

    return {flag_of(path): format_path(path) for path, _ in _leaves()}


@cache
def is_switch(path: str) -> bool:
    """Return whether a setting is true or false."""
    from supervisor.settings.document import parse_path
    from supervisor.settings.schema import settings_shape

    shape = settings_shape().at(parse_path(path) or ())
    annotation = shape.info.annotation if shape is not None and shape.info is not None else None
    return annotation is bool or bool in get_args(annotation)


def _leaves() -> Iterator[tuple[tuple[str, ...], Shape]]:
    from supervisor.settings.schema import ShapeKind, settings_shape

    shape = settings_shape()
    for path in shape.paths():
        found = shape.at(path)
        if found is not None and found.kind in {ShapeKind.TEXT, ShapeKind.VALUE, ShapeKind.LIST}:
            yield path, found


def flag_rows() -> list[dict[str, str]]:
    """Return every such flag with its default and its meaning, for people to look through."""
    from supervisor.settings.overrides import OLD_FLAGS, REMOVED_IN, flag_of
    from supervisor.settings.render import inline_yaml, public_view
    from supervisor.settings.sections.models import Settings

    defaults = public_view(Settings())
    rows = []
    for path, shape in _leaves():
        value = defaults
        for step in path:
            value = value[step]
        meaning = " ".join(((shape.info.description if shape.info else "") or "").replace("``", "").split())
        rows.append({"flag": flag_of(path), "section": path[0], "default": inline_yaml(value), "meaning": meaning})
    for flag, new in OLD_FLAGS.items():
        meaning = f"Old name of the flag of {new}; refused from {REMOVED_IN} on."
        rows.append({"flag": flag, "section": "deprecated", "default": "", "meaning": meaning})
    return rows


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
