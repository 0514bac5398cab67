"""Rows for people as a table, for scripts as JSON or YAML. The same rows for all three."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from supervisor.telemetry.controls import without_controls

FORMATS = ("table", "json", "yaml")
_STEERING = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Controls that YAML does not escape by itself: C1, which a terminal obeys, and those of direction."""

_COLUMNS, _WHERE, _OUTPUT = "tenure.columns", "tenure.where", "tenure.output"

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    expose_value=False,
    callback=lambda ctx, _param, value: ctx.meta.update({_OUTPUT: value}),
    help="How to print.",
)
"""Adds ``-o/--output`` to a command; what prints follows it."""


def is_table() -> bool:
    """Return whether the command prints for people."""
    return _form() == "table"


def _form() -> str:
    context = click.get_current_context(silent=True)
    form: str = context.meta.get(_OUTPUT, "table") if context is not None else "table"
    return form


def list_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``-o``, ``--columns`` and ``-p`` to a command that lists; ``print_rows`` follows them."""
    columns = click.option(
        "--columns",
        "_columns",
        metavar="NAME,...",
        expose_value=False,
        callback=_keep_columns,
        help="Show these columns, in this order; also what JSON and YAML hold.",
    )
    where = click.option(
        "-p",
        "--where",
        "_where",
        metavar="NAME=VALUE",
        multiple=True,
        expose_value=False,
        callback=_keep_where,
        help="Only rows in which NAME is VALUE; may be repeated.",
    )
    return output_option(columns(where(function)))


def _keep_columns(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    ctx.meta[_COLUMNS] = tuple(filter(None, (name.strip() for name in (value or "").split(","))))


def _keep_where(ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> None:
    pairs = [text.partition("=") for text in value]
    if not all(name and equals for name, equals, _ in pairs):
        raise click.UsageError("-p takes NAME=VALUE", ctx)
    ctx.meta[_WHERE] = tuple((name, wanted) for name, _, wanted in pairs)


def print_rows(
    rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str], empty: str = "", output: str | None = None
) -> None:
    """Print ``rows``; a table shows ``columns`` of them, or the text ``empty`` for none, JSON and YAML everything.

    ``output`` is table, json or yaml; None: as ``--output`` says.
    """
    output = output or _form()
    context = click.get_current_context(silent=True)
    asked = context.meta if context is not None else {}
    shown, columns = _chosen(rows, asked.get(_COLUMNS, ()), asked.get(_WHERE, ()), columns)
    if output != "table":
        print_value(shown, output=output)
    elif not shown:
        click.echo(empty)
    else:
        _print_table(shown, columns)
    if output == "table" and _COLUMNS in asked:  # for people, beside the table: a pipe gets rows only
        click.echo(f"Count: {len(shown)} / {len(rows)}", err=True)


def _chosen(
    rows: Sequence[Mapping[str, Any]], wanted: Sequence[str], where: Sequence[tuple[str, str]], columns: Sequence[str]
) -> tuple[list[Mapping[str, Any]], Sequence[str]]:
    """Return the rows and columns that -p and --columns leave.

    Raises:
        click.UsageError: no row has such a column.
    """
    known = dict.fromkeys(key for row in rows for key in row)
    for name in [*wanted, *(name for name, _ in where)]:
        if rows and name not in known:
            raise click.UsageError(f"there is no column {name}; there are {', '.join(known)}")
    shown = [row for row in rows if all(_is(row.get(name), value) for name, value in where)]
    if not wanted:
        return shown, columns
    return [{name: row.get(name) for name in wanted} for row in shown], wanted


def _is(value: Any, wanted: str) -> bool:
    """Return whether a value equals a person's text; of a list, whether it is in it."""
    if isinstance(value, list | tuple):
        return any(_is(each, wanted) for each in value)
    return _cell(value) == wanted or (isinstance(value, bool) and str(value).lower() == wanted)


def print_section(title: str, rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str], empty: str) -> None:
    """Print one table of several under its title."""
    click.echo(f"\n{title}")
    print_rows(rows, columns=columns, output="table", empty=f"  {empty}")


def print_record(value: Mapping[str, Any], *, line: str, output: str | None = None) -> None:
    """Print one record of a stream at once: a line for people, a line of JSON, or a YAML document."""
    output = output or _form()
    if output == "table":
        say(line)
    elif output == "json":
        click.echo(without_controls(msgspec.json.encode(value)).decode())
    else:
        click.echo("---")
        print_value(value, output=output)


def print_outcome(value: Mapping[str, Any], *, line: str) -> None:
    """Print what a command has done: a line for people, or the value."""
    if is_table():
        say(line)
    else:
        print_value(value)


def print_value(value: Any, *, output: str | None = None) -> None:
    """Print one value as JSON, or as YAML, which people read too."""
    if (output or _form()) == "json":
        click.echo(without_controls(msgspec.json.format(msgspec.json.encode(value), indent=2)).decode())
    else:
        import yaml

        built = msgspec.to_builtins(value)
        text = yaml.safe_dump(built, sort_keys=False, allow_unicode=True)
        if _STEERING.search(text):  # rare: then everything beyond ASCII is escaped
            text = yaml.safe_dump(built, sort_keys=False, allow_unicode=False)
        click.echo(text, nl=False)


def say(text: str, *, err: bool = False) -> None:
    """Print a line that may hold texts of other people. Control characters are shown, not sent."""
    click.echo(printable(text), err=err)


def _print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    # A pipe has no width; without one, long ids would be cut at 80 columns.
    width = None if sys.stdout is not None and sys.stdout.isatty() else 240
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(printable(column.replace("_", " ").upper()), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    Console(width=width, highlight=False, markup=False).print(table)


def _cell(value: Any) -> str:
    return "-" if value is None or value == "" else printable(str(value))


def printable(text: str) -> str:
    """Return ``text`` with its control characters shown, not sent: a description must not steer somebody's terminal.

    Lines stay lines.
    """
    return text if text.isprintable() else "".join(each if each.isprintable() else _shown(each) for each in text)


def _shown(character: str) -> str:
    return character if character == "\n" else character.encode("unicode_escape").decode()


def moment(wall_ms: int | None) -> str | None:
    """Return a wall-clock time as ISO 8601 in UTC with milliseconds."""
    if not wall_ms:
        return None
    try:
        at = datetime.fromtimestamp(wall_ms / 1000, UTC)
    except (ValueError, OverflowError):  # of a definition, or of a hand in Redis: one row is no reason to show none
        return "beyond the year 9999" if wall_ms > 0 else "before the year 1"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


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


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show progress of ``what``; yield the function that takes how many of ``total`` are done."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=min(done, total))
