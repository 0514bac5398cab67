"""The lines of a crontab: settings, entries, comments, and the effect of ``%`` on a command."""

from __future__ import annotations

import re
from typing import NamedTuple

from supervisor.core.cron.expression import CronError, compile_cron

BLANK = " \t"
_SETTING = re.compile(
    r"""[ \t]*(?:"(?P<dname>[^"]*)"|'(?P<sname>[^']*)'|(?P<name>[^ \t=]+))[ \t]*=[ \t]*"""
    r"""(?:"(?P<dvalue>[^"]*)"[ \t]*|'(?P<svalue>[^']*)'[ \t]*|(?P<value>(?!["']).*))"""
)
_ALIAS = re.compile(r"[ \t]*(?P<when>@[^ \t]*)(?:[ \t]+(?P<rest>.*))?")
_FIVE = re.compile(r"[ \t]*(?P<when>[^ \t]+(?:[ \t]+[^ \t]+){4})(?:[ \t]+(?P<rest>.*))?")
_DRAWING = re.compile(r"[^\w\"'(]*\Z|[|*]|[.+-]-")  # a ruler or the picture of the fields in /etc/crontab
# A setting or a path at the start; anywhere an entry, also of another cron or behind a word, an option or a pipe:
# what belongs to a command may be a password.
_SWITCHED_OFF = re.compile(
    r"\A(?:(?:export[ \t]+)?[A-Za-z_]\w*[ \t]*=|[~.]{0,2}/)"
    r"|(?<!\S)(?:@[a-z]+[ \t]|--?[A-Za-z])|(?:[0-9*][0-9*,/~-]{0,60}[ \t]+){2}|\|",
    re.ASCII,
)


class Setting(NamedTuple):
    """``NAME=value``, without the quotes around either."""

    name: str
    value: str


class Timed(NamedTuple):
    """An entry, before it is known whether its time can be read."""

    when: str  # five fields, or an alias
    rest: str  # empty when nothing follows


def lines(text: str) -> list[str]:
    """Return the lines of a crontab; a carriage return before the line break is left out."""
    # Only \n ends a line: str.splitlines would also break at characters that a command may hold.
    return [line.removesuffix("\r") for line in text.split("\n")]


def setting(line: str) -> Setting | None:
    """Return the setting that ``line`` is, by the rules of crontab(5), or None."""
    match = _SETTING.fullmatch(line)
    if match is None:
        return None
    name = next(text for text in match.group("dname", "sname", "name") if text is not None)
    quoted = match["dvalue"] if match["dvalue"] is not None else match["svalue"]
    return Setting(name, match["value"].rstrip(BLANK) if quoted is None else quoted)


def timed(line: str) -> Timed | None:
    """Return the entry that ``line`` looks like, or None."""
    stripped = line.strip(BLANK)
    match = (_ALIAS if stripped.startswith("@") else _FIVE).fullmatch(stripped)
    return Timed(match["when"], match["rest"] or "") if match else None


def first_word(text: str) -> tuple[str, str]:
    """Return the first word of ``text``, and the rest without the blanks between."""
    word, *rest = re.split(r"[ \t]+", text.strip(BLANK), maxsplit=1)
    return word, rest[0] if rest else ""


def describes(comment: str) -> bool:
    """Return whether a comment is prose: no ruler, no picture of the fields, nothing that was switched off."""
    if _DRAWING.match(comment) or _SWITCHED_OFF.search(comment):
        return False
    entry = timed(comment)
    if entry is None or not entry.rest:
        return True
    try:
        compile_cron(entry.when)
    except CronError:
        return True
    return False


def split_command(text: str) -> tuple[str, str | None]:
    r"""Return the command and its standard input: they are separated by the first bare ``%``.

    ``\%`` is a ``%``. In the input every other ``%`` is a line break, and a last line that
    has none gets one, as cron writes it.
    """
    command, rest = _until_percent(text)
    if rest is None:
        return command, None
    stdin = re.sub(r"\\?%", lambda match: "\n" if match[0] == "%" else "%", rest)
    return command, f"{stdin}\n" if stdin and not stdin.endswith("\n") else stdin


def _until_percent(text: str) -> tuple[str, str | None]:
    command: list[str] = []
    characters = iter(enumerate(text))
    for index, character in characters:
        if character == "%":
            return "".join(command), text[index + 1 :]
        if character == "\\":
            # A backslash protects the next character, and itself goes only before a %.
            _, following = next(characters, (index, ""))
            command.append("%" if following == "%" else f"\\{following}")
        else:
            command.append(character)
    return "".join(command), None
