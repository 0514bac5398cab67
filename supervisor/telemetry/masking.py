"""Masking of printed values: those under secret names, and credentials inside text.

Masks by name and by shape, so it is the second line of defence: settings keep their secrets in ``SecretStr``.

Guarantees
    Time linear in the shown text, not in the given one: a text is cut first, then masked, and so is a name; of items
    of sequences and mappings the first are looked at, however deep they lie in one another.
    A secret that the cut divides is masked, as far as it is shown.
    A value that cannot be shown, because its ``repr`` raises, is named instead: nobody who logs gets an error.

Does not guarantee
    Anything of a secret that a job logs under an innocent name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, TypeVar

from supervisor.core.network import MARK, find_userinfo

_T = TypeVar("_T")

MASK = "***"
ITEMS_MAX = 100
"""Further items of a sequence or mapping are left out, unless the caller wants more; a mapping tells their number.
Of a value that holds others, ten times as many are shown altogether."""

NAME_CHARS_MAX = 200
"""Of a longer name the start is shown, and nothing of the value."""

DEPTH_MAX = 6
"""Deeper values are masked whole: nothing worth reading nests further."""

TEXT_CHARS_MAX = 64 * 1024
"""Of a longer text the start is shown, unless the caller wants less."""

_LEFT_OUT = "…"  # the name under which a mapping tells how many entries are left out
_OVERLAP_CHARS = 1024  # looked at beyond the cut, so that it is known what the cut divides

_NO_NAMES: frozenset[str] = frozenset()
_ANYWHERE = frozenset(
    {
        "password",
        "passwords",
        "passwd",
        "pwd",
        "passphrase",
        "secret",
        "secrets",
        "authorization",
        "cookie",
        "cookies",
        "apikey",
    }
    | {"credential", "credentials"}
)
_LAST = frozenset({"token", "pass", "auth", "dsn"})
_PAIRS = frozenset({("api", "key"), ("private", "key"), ("access", "key"), ("encryption", "key"), ("signing", "key")})
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# The first letter of each stands outside of what ignores case, and before what it may not follow: as a set of
# characters it is found ten times as fast.
_NAME = (
    r"""[pP](?i:ass(?:word|wd|phrase)|wd|rivate[_-]?key)|[sS](?i:ecret(?:[_-]?key)?|igning[_-]?key)"""
    r"""|[aA](?i:pi[_-]?key|ccess[_-]?key)|[eE](?i:ncryption[_-]?key)"""
)
_LAST_LETTERS = re.compile(rf"(?:{_NAME}|[tT](?i:oken))$")
_QUOTED = r""""(?:[^"\\]|\\[\s\S])*(?:"|\\?\Z)|'(?:[^'\\]|\\[\s\S])*(?:'|\\?\Z)"""
_ESCAPED = r"""\\+["'](?:[^"'\\]|\\+[^"'\\])*\\*(?:["']|\Z)"""  # quotes within a text that is quoted itself
_ASSIGNED = re.compile(
    rf"""(?:{_NAME}|[tT](?i:oken)|[cC](?i:redentials?)|[pP](?<=_.)(?i:ass)|[aA](?<!\w.)(?i:uth)"""
    r"""|[sS](?<=[?&-].)(?i:ig(?:nature)?))\s*=\s*"""
    rf"""(?P<value>{_QUOTED}|{_ESCAPED}|[^\s&"',;]+)"""
)
# As JSON and Python write a mapping: the name in quotes, which an encoder within another one escapes.
_ENTRY = re.compile(
    rf"""(?:{_NAME}|[tT](?i:oken)|[cC](?i:redentials?)|[aA](?i:uthorization))\\?['"]\s*:\s*"""
    r"""(?P<value>b?"(?:[^"\\]|\\[\s\S])*(?:"|\\?\Z)|b?'(?:[^'\\]|\\[\s\S])*(?:'|\\?\Z)"""
    r"""|\\"(?:[^"\\]|\\+[^"\\])*\\*(?:"|\Z)|(?!None|null)[^\s"',;:\[\]{}()\\]+)"""
)
_HEADER = re.compile(
    r"""[aA](?<!\w.)(?i:uthorization)['"]?\s*[:=]\s*['"]?"""
    r"""(?P<value>(?:(?i:basic|bearer|digest|token)\s+|[A-Za-z][A-Za-z0-9-]{1,32}\s+(?=[^\s'",]{0,256}\d))?[^\s'",]+)"""
)
_BEARER = re.compile(r"[bB](?<!\w.)(?i:earer)\s+(?P<value>[A-Za-z0-9._~+/=-]{8,})")
# As flags of a command line, also in a list of words: `--db-password x`, `['--token', 'x']`.
_FLAG = re.compile(
    r"""--(?:[A-Za-z0-9]{1,32}-){0,4}(?i:pass(?:word|wd|phrase)?|pwd|secret(?:-key)?|token|credentials?"""
    r"""|(?:api|access|private|encryption|signing)-?key|auth)(?:\s{1,8}|['"]\s?,\s?)(?!-)"""
    r"""(?P<value>"[^"]*(?:"|\Z)|'[^']*(?:'|\Z)|[^\s"',;]+)"""
)
# As YAML and prose write it. A word after `token:` is a secret only if it looks random: `unexpected token: SELECT`.
_LINE = re.compile(
    rf"""(?:{_NAME}|[tT](?i:oken)(?=:\s{{0,8}}["']?[^\s\d"',;]{{0,64}}\d)):\s{{0,8}}(?!//|None\b|null\b|\*\*\*)"""
    r"""(?P<value>"[^"]*(?:"|\Z)|'[^']*(?:'|\Z)|[^\s"',;{}\[\]()]+)"""
)
# Headers of HTTP, as they are or as entries of a mapping. A cookie reaches to the end of its line.
_COOKIE = re.compile(r"""[cC](?<!\w.)(?i:ookie)['"]?:\s{0,8}['"]?(?P<value>[^\r\n'"]+)""")
_OWN_HEADER = re.compile(
    r"""[xX](?<!\w.)-(?:[A-Za-z0-9]{1,32}-){0,4}(?i:key|token|secret|auth|password)['"]?:\s{0,8}['"]?(?P<value>[^\s'",]+)"""
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY-----(?P<value>(?:[^-]|-(?!----))*)"
)  # PEM: RFC 7468
# Each shape, and a URL, has something that is not in here: most names and many values are such words.
_WORD = re.compile(r"[\w./-]{0,200}")
_SHAPES = (_ASSIGNED, _ENTRY, _HEADER, _BEARER, _FLAG, _LINE, _COOKIE, _OWN_HEADER, _PRIVATE_KEY)


def is_secret_name(name: str) -> bool:
    """Return whether a value under ``name`` is to be hidden.

    By whole words, because ``access_token`` hides and ``tokens_deleted`` is a count; or by its end, as in text
    (``PGPASSWORD``). A longer name than any that people give is one: a secret word may stand anywhere in it.
    """
    return len(name) > NAME_CHARS_MAX or _is_secret(name)


@lru_cache(maxsize=2048)
def _is_secret(name: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words:
        return False
    return (
        bool(_LAST_LETTERS.search(name))
        or words[-1] in _LAST
        or not _ANYWHERE.isdisjoint(words)
        or any(pair in _PAIRS for pair in pairwise(words))
    )


_hidden: tuple[str, ...] = ()


@contextmanager
def hiding(values: tuple[str, ...]) -> Iterator[None]:
    """Mask these texts too, wherever they occur, until the end of the block: one run at a time knows secrets.

    For a process that executes one run at a time; the longest text first.
    """
    global _hidden  # noqa: PLW0603 - what a process must not print is one per process
    before, _hidden = _hidden, values
    try:
        yield
    finally:
        _hidden = before


def hidden_texts() -> tuple[str, ...]:
    """Return the texts that ``hiding`` masks at this moment."""
    return _hidden


def mask_text(text: str, chars: int = TEXT_CHARS_MAX, *, hidden: tuple[str, ...] | None = None) -> str:
    """Return ``text`` without secrets: those of URLs, assignments, flags and headers, and texts that are hidden now.

    Args:
        text: of any length.
        chars: how many of its characters may be shown; then follows how many were left out.
        hidden: the texts to hide; None: those that are hidden now.
    """
    hidden = _hidden if hidden is None else hidden
    if not hidden and len(text) <= chars and _WORD.fullmatch(text):
        return text
    seen = text[: chars + max((_OVERLAP_CHARS, *map(len, hidden)))]
    shown: list[str] = []
    at = 0
    for start, end in sorted(_secrets(seen, hidden, is_cut=len(seen) < len(text))):
        if start >= chars:
            break
        if start >= at:
            shown += (seen[at:start], MASK)
        at = max(at, end)
    shown.append(seen[at:chars])
    left_out = len(text) - chars
    return "".join(shown) if left_out <= 0 else f"{''.join(shown)[:chars]}…(+{left_out})"


def _secrets(text: str, hidden: tuple[str, ...], *, is_cut: bool) -> Iterator[tuple[int, int]]:
    """Yield start and end of each secret in ``text``."""
    for value in hidden:
        at = text.find(value)
        while at >= 0:
            yield at, at + len(value)
            at = text.find(value, at + len(value))
    if MARK in text:
        yield from find_userinfo(text, is_cut=is_cut)
    for shape in _SHAPES:
        for found in shape.finditer(text):
            yield found.span("value")


def text_of(value: Any, form: Callable[[Any], str] = str) -> str:
    """Return ``value`` as text, or which error its code raised instead."""
    try:
        return form(value)
    except Exception as error:  # noqa: BLE001 - any code may stand in __str__
        return _no_text(value, error)


def _no_text(value: Any, error: Exception) -> str:
    return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def mask(value: Any, *, also: frozenset[str] = _NO_NAMES, chars: int = TEXT_CHARS_MAX, items: int = ITEMS_MAX) -> Any:
    """Return ``value`` with secrets masked, through mappings and sequences.

    Args:
        value: of any type.
        also: further names of secrets.
        chars: how many characters of each text may be shown.
        items: how many items of each mapping and sequence may be shown; ten times as many altogether.
    """
    return _Masking(also, chars, items).value(value)


def mask_entry(
    name: str, value: Any, *, also: frozenset[str] = _NO_NAMES, chars: int = TEXT_CHARS_MAX, items: int = ITEMS_MAX
) -> Any:
    """Return ``value``, found under ``name``, masked for print; nothing, if that is among ``also``."""
    return MASK if _is_hidden(name, value, also) else mask(value, also=also, chars=chars, items=items)


def _is_hidden(name: str, value: Any, also: frozenset[str]) -> bool:
    if value is None or name in also:
        return value is not None
    return is_secret_name(name) and not isinstance(value, bool) and not (isinstance(value, str) and not value)


class _Masking:
    """Masking of one value with all that it holds."""

    __slots__ = ("_also", "_chars", "_items", "_left")

    def __init__(self, also: frozenset[str], chars: int, items: int) -> None:
        self._also = also
        self._chars = chars
        self._items = items
        self._left = 10 * items  # lists of lists of lists are as long as all of them together

    def value(self, value: Any, depth: int = 0) -> Any:
        try:
            return self._shown(value, depth)
        except Exception as error:  # noqa: BLE001 - any code may stand in what a mapping, a sequence or __str__ does
            return _no_text(value, error)

    def _shown(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return mask_text(value, self._chars)
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping | list | tuple | set | frozenset) and depth >= DEPTH_MAX:
            return MASK
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, list | tuple | set | frozenset):
            return [self.value(item, depth + 1) for item in self._first(value)]
        # Anything else shows itself as text, because an encoder would walk its fields past this mask.
        return self.value(value.value, depth) if isinstance(value, Enum) else mask_text(str(value), self._chars)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, item in self._first(value.items()):
            whole = str(key)
            name = mask_text(whole, NAME_CHARS_MAX)  # it can be a URL, a header or a flag
            if name in shown:  # two names that differ in a secret
                name = f"{name} ({len(shown) + 1})"
            shown[name] = MASK if _is_hidden(whole, item, self._also) else self.value(item, depth + 1)
        if (left_out := len(value) - len(shown)) > 0:
            shown[_LEFT_OUT] = f"+{left_out}"
        return shown

    def _first(self, items: Iterable[_T]) -> Iterator[_T]:
        for item in islice(items, self._items):
            if self._left == 0:
                return
            self._left -= 1
            yield item


def drop_causes(error: BaseException) -> None:
    """Take the errors behind ``error`` and its notes away: of one that must keep its type, such as a soft timeout."""
    error.__cause__ = error.__context__ = None
    vars(error).pop("__notes__", None)
