"""Words and operators of a line of shell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

# Possessive repeats would say the same shorter, but match wrongly before Python 3.11.5 (python/cpython#106052).
_SUBSTITUTION = r"\$\([^()]*\)"  # in double quotes, where it may hold quotes of its own
_IN_DOUBLE_QUOTES = rf"(?:\\.|{_SUBSTITUTION}|(?!{_SUBSTITUTION})[^\"\\])*"
_QUOTED = rf"""\\.|\$?'[^']*'|"{_IN_DOUBLE_QUOTES}\""""
_TOKEN = re.compile(
    rf"""(?P<comment>\#[^\n]*)|(?P<operator>&&|&>>?|;;?&?|\|[|&]?|[<>]+[&|]?|[&()`])"""
    rf"""|(?P<word>(?:{_QUOTED}|\(\([^()]*\)\)|[^\s;&|<>()`'"\\])+)|(?P<unended>["'\\])|\s+""",
    re.DOTALL,
)
_UNQUOTED = re.compile(rf"""'([^']*)'|"({_IN_DOUBLE_QUOTES})"|\\(.)""", re.DOTALL)


class ShellToken(NamedTuple):
    """One word or operator, and where it stands."""

    text: str  # of a word without its quotes
    start: int
    end: int
    is_operator: bool


def tokens(command: str) -> Iterator[ShellToken]:
    """Return the words and operators of ``command``, without comments, up to a quote that nothing ends."""
    for match in _TOKEN.finditer(command):
        if match["operator"]:
            yield ShellToken(match[0], *match.span(), is_operator=True)
        elif match["word"]:
            yield ShellToken(_UNQUOTED.sub(r"\1\2\3", match[0]), *match.span(), is_operator=False)
        elif match["unended"]:
            return
