"""``tenure token``: make tokens of the HTTP API."""

from __future__ import annotations

import re

import click

from supervisor.cli.help import SectionedGroup
from supervisor.cli.output import say
from supervisor.clock import SystemClock
from supervisor.core.durations import parse_duration
from supervisor.core.errors import ConfigError
from supervisor.settings.web.tokens import Scope, Token, TokenFileError, append_token, digest_of, new_secret, until_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_PATTERN = re.compile(r"[A-Za-z0-9._:/*?\[\]!-]{1,200}", re.ASCII)
_YEAR_9999_MS = 253_370_764_800_000  # the last one that a line can hold


@click.group("token", cls=SectionedGroup)
def token_group() -> None:
    """Make tokens of the HTTP API."""


@token_group.command("new")
@click.argument("name")
@click.argument("scope", type=click.Choice([scope.word for scope in Scope]))
@click.option("--file", metavar="FILE", help="Append its line to this tokens file (made, with 0600, if absent).")
@click.option("--until", metavar="WHEN", help="Its end: 90d from now, 2027-01-01, or an instant with an offset.")
@click.option("--job", "jobs", multiple=True, metavar="PATTERN", help="Only jobs like this; may be given again.")
@click.option("--queue", "queues", multiple=True, metavar="PATTERN", help="Only queues like this; may be given again.")
@click.option("--results", "shows_results", is_flag=True, help="Also show results of runs.")
@click.option("--label", "labels", multiple=True, metavar="NAME=PATTERN", help="Only schedules with all of these.")
def new(
    *,
    name: str,
    scope: str,
    file: str | None,
    until: str | None,
    jobs: tuple[str, ...],
    queues: tuple[str, ...],
    labels: tuple[str, ...],
    shows_results: bool,
) -> None:
    """Make a random token NAME with SCOPE (read, operate or admin).

    Prints the token, once: nothing keeps it. web.tokens_file gets its SHA-256 alone; without --file the line for it
    is printed behind the token.

    \b
    Exit codes: 0 made, 2 an argument cannot be used, 78 the file cannot; it is then as it was.

    \b
    Examples:
      tenure token new grafana read
      tenure token new deploys operate --file /etc/tenure/tokens --until 90d
      tenure token new reports operate --job 'report.*' --label team=mail
      tenure token new frontend read --results --job 'report.*'
    """
    if not _NAME.fullmatch(name):
        raise click.BadParameter("1 to 64 letters, digits and . _ -, a letter or digit first", param_hint="NAME")
    secret = new_secret()
    token = Token(
        name,
        digest_of(secret),
        Scope[scope.upper()],
        until_ms=None if until is None else _until_ms(until),
        jobs=tuple(_pattern("--job", each) for each in jobs),
        queues=tuple(_pattern("--queue", each) for each in queues),
        labels=tuple(_label(each) for each in labels),
        shows_results=shows_results,
    )
    if file is None:
        click.echo(secret)
        click.echo(token.line)
        return
    try:
        append_token(file, token)
    except TokenFileError as error:
        raise ConfigError(error.problems) from error
    click.echo(secret)
    say(f"{file} has the line of {name}; the token is not shown again", err=True)


def _until_ms(text: str) -> int:
    now_ms = SystemClock().wall_ms()
    try:
        found = until_of(text) if "-" in text else now_ms + round(parse_duration(text)) * 1000
        if now_ms < found < _YEAR_9999_MS:
            return found
    except (ValueError, OverflowError):
        pass
    forms = "a duration like 90d, a day like 2027-01-01, or an instant with an offset"
    raise click.BadParameter(f"{text!r} is not {forms}, or it is over", param_hint="--until")


def _pattern(option: str, text: str) -> str:
    if not _PATTERN.fullmatch(text):
        allowed = "letters, digits and . _ : / - * ? [ ] !"
        raise click.BadParameter(f"{text!r} has other characters than {allowed}", param_hint=option)
    return text


def _label(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return _pattern("--label", name), _pattern("--label", value)
