"""How help is laid out: in sections, within the terminal, the same for every command; and how flags may be spelled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from supervisor.cli.help import CONTEXT, SECTIONS, SectionedCommand, SectionedGroup, fitted
from supervisor.cli.main import LazyGroup, cli

GOLDEN = Path(__file__).resolve().parents[2] / "data" / "help"
WIDTHS = (60, 80, 120)


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield every command and group below ``group``, each with its own context."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        yield command, inner
        if isinstance(command, click.Group):
            yield from commands(command, inner)


TOP = click.Context(cli, info_name="tenure", **CONTEXT)
ALL = [(cli, TOP), *commands(cli, TOP)]
OPTIONS = [
    (context, param, name)
    for command, context in ALL
    for param in command.get_params(context)
    if isinstance(param, click.Option)
    for name in (*param.opts, *param.secondary_opts)
    if name.startswith("--")
]


def help_of(command: click.Command, context: click.Context) -> str:
    """Return what ``--help`` prints on this terminal."""
    return f"{command.get_help(click.Context(command, info_name=context.info_name, parent=context.parent))}\n"


def test_help_folds_what_all_commands_share_and_help_all_shows_it() -> None:
    """Fourteen equal lines in every help hide the few that differ."""
    short = CliRunner().invoke(cli, ["queue", "list", "--help"], prog_name="tenure").output
    full = CliRunner().invoke(cli, ["queue", "list", "--help-all"], prog_name="tenure").output
    assert "--config --set" in short
    assert "TENURE_CONFIG" not in short
    assert "TENURE_CONFIG" in full
    assert "TENURE_CONFIG" in CliRunner().invoke(cli, ["run", "--help"], prog_name="tenure").output


def test_underscores_are_hyphens_in_every_option() -> None:
    """As pflag's WordSepNormalizeFunc: --lease_duration is --lease-duration, and nothing is said about it."""
    different = []
    for context, option, name in OPTIONS:
        spelled = f"--{name[2:].replace('-', '_')}"
        words = [spelled] if option.is_flag or option.count else [f"{spelled}=x"]

        given, rest, order = context.command.make_parser(context).parse_args(words)

        if rest or order[0] is not option or option.name not in given:  # arguments that were not given follow
            different.append(f"{context.command_path} {spelled}")
    assert different == []


def test_help_spells_options_with_hyphens() -> None:
    """One spelling is shown, so that there is one to search for."""
    assert [f"{context.command_path} {name}" for context, _, name in OPTIONS if "_" in name] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_of_any_help_is_wider_than_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that the terminal breaks hides where the next option begins."""
    monkeypatch.setenv("COLUMNS", str(width))

    wide = [
        f"{context.command_path}: {line}"
        for command, context in ALL
        for line in help_of(command, context).splitlines()
        if len(line) > width
    ]

    assert wide == []


@pytest.mark.parametrize("width", WIDTHS)
def test_help_of_run_is_what_it_was(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page that people see first. To take a change over: COLUMNS=60 tenure run --help > tests/data/help/run-60.txt."""
    monkeypatch.setenv("COLUMNS", str(width))
    command, context = next(each for each in ALL if each[1].command_path == "tenure run")

    assert help_of(command, context) == (GOLDEN / f"run-{width}.txt").read_text()


def test_every_command_is_laid_out_by_the_same_code() -> None:
    """A command without cls=Command has no sections, and its examples run over the edge."""
    others = [
        context.command_path for command, context in ALL if not isinstance(command, SectionedCommand | SectionedGroup)
    ]
    assert others == [], "use @click.command(cls=Command) of supervisor/cli/help.py"


def test_every_command_stands_in_one_section_of_the_first_page() -> None:
    """A command that is in no section is one that nobody finds."""
    placed = [name for names in LazyGroup.sections.values() for name in names]

    assert len(placed) == len(set(placed))
    assert set(LazyGroup.sources) <= set(placed)


def test_an_option_stands_in_one_section() -> None:
    """Told twice is looked for twice."""
    names = [name for section in SECTIONS.values() for name in section]

    assert len(names) == len(set(names))


def test_an_example_that_is_too_wide_is_continued_so_that_it_can_be_copied() -> None:
    """A backslash at the end of a line is a line that the shell goes on reading."""
    text = (
        'Do it.\n\n\b\nExample:\n  tenure schedule backfill nightly --from "2026-01-01 02:00" --to 2026-02-01   a month'
    )

    assert fitted(text, 50).splitlines() == [
        "Do it.",
        "",
        "\b",
        "Example:",
        "  tenure schedule backfill nightly --from \\",
        '      "2026-01-01 02:00" --to 2026-02-01',
        "      a month",
    ]


def test_a_stray_argument_is_a_usage_error() -> None:
    """As kube-scheduler: it takes no arguments, says which it got, and starts nothing."""
    done = CliRunner().invoke(cli, ["run", "everything", "now"], prog_name="tenure")

    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Usage: tenure run [OPTIONS]\n")
    assert "unexpected extra arguments (everything now)" in done.stderr
