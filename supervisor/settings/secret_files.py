"""Secrets that are read again while the program runs: those of Redis, where a file is named for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath

from pydantic import SecretStr

from supervisor.settings.document import Node
from supervisor.settings.interpolate import UnusableReferenceError, directory_of, read_again, with_variables
from supervisor.settings.sections.models import Settings

FOLLOWED = ("password", "sentinel_password")


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
