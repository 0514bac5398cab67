"""``tenure token new``: a token for its holder, its digest for the file, and files that it leaves alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from supervisor.cli.main import cli
from supervisor.clock import SystemClock
from supervisor.core.errors import ConfigError
from supervisor.settings.web.tokens import LINES_MAX, Scope, find_token, parse_tokens, read_tokens

LINE = f"old sha256:{'0' * 64} read"


def new(*words: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli, ["token", "new", *words])


def test_the_token_and_its_line_are_printed() -> None:
    """The line holds the digest alone, and is found by the token."""
    shown = new("deploys", "operate", "--job", "report.*", "--job", "mail.*", "--queue", "eu", "--label", "team=mail")

    secret, line = shown.stdout.splitlines(keepends=True)
    secret = secret.rstrip()
    (token,) = parse_tokens("tokens", line.encode())
    assert secret not in line
    assert len(secret) > 43
    assert find_token([token], secret) == token
    assert (token.name, token.scope, token.until_ms) == ("deploys", Scope.OPERATE, None)
    assert (token.jobs, token.queues, token.labels) == (("report.*", "mail.*"), ("eu",), (("team", "mail"),))


def test_two_tokens_are_never_the_same() -> None:
    """256 random bits."""
    assert new("a", "read").stdout != new("a", "read").stdout


def test_a_file_is_made_for_this_user_alone_and_stays_so(tmp_path: Path) -> None:
    """And standard output is the token, so that a script can take it."""
    file = tmp_path / "tokens"
    made = [new(name, "read", "--file", str(file)) for name in ("a", "b")]

    assert [each.exit_code for each in made] == [0, 0]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    tokens = read_tokens(str(file))
    assert [find_token(tokens, each.stdout.strip()) for each in made] == list(tokens)
    assert all(each.stdout.strip() not in file.read_text() for each in made)


def test_a_line_is_appended_behind_what_is_there(tmp_path: Path) -> None:
    """The mode is its owner's choice."""
    file = tmp_path / "tokens"
    file.write_text(f"# ours\n{LINE}\n")
    file.chmod(0o640)

    assert new("a", "read", "--file", str(file)).exit_code == 0
    assert file.read_text().startswith(f"# ours\n{LINE}\na sha256:")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "fault", ["name", "broken", "unended", "writable", "link", "pipe", "directory", "full", "absent"]
)
def test_a_file_that_cannot_be_used_is_left_as_it_is(fault: str, tmp_path: Path) -> None:
    """With the place and the reason, and without a token."""
    file = tmp_path / "tokens"
    file.write_text({"broken": "x\n", "unended": LINE, "full": "#\n" * LINES_MAX}.get(fault, f"{LINE}\n"))
    before = file.read_bytes()
    path = tmp_path / "other" / "tokens" if fault == "absent" else file
    if fault == "writable":
        file.chmod(0o666)
    elif fault in {"link", "pipe", "directory"}:
        path = tmp_path / fault
        {"link": lambda: path.symlink_to(file), "pipe": lambda: os.mkfifo(path), "directory": path.mkdir}[fault]()

    shown = new("old" if fault == "name" else "a", "read", "--file", str(path))

    assert isinstance(shown.exception, ConfigError)
    assert str(path) in str(shown.exception)
    assert (shown.stdout, file.read_bytes()) == ("", before)


@pytest.mark.parametrize(
    "words",
    [
        ("a b", "read"), ("", "read"), ("-a", "read"), ("a", "root"), ("a", "read", "--job", "x,y"), ("a", "read", "--job", "x #"),
        ("a", "read", "--queue", ""), ("a", "read", "--label", "team"), ("a", "read", "--label", "=x"), ("a", "read", "--until", "soon"),
        ("a", "read", "--until", "2001-01-01"), ("a", "read", "--until", "2099-01-01T10:00"), ("a", "read", "--until", "9" * 15 + "d"),
        ("a", "read", "--until", "0s"),
    ],
)  # fmt: skip
def test_what_no_line_can_hold_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    """By the command, and not by the web child that reads the file."""
    shown = new(*words, "--file", str(tmp_path / "tokens"))

    assert shown.exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("until", "least_days"), [("90d", 89), ("2199-01-01", 365), ("2199-01-01T10:00:00+02:00", 365)]
)
def test_a_token_may_end_by_itself(until: str, least_days: int) -> None:
    """After a while, on a day, or at an instant."""
    (token,) = parse_tokens("tokens", new("a", "read", "--until", until).stdout.splitlines(keepends=True)[1].encode())

    assert token.until_ms is not None
    assert token.until_ms - SystemClock().wall_ms() > least_days * 86_400_000
