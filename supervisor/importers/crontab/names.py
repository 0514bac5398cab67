"""Names of the commands of a crontab, for the ids of schedules.

Guarantees
    Letters, digits, ``_`` and ``-``, at most 40. Of what a command is given only the name of a file is in it, and that
    only where the command runs other programs: arguments may be secrets, and ids are shown to everybody.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from supervisor.importers.crontab.shell import ShellToken, tokens

UNNAMED = "command"
_CHARACTERS_MAX = 40
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*])?\+?=", re.ASCII)
_FILE = re.compile(r"(?:~|\.{0,2})/[\w.+/-]+", re.ASCII)
_OTHER = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)
_CLOSING = {"(": ")", "`": "`"}
_PREPARING = frozenset(
    {"cd", "test", "[", "export", "set", "umask", "sleep", ".", "source", "ulimit", "command", "which", "type", "true"}
)
_RUNNING = re.compile(
    r"(?:ba|da|z|k|)sh|python[\d.]*|php[\d.]*|perl|ruby|node|java|Rscript|env|sudo|su|runuser|setpriv|nice|ionice|flock"
    r"|timeout|nohup|setsid|chronic|exec|time|run-parts|systemd-cat"
)


def name_of(command: str) -> str:
    """Return the name of the program that ``command`` runs, with the name of the file that this one runs."""
    for words in _simple_commands(command):
        program = posixpath.basename(words[0])
        if program in _PREPARING:
            continue
        files = filter(_FILE.fullmatch, words[1:] if _RUNNING.fullmatch(program) else ())
        name = _OTHER.sub("-", f"{program}-{posixpath.basename(next(files, ''))}").strip("-")
        if name:
            return name[:_CHARACTERS_MAX].strip("-")
    return UNNAMED


def _simple_commands(command: str) -> Iterator[list[str]]:
    """Return the words of each command of a line of shell, without assignments and redirections."""
    words: list[str] = []
    is_target = False
    assigned = -1  # where an assignment ends so far: what stands directly behind is part of its value
    line = tokens(command)
    for token in line:
        if not token.is_operator:
            if is_target:
                is_target = False
            elif token.start == assigned or _ASSIGNMENT.match(token.text):
                assigned = token.end
            else:
                words.append(token.text)
        elif token.start == assigned and token.text in _CLOSING:
            assigned = _end_of_value(line, token.text)
        else:
            is_target = "<" in token.text or ">" in token.text
            if not is_target and words:
                yield words
                words = []
    if words:
        yield words


def _end_of_value(line: Iterator[ShellToken], opening: str) -> int:
    """Go past an array or a substitution; return its end, -1 where nothing ends it."""
    depth = 1
    for token in line:
        if token.is_operator and token.text == _CLOSING[opening]:
            depth -= 1
        elif token.is_operator and token.text == opening:
            depth += 1
        if not depth:
            return token.end
    return -1
