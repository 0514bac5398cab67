"""Texts of other people on the way to a terminal: shown, never obeyed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

import supervisor.cli
from supervisor.cli.cluster import confirm
from supervisor.cli.main import main
from supervisor.cli.output import moment, print_record, print_rows, print_section, print_value, say
from supervisor.roles.web.responses import json_body
from supervisor.telemetry.log_lines.render import console_renderer, render_json

CONTROLS = "".join(map(chr, [*range(9), 11, 12, *range(14, 32), *range(0x7F, 0xA0)]))
TURNING = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
STEERING = re.compile(f"[{re.escape(CONTROLS + TURNING)}\r]")
HOSTILE = f"größe {CONTROLS}{TURNING}\x1b]0;owned\x07\x9b31m end"
ROW: dict[str, Any] = {"reason": HOSTILE, HOSTILE: [HOSTILE]}


def rows(output: str) -> None:
    """Print a list."""
    print_rows([ROW], columns=["reason", HOSTILE], output=output, empty="")


def logged(render: Callable[[dict[str, Any]], bytes]) -> None:
    """Print a line of the log about an error of somebody else's job."""
    who = {"ts": "2026-11-23T00:00:00.000Z", "level": "error", "cluster": "c", "replica": "r", "role": "web", "pid": 1}
    event = {**who, "event": HOSTILE, "reason": HOSTILE, HOSTILE: 1, "traceback": f"Error: {HOSTILE}"}
    sys.stdout.write(render(event).decode())


FORMS: dict[str, Callable[[], object]] = {
    "table": lambda: rows("table"),
    "json": lambda: rows("json"),
    "yaml": lambda: rows("yaml"),
    "section": lambda: print_section("Ready", [ROW], columns=["reason"], empty=""),
    "value as json": lambda: print_value(ROW, output="json"),
    "value as yaml": lambda: print_value(ROW, output="yaml"),
    "record": lambda: print_record(ROW, line=HOSTILE, output="table"),
    "record as json": lambda: print_record(ROW, line=HOSTILE, output="json"),
    "record as yaml": lambda: print_record(ROW, line=HOSTILE, output="yaml"),
    "line": lambda: say(HOSTILE),
    "log as json": lambda: logged(render_json),
    "log for people": lambda: logged(console_renderer(coloured=False)),
    "answer of the API": lambda: sys.stdout.write(json_body(ROW).decode()),
}


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_output_sends_a_control_character(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """C0, DEL, C1 and the controls that turn text round: a reason must not rewrite somebody's screen."""
    FORMS[form]()

    printed = capsys.readouterr().out
    assert STEERING.search(printed) is None
    assert "end" in printed.lower()


def test_scripts_get_the_text_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    """What is escaped in JSON and YAML is read back as it was."""
    print_value(ROW, output="json")
    assert json.loads(capsys.readouterr().out) == ROW
    assert json.loads(json_body(ROW)) == ROW
    print_value(ROW, output="yaml")
    assert yaml.safe_load(capsys.readouterr().out) == ROW


def test_letters_of_every_language_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Only what steers is escaped."""
    print_value({"text": "größe 大きさ حجم"}, output="yaml")
    assert "größe 大きさ حجم" in capsys.readouterr().out


def test_no_command_prints_a_text_with_a_value_in_it_unescaped() -> None:
    """Names of files, lines of crontabs, errors of servers: ``say`` shows them all."""
    sources = (Path(supervisor.cli.__file__).parent).rglob("*.py")
    raw = [path.name for path in sources if re.search(r"click\.echo\(\s*f[\"']", path.read_text(encoding="utf-8"))]
    assert raw == ["output.py"], "of numbers alone"


def test_a_question_before_a_command_acts_sends_no_control_character() -> None:
    """`tenure stop` asks with the name on a nameplate, which a job of the tree can write."""
    asking = click.Command("stop", callback=lambda: confirm(f"Stop {HOSTILE}?", yes=False))

    answered = CliRunner().invoke(asking, input="y\n")

    assert (answered.exit_code, STEERING.search(answered.output)) == (0, None)
    assert "end?" in answered.output


def test_a_refused_command_line_sends_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    """A refusal quotes words of the command, names on nameplates, and methods of a plugin's program."""
    with pytest.raises(SystemExit):
        main(["config", "flags", HOSTILE])

    printed = capsys.readouterr().err
    assert STEERING.search(printed) is None
    assert "there is no section größe" in printed


@pytest.mark.parametrize("wall_ms", [8_641_795_570_611_208, 253_402_300_800_000, -(1 << 62), 1 << 80])
def test_a_time_outside_of_the_calendar_ends_no_command(wall_ms: int) -> None:
    """One pause for 99999999d made every list of schedules end with an error."""
    assert "the year" in str(moment(wall_ms))
