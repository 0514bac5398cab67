"""The Lua scripts: loading, and calls whose names are checked against each script's header.

The header is the contract. ``KEYS`` and ``ARGV`` in it name the parameters, one per line; a
name that ends in ``...`` is last and takes any number of values. A call that misses a name or
invents one fails in Python, before Redis sees it.
Under ``Returns`` are its replies; besides, any script answers ``BADARG`` and the fault to
arguments that it cannot use, before it writes, and Redis' ``WRONGTYPE`` where a key is not ours; one that
includes ``term`` answers ``FENCED`` and the current epoch to any other term, before anything else.

The names are local variables of the script: a prelude on its first line binds them. An error counts its
lines in ``Script.source``, in which what a script includes stands in front of it. Values are the texts that
Redis was sent; of an argument that an older client does not send the value is nil. Where the last name
takes any number of values, ``FIRST`` is the place of the first one in ``ARGV``.

Keys are named, not spelled: ``keys.ready(queue, kind, priority)`` becomes the concatenation that
``key_table`` defines, behind the prefix of the cluster, which must be the script's first key.
``parts`` in place of ``keys`` is the part behind the prefix of the queue.

A script may have the line ``-- Includes  name``: ``lua/lib/name.lua`` is put in front of it, so that code
shared by two scripts is written once. A library may have it too. Keys and arguments that a library names
in its header are those of the script that includes it.

Redis takes the declared keys of a script for written ones. So one that is for users who may only read them declares the
bare prefix, and names its keys, or is given what follows the prefix in theirs; all of a cluster have one slot.

A server makes every function of a script anew at each call, which is a large part of the cost of a short one. So
functions of libraries that a script does not use are left out; those that a script has under ``Deferred``, by their
names or by that of their library, since most calls need none of them, are made when the first of them is called; and a
script with many variables is nested, because Lua looks a variable of the same function up one by one, an outer one at
once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from supervisor.core.effects import Argument, Call
from supervisor.store.key_table import PIECES

if TYPE_CHECKING:
    from supervisor.store.keys import Keys

__all__ = ["Argument", "Call", "CallBuilder", "Script", "script", "script_names"]

T = TypeVar("T")
_Part = tuple[str, set[str]]  # Lua and its words
NO_KEYS: Mapping[str, str] = MappingProxyType({})
_SECTION = re.compile(r"--\s+(KEYS|ARGV|Includes|Deferred|Returns|Reads)\b\s*(.*)")
_KEY = re.compile(r"(?<![\w.])(keys|parts)\.([a-z_]+)(\()?")
_TOKEN = re.compile(r"'[^']*'|[][(){},]")
_NAME = re.compile(r"([a-z_]+(?:\.\.\.)?)(?:\s|$)")
# Lua of a library between two of its functions, or such a function: it ends in its line, or with the next bare `end`.
_BLOCK = re.compile(
    r"^local function (\w+)(?:.*\bend\b *(?:--.*)?\n|(?s:.*?)^end\b.*\n)|(?s:.+?)(?=^local function|\Z)", re.MULTILINE
)
_NEAR_MAX = 30  # variables of one function of a script; measured for `turn`: 20 and 40 cost 1 % more
_WORD = re.compile(r"^[ \t]*--.*|(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the names of its parameters."""

    name: str
    source: str
    sha: str
    key_names: tuple[str, ...]
    arg_names: tuple[str, ...]
    rest: str | None  # the argument that takes any number of values

    def call(self, *, keys: Mapping[str, str], args: Mapping[str, object], parse: Callable[[Any], T]) -> Call[T]:
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
        """Return the argument ``name`` of ``call``; None when the script has no such argument."""
        return call.args[self.arg_names.index(name)] if name in self.arg_names else None


@cache
def script(name: str) -> Script:
    """Return the script of that name, in whichever folder of ``lua`` it is."""
    source = _read(name)
    sections = _sections(name, source)
    names = sections["ARGV"]
    rest = names[-1][:-3] if names and names[-1].endswith("...") else None
    names = names[:-1] if rest else names
    assert not any(item.endswith("...") for item in [*names, *sections["KEYS"]])
    keys = sections["KEYS"]
    text = _prelude(keys, names, rest) + _with_keys(source)
    parts = [(text, _words(text))]
    for library in reversed(_with_theirs(sections["Includes"])):
        known = set().union(*(words for _, words in parts))
        front, words = _used(_library(library, keys, names), known)
        front, parts = _deferred(library, front, parts, sections["Deferred"])
        parts.append((f"{front}\n", words))
    body = _nested([part for part, _ in parts])
    assert "KEYS[1] .." not in body or keys[0] == "prefix", f"script {name}: keys are named, so its first key is prefix"
    digest = sha1(body.encode(), usedforsecurity=False).hexdigest()
    return Script(name, body, digest, keys, names, rest)


class CallBuilder:
    """Builds calls of scripts on the keys of one cluster."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys

    def _call(
        self, name: str, args: Mapping[str, object], parse: Callable[[Any], T], *, keys: Mapping[str, str] = NO_KEYS
    ) -> Call[T]:
        """Return the call of a script; a key of its header that is not in ``keys`` is that of its name."""
        item = script(name)
        named = {key: getattr(self.keys, key) for key in item.key_names if key not in keys}
        return item.call(keys={**named, **keys}, args=args, parse=parse)

    def _hash(self, key: str, parse: Callable[[Any], T]) -> Call[T]:
        """Return the call that reads a small hash; it declares the prefix, as those may who write no such key."""
        return self._call("hash_read", {"name": self._behind_prefix(key)}, parse)

    def _behind_prefix(self, key: str) -> str:
        return key.removeprefix(self.keys.prefix)


def script_names() -> list[str]:
    """Return the name of every script there is."""
    return sorted(name for name in _files() if "/" not in name)


def _with_theirs(libraries: Sequence[str]) -> list[str]:
    """Return libraries in their order, each once and behind those that it includes itself."""
    found: dict[str, None] = {}
    for library in libraries:
        theirs = _sections(library, _read(f"lib/{library}"))["Includes"]
        found |= dict.fromkeys([*_with_theirs(theirs), library])
    return list(found)


def _words(lua: str) -> set[str]:
    """Return the words of Lua, but those of lines of comment."""
    return {found[1] for found in _WORD.finditer(lua)}


@cache
def _blocks(library: str) -> tuple[tuple[str, str | None, set[str]], ...]:
    """Return the functions of a library and what is between them: text, name of the function, and words."""
    return tuple((block[0], block[1], _words(block[0])) for block in _BLOCK.finditer(library))


def _used(library: str, known: set[str]) -> tuple[str, set[str]]:
    """Return a library, and its words, without functions that neither ``known`` nor a later block that is kept names.

    A local function is known only behind its line, so the blocks are gone through from the last to the first. Too much
    may be kept, never too little.
    """
    kept: list[str] = []
    words: set[str] = set()
    for text, function, its_words in reversed(_blocks(library)):
        if function is None or function in known or function in words:
            kept.append(text)
            words |= its_words
    return "".join(reversed(kept)), words


def _deferred(name: str, library: str, parts: list[_Part], chosen: Sequence[str]) -> tuple[str, list[_Part]]:
    """Return a library whose ``chosen`` functions are made by the first use of one, and the parts behind it.

    With them are made those that nothing else uses. The name of the library stands for all of its functions.
    """
    blocks, known = _blocks(library), set().union(*(words for _, words in parts))
    late = {function for _, function, _ in blocks if function and (name in chosen or function in chosen)}
    for _, function, _ in reversed(blocks):
        users = {user for _, user, words in blocks if function in words and user != function}
        if function and users and users <= late and function not in known:
            late.add(function)
    if not late:
        return library, parts
    early = [(text, words) for text, function, words in blocks if function not in late]
    assert all(late.isdisjoint(words) for _, words in early), (
        f"library {name}: one that is not deferred uses one that is"
    )
    functions = [function for _, function, _ in blocks if function in late and function in known]
    use = re.compile(rf"--.*|(?<![\w.'])({'|'.join(functions)})\b(?! =[^=])")
    later = [
        (use.sub(lambda found: f"{name}_lib().{found[1]}" if found[1] else found[0], text), words)
        if not words.isdisjoint(functions) else (text, words)
        for text, words in parts
    ]  # fmt: skip
    made = "".join(text for text, function, _ in blocks if function in late)
    fields = ", ".join(f"{function} = {function}" for function in functions)
    before = "".join(text for text, _ in early)
    front = f"{before}local {name}_made\nlocal function {name}_lib()\nif {name}_made then return {name}_made end\n"
    return f"{front}{made}{name}_made = {{ {fields} }}\nreturn {name}_made\nend\n", later


def _nested(parts: Sequence[str]) -> str:
    """Return the text of parts, the last of them first; behind many variables the rest is a function of its own."""
    body, near = "", 0
    for part in parts:
        if near > _NEAR_MAX:
            body, near = f"return (function() {body}end)()", 0
        body, near = part + body, near + part.count("\nlocal ")
    return body


def _library(name: str, keys: Sequence[str], args: Sequence[str]) -> str:
    source = _read(f"lib/{name}")
    sections = _sections(name, source)
    given = [
        f"KEYS[{keys.index(key) + 1}]" if key in keys else f"KEYS[1] .. ARGV[{args.index(key) + 1}]"
        for key in sections["KEYS"]
    ]
    bound = f"local {', '.join(sections['KEYS'])} = {', '.join(given)} " if given else ""
    return bound + _bound("ARGV", sections["ARGV"], args) + _with_keys(source)


def _prelude(keys: Sequence[str], args: Sequence[str], rest: str | None) -> str:
    """Return the beginning of a script's first line: it binds the parameters' names.

    Behind the libraries: a function pays for each variable that it uses and that is declared far above it.
    """
    first = f"local FIRST = {len(args) + 1} " if rest else ""
    return f"local ARGV = ARGV {_bound('KEYS', keys, keys)}{_bound('ARGV', args, args)}{first}"


def _bound(table: str, names: Sequence[str], places: Sequence[str]) -> str:
    values = ", ".join(f"{table}[{places.index(name) + 1}]" for name in names)
    return f"local {', '.join(names)} = {values} " if names else ""


@cache
def _with_keys(source: str) -> str:
    """Return Lua in which the names of keys are replaced by their spelling."""
    done, at = [], 0
    while found := _KEY.search(source, at):
        values, end = _values(source, found.end()) if found[3] else ([], found.end())
        done += [source[at : found.start()], _spelled(found[1], found[2], values)]
        at = end
    return "".join([*done, source[at:]])


def _values(source: str, at: int) -> tuple[list[str], int]:
    """Return the arguments of a call whose bracket was opened before ``at``, and where it ends."""
    values, depth, start = [], 0, at
    for token in _TOKEN.finditer(source, at):
        if token[0] in "([{":
            depth += 1
        elif depth:
            depth -= token[0] in ")]}"
        elif token[0] in ",)":
            values.append(_with_keys(source[start : token.start()].strip()))
            start = token.end()
            if token[0] == ")":
                break
    return values, start


def _spelled(kind: str, name: str, values: Sequence[str]) -> str:
    """Return the concatenation that makes a key, in which constants that are neighbours are one."""
    first, *others = PIECES[name]
    terms = ["KEYS[1]", f"'{first}'"]
    if kind == "parts":
        terms, others = [f"'{others[0][1:]}'"], others[1:]
    for value, piece in zip(values, others, strict=True):
        terms += [f"({value})" if re.search(r"\b(and|or)\b", value) else value, f"'{piece}'"]
    return "(" + " .. ".join(terms).replace("' .. '", "").removesuffix(" .. ''") + ")"


@cache
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


@cache
def _sections(name: str, source: str) -> dict[str, tuple[str, ...]]:
    """Return the parameter names of each section of the header; prose goes by indentation."""
    found: dict[str, list[str]] = {"KEYS": [], "ARGV": [], "Includes": [], "Deferred": []}
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
    return {section: tuple(names) for section, names in found.items()}
