"""What ``--help`` promises: an example for every command, laid out as it was written."""

from __future__ import annotations

from collections.abc import Iterator

import click
from click.testing import CliRunner

from supervisor.cli.main import cli
from tests.kit.tables import table

NEEDS_NO_EXAMPLE = {"version", "config schema", "config default"}


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every command that is not a group."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


@table("path", [(), *commands(cli)])
def test_help_shows_an_example_on_lines_of_its_own(path: tuple[str, ...]) -> None:
    """Somebody who looks for the right words wants to copy them."""
    done = CliRunner().invoke(cli, [*path, "--help"], prog_name="tenure")

    assert done.exit_code == 0
    assert "\\b" not in done.output
    if " ".join(path) not in NEEDS_NO_EXAMPLE:
        lines = [line.strip() for line in done.output.splitlines()]
        start = next(number for number, line in enumerate(lines) if line in {"Example:", "Examples:"})
        assert "tenure " in lines[start + 1], done.output


def test_an_unknown_command_is_a_usage_error() -> None:
    """Exit 2, as the table of exit codes says."""
    assert CliRunner().invoke(cli, ["leed"]).exit_code == 2
