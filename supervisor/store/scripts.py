"""The Lua scripts: loading, and calls whose names are checked against each script's header.

The header is the contract. ``KEYS`` and ``ARGV`` in it name the parameters, one per line; a
name that ends in ``...`` is last and takes any number of values. A call that misses a name or
invents one fails in Python, before Redis sees it.

The names are local variables of the script: a prelude on its first line binds them, so that the
lines of an error are those of the text. Values are the texts that Redis was sent; of an argument
that an older client does not send the value is nil. Where the last name takes any number of
values, ``FIRST`` is the place of the first one in ``ARGV``.

A script may say ``-- Includes  name``: ``lua/lib/name.lua`` is put in front of it, so that what
two scripts must do alike is written once. The keys that a library names in its header are those
of the script that includes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Argument = str | bytes | int | float
_SECTION = re.compile(r"--\s+(KEYS|ARGV|Includes|Returns|Reads)\b\s*(.*)")
_NAME = re.compile(r"([a-z_]+(?:\.\.\.)?)(?:\s|$)")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call of a script, ready to send by whoever has a connection."""

    script: str
    keys: tuple[str, ...]
    args: tuple[Argument, ...]
    parse: Callable[[Any], T]


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the names of its parameters."""

    name: str
    source: str
    sha: str
    key_names: tuple[str, ...]
    arg_names: tuple[str, ...]
    rest: str | None  # the argument that takes any number of values

    def call(
        self,
        *,
        keys: Mapping[str, str],
        args: Mapping[str, object],
        parse: Callable[[Any], T],
    ) -> Call[T]:
        """Return the call.

        Raises:
            TypeError: the names are not those of the header.
        """
        expected = set(self.arg_names) | ({self.rest} if self.rest else set())
        if set(keys) != set(self.key_names) or set(args) != expected:
            raise TypeError(
                f"script {self.name} takes keys {sorted(self.key_names)} and args {sorted(expected)}, "
                f"got {sorted(keys)} and {sorted(args)}"
            )
        values: list[Argument] = []
        for name in self.arg_names:
            value = args[name]
            assert isinstance(value, str | bytes | int | float)
            values.append(value)
        if self.rest:
            rest = args[self.rest]
            assert isinstance(rest, Sequence) and not isinstance(rest, str | bytes), self.rest  # noqa: PT018 - one fact
            values.extend(rest)
        return Call(self.name, tuple(keys[name] for name in self.key_names), tuple(values), parse)

    def argument(self, call: Call[Any], name: str) -> Argument | None:
        """Return what ``call`` passes as ``name``; None when the script has no such argument."""
        return call.args[self.arg_names.index(name)] if name in self.arg_names else None


@cache
def script(name: str) -> Script:
    """Return the script of that name, in whichever folder of ``lua`` it is."""
    source = _read(name)
    sections = _sections(name, source)
    names = sections["ARGV"]
    rest = names.pop()[:-3] if names and names[-1].endswith("...") else None
    assert not any(item.endswith("...") for item in [*names, *sections["KEYS"]])
    body = _prelude(sections["KEYS"], names, rest)
    body += "\n".join([_read(f"lib/{library}") for library in sections["Includes"]] + [source])
    digest = sha1(body.encode(), usedforsecurity=False).hexdigest()
    return Script(name, body, digest, tuple(sections["KEYS"]), tuple(names), rest)


def read_hash(prefix: str, key: str, parse: Callable[[Any], T]) -> Call[T]:
    """Return the call that reads the small hash ``key``; it declares the prefix, as those may who write no such key."""
    return script("hash_read").call(keys={"prefix": prefix}, args={"name": key.removeprefix(prefix)}, parse=parse)


def script_names() -> list[str]:
    """Return the name of every script there is."""
    return sorted(name for name in _files() if "/" not in name)


def _prelude(keys: Sequence[str], args: Sequence[str], rest: str | None) -> str:
    """Return the beginning of a script's first line: it binds the parameters' names."""
    parts = ["KEYS, ARGV = KEYS, ARGV"]  # a local costs less than a global
    for table, names in (("KEYS", keys), ("ARGV", args)):
        if names:
            values = ", ".join(f"{table}[{place}]" for place in range(1, len(names) + 1))
            parts.append(f"{', '.join(names)} = {values}")
    if rest:
        parts.append(f"FIRST = {len(args) + 1}")
    return "".join(f"local {part} " for part in parts)


def _read(name: str) -> str:
    """Return the text of a script, or of a library: ``lib/`` and its name."""
    return _files()[name].read_text("utf-8")


@cache
def _files() -> dict[str, Traversable]:
    """Return the file of every script and library, in whichever folder of ``lua`` it is."""
    root = resources.files("supervisor.store").joinpath("lua")
    found: dict[str, Traversable] = {}
    for folder in [root, *(inner for inner in root.iterdir() if inner.is_dir())]:
        for file in folder.iterdir():
            name = ("lib/" if folder.name == "lib" else "") + file.name.removesuffix(".lua")
            assert name not in found, f"two scripts are called {name}"
            if file.name.endswith(".lua"):
                found[name] = file
    return found


def _sections(name: str, source: str) -> dict[str, list[str]]:
    """Return the parameter names of each section of the header; prose goes by indentation."""
    found: dict[str, list[str]] = {"KEYS": [], "ARGV": [], "Includes": []}
    section, column = "", 0
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        start = _SECTION.match(line)
        if start:
            section, column = start[1], start.start(2)
        if section in found and line[column : column + 1].strip() and not line[2:column].strip(" " + section):
            word = _NAME.match(line, column)
            assert word, f"script {name}: no parameter name in {line!r}"
            found[section].append(word[1])
    return found
