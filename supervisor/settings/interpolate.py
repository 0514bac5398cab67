"""``${file:/path}`` and ``${env:NAME}`` in values; ``$${`` means ``${``.

The value of such a reference is a secret from then on: the node keeps the text as it was
written, and everything that shows settings shows that text. What describes a schedule to all
who may read it takes none. Other uses of ``${…}``, such as a shell command's own variables,
are left alone. Of secrets of Redis a file is read again while the program runs.

Does not guarantee
    That a secret in a job's arguments stays on this machine: arguments travel through Redis.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path as FilePath

from pydantic import SecretStr

from supervisor.core.errors import Problem
from supervisor.settings.base import Path
from supervisor.settings.document import Node, format_path
from supervisor.settings.masking import REFERENCE
from supervisor.settings.scalars import Trap, is_utf8, resolve
from supervisor.settings.schema import Shape, ShapeKind
from supervisor.settings.sections.models import Settings
from supervisor.trust import open_regular

SECRET_BYTES_MAX = 64 * 1024
FOLLOWED = ("password", "sentinel_password")
_TOKEN = re.compile(rf"\$\$\{{|{REFERENCE.pattern}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DESCRIBES = frozenset({"description", "labels", "owner", "pause_reason"})
_IN_FILE = re.compile(r"(.+):[0-9]+\Z", re.DOTALL)
_AMBIGUOUS = re.compile(r"(?<=\$)\$\{|\$\{(?=env:|file:)")


class UnusableReferenceError(Exception):
    """A reference that cannot be resolved; the message never holds its value."""


def escape(text: str) -> str:
    """Return ``text`` so that reading it again gives ``text``, whatever looks like a reference in it."""
    return _AMBIGUOUS.sub("$${", text)


def interpolate(root: Node, shape: Shape, environ: Mapping[str, str], problems: list[Problem]) -> Node:
    """Return the tree with every reference resolved; ``problems`` takes the unresolvable ones."""

    def replaced(node: Node, path: Path) -> Node:
        if not isinstance(node.value, str) or "${" not in node.value:
            return node
        try:
            return _resolved(node, shape.at(path), path, environ)
        except UnusableReferenceError as error:
            problems.append(Problem(node.origin, format_path(path), str(error), "or write $${ for a literal ${"))
            return Node(None, node.origin, source=node.value)

    return root.mapped(replaced)


def _describes_schedule(path: Path) -> bool:
    return path[:1] == ("schedules",) and not _DESCRIBES.isdisjoint(path[2:3])


def _resolved(node: Node, shape: Shape | None, path: Path, environ: Mapping[str, str]) -> Node:
    text = str(node.value)
    base = directory_of(node.origin)
    value = _TOKEN.sub(lambda match: _replacement(match, environ, base), text)
    if REFERENCE.search(text.replace("$${", "")) is None:
        return Node(value, node.origin)
    if _describes_schedule(path):
        raise UnusableReferenceError("is shown to all who may read: write the text itself, not a reference to it")
    if shape is not None and shape.kind is ShapeKind.VALUE:
        typed = resolve(value)
        if isinstance(typed, Trap):
            raise UnusableReferenceError(f"the value of {text} {typed.reason}")
        return Node(typed, node.origin, source=text)
    return Node(value, node.origin, source=text)


def directory_of(origin: str) -> FilePath:
    """Return the base of relative paths: the directory of the file that holds the value, else the current one."""
    match = _IN_FILE.match(origin)
    return FilePath(match[1]).parent if match else FilePath()


def read_again(text: str, base: FilePath) -> str:
    """Return the current value of ``text``, without variables and once resolved.

    Raises:
        UnusableReferenceError: one of its files cannot be read; the message names it.
    """
    return _TOKEN.sub(lambda match: _replacement(match, {}, base), text)


def with_variables(text: str, environ: Mapping[str, str]) -> str:
    """Return ``text`` with its variables resolved and its files not: reading it again gives the same.

    Raises:
        UnusableReferenceError: a variable is not set.
    """
    return _TOKEN.sub(lambda match: escape(_variable(match[2], environ)) if match[1] == "env" else match[0], text)


def _replacement(match: re.Match[str], environ: Mapping[str, str], base: FilePath) -> str:
    if match[1] is None:
        return "${"
    return _variable(match[2], environ) if match[1] == "env" else _file(match[2], base)


def _variable(name: str, environ: Mapping[str, str]) -> str:
    if not _NAME.match(name):
        raise UnusableReferenceError(f"${{env:{name}}} does not name a variable")
    if name not in environ:
        raise UnusableReferenceError(f"the environment variable {name} is not set")
    if not is_utf8(environ[name]):
        raise UnusableReferenceError(f"the environment variable {name} is not UTF-8")
    return environ[name]


def _file(name: str, base: FilePath) -> str:
    """Return the text of a file, without the newline that editors and ``echo`` put at its end."""
    path = base / name
    try:
        with os.fdopen(open_regular(path, follows=True), "rb") as file:
            raw = file.read(SECRET_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise UnusableReferenceError(f"the file {path} cannot be read: {reason}") from None
    if len(raw) > SECRET_BYTES_MAX:
        raise UnusableReferenceError(f"the file {path} is larger than {SECRET_BYTES_MAX // 1024} KiB")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise UnusableReferenceError(f"the file {path} is not UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r")


class FollowedSecret(SecretStr):
    """A secret that ``${file:…}`` brought in. Two that name the same file are equal, whatever it holds by now."""

    def __init__(self, value: str, *, text: str, base: FilePath) -> None:
        """Take the value, the text with its files, and the directory from which a relative path counts."""
        super().__init__(value)
        self._named = (text, base)

    @property
    def named(self) -> tuple[str, FilePath]:
        """The text and the directory. A part that came from a variable is in there by its value: it is secret."""
        return self._named

    def current(self) -> str:
        """Return the current content of the file; the content at the start while it cannot be read."""
        try:
            return read_again(*self._named)
        except UnusableReferenceError:
            return self.get_secret_value()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FollowedSecret) and self._named == other._named

    def __hash__(self) -> int:
        return hash(self._named)


def follow_files(settings: Settings, root: Node, environ: Mapping[str, str]) -> Settings:
    """Return ``settings`` with secrets of Redis that follow their files; ``root`` is their source.

    Variables are read now: a tree empties its environment of secrets.
    """
    section = root.child("redis")
    found = {}
    for name in FOLLOWED:
        node, secret = section.child(name) if section else None, getattr(settings.redis, name)
        if secret is not None and node is not None and "${file:" in (node.source or ""):
            base = directory_of(node.origin).absolute()
            text = with_variables(str(node.source), environ)
            found[name] = FollowedSecret(secret.get_secret_value(), text=text, base=base)
    return settings.model_copy(update={"redis": settings.redis.model_copy(update=found)}) if found else settings
