"""Names of the commands of a crontab, for the ids of schedules.

Guarantees
    Letters, digits, ``_`` and ``-``, at most 40. Of what a command is given only the name of a file is in it, and that
    only where the command runs other programs: arguments may be secrets, and ids are shown to everybody.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator

UNNAMED = "command"
_CHARACTERS_MAX = 40
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*])?\+?=", re.ASCII)
_FILE = re.compile(r"(?:~|\.{0,2})/[\w.+/-]+", re.ASCII)
_OTHER = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)
_OPERATORS = "();<>|&`"
_OPERATOR = re.compile(rf"[{_OPERATORS}]+")
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
    lexer = shlex.shlex(command, posix=True, punctuation_chars=_OPERATORS)
    lexer.commenters, lexer.whitespace_split = "", True
    try:
        for word in lexer:
            if _OPERATOR.fullmatch(word):
                is_target = "<" in word or ">" in word
                if not is_target and words:
                    yield words
                    words = []
            elif is_target:
                is_target = False
            elif words or not _ASSIGNMENT.match(word):
                words.append(word)
    except ValueError:  # a quote that nothing ends: what follows it belongs to no word
        return
    if words:
        yield words
