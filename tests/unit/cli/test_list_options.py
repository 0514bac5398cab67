"""Lists: which columns, which rows, and how many of how many."""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner, Result

from supervisor.cli.help import CONTEXT, SectionedCommand
from supervisor.cli.output import list_options, print_rows

ROWS = [
    {"name": "nightly", "queue": "reports", "next": "02:30", "paused": False, "labels": ["team=a"]},
    {"name": "hourly", "queue": "default", "next": "13:00", "paused": True, "labels": ["team=a", "x=1"]},
    {"name": "yearly", "queue": "default", "next": None, "paused": False, "labels": []},
]


@click.command("list", cls=SectionedCommand, context_settings=CONTEXT)
@list_options
def listing() -> None:
    """List them."""
    print_rows(ROWS, columns=("name", "queue", "next"), empty="none")


def shown(*words: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(listing, list(words))


def names(*words: str) -> list[str]:
    """Return the rows that are left."""
    return [row["name"] for row in json.loads(shown(*words, "-o", "json").stdout)]


def test_columns_are_shown_in_the_order_asked_for() -> None:
    """As spacectl's -c: name,next."""
    lines = shown("--columns", "next,name").stdout.splitlines()

    assert lines[0].split() == ["NEXT", "NAME"]
    assert lines[2].split() == ["02:30", "nightly"]


def test_columns_hold_for_json_and_yaml_too() -> None:
    """A script that wants two fields gets two fields."""
    assert json.loads(shown("--columns=name,next", "-o", "json").stdout)[0] == {"name": "nightly", "next": "02:30"}
    assert shown("--columns=name", "-o", "yaml").stdout == "- name: nightly\n- name: hourly\n- name: yearly\n"


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (("-p", "queue=default"), ["hourly", "yearly"]),
        (("-p", "queue=default", "-p", "paused=true"), ["hourly"]),
        (("--where", "next=-"), ["yearly"]),
        (("-p", "labels=team=a"), ["nightly", "hourly"]),
        (("-p", "queue=none"), []),
        ((), ["nightly", "hourly", "yearly"]),
    ],
)
def test_rows_are_left_out_that_are_not_meant(words: tuple[str, ...], left: list[str]) -> None:
    """As spacectl's -p key=value; all of several must hold."""
    assert names(*words) == left


def test_the_count_stands_beside_the_table_and_in_no_pipe() -> None:
    """``Count: 2 / 3`` is for people; what reads standard output gets rows."""
    table = shown("-p", "queue=default")
    assert table.stderr == "Count: 2 / 3\n"
    assert "Count" not in table.stdout
    assert shown("-p", "queue=none").stdout == "none\n"
    assert shown("-o", "json").stderr == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--columns", "nmae"), "there is no column nmae; there are name, queue, next, paused, labels"),
        (("-p", "nmae=x"), "there is no column nmae"),
        (("-p", "name"), "-p takes NAME=VALUE"),
    ],
)
def test_a_column_that_is_not_there_is_a_usage_error(words: tuple[str, ...], message: str) -> None:
    """With the ones that are."""
    done = shown(*words)

    assert done.exit_code == 2
    assert message in done.stderr
