"""Rows for people as a table, for scripts as JSON or YAML. The same rows for all three."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

FORMATS = ("table", "json", "yaml")


def output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``-o/--output`` to a command."""
    return click.option(
        "-o", "--output", "output", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print."
    )(function)


def print_rows(rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str], output: str, empty: str) -> None:
    """Print ``rows``; a table shows ``columns`` of them, JSON and YAML everything.

    Args:
        rows: one mapping per line.
        columns: the keys that a table shows, in order.
        output: table, json or yaml.
        empty: what a table says when there are no rows.
    """
    if output != "table":
        print_value(list(rows), output=output)
    elif not rows:
        click.echo(empty)
    else:
        _print_table(rows, columns)


def print_section(title: str, rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str], empty: str) -> None:
    """Print one table of several under its title."""
    click.echo(f"\n{title}")
    print_rows(rows, columns=columns, output="table", empty=f"  {empty}")


def print_record(value: Mapping[str, Any], *, line: str, output: str) -> None:
    """Print one record of a stream at once: a line for people, a line of JSON, or a YAML document."""
    if output == "table":
        click.echo(line)
    elif output == "json":
        click.echo(msgspec.json.encode(value).decode())
    else:
        click.echo("---")
        print_value(value, output=output)


def print_value(value: Any, *, output: str) -> None:
    """Print one value as JSON or YAML."""
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
    else:
        import yaml

        click.echo(yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, allow_unicode=True), nl=False)


def _print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    # A pipe has no width; without one, long ids would be cut at 80 columns.
    width = None if sys.stdout.isatty() else 240
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " ").upper(), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    Console(width=width, highlight=False, markup=False).print(table)


def _cell(value: Any) -> str:
    """Return one cell. Control characters are shown, not sent: a description must not steer somebody's terminal."""
    if value is None or value == "":
        return "-"
    text = str(value)
    return text if text.isprintable() else "".join(each if each.isprintable() else _shown(each) for each in text)


def _shown(character: str) -> str:
    return character if character == "\n" else character.encode("unicode_escape").decode()


def moment(wall_ms: int | None) -> str | None:
    """Return a wall-clock time as ISO 8601 in UTC with milliseconds."""
    if not wall_ms:
        return None
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def distance(wall_ms: int | None, now_ms: int) -> str | None:
    """Return how far a time is from now, for people: ``in 4m 10s``, ``12s ago``."""
    if not wall_ms:
        return None
    delta_s = (wall_ms - now_ms) / 1000
    text = span(abs(delta_s))
    return f"in {text}" if delta_s >= 0 else f"{text} ago"


def span(seconds: float) -> str:
    """Return a length of time with two units: ``1h 5m``, ``4m 10s``, ``850ms``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    parts = []
    rest = int(seconds)
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])
