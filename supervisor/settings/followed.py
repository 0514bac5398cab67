"""Secrets that are read again while the program runs: those of Redis, where a file is named for them."""

from __future__ import annotations

from pathlib import Path as FilePath

from pydantic import SecretStr

from supervisor.settings.interpolate import UnusableReferenceError, directory_of, read_again
from supervisor.settings.models import Settings
from supervisor.settings.nodes import Node

FOLLOWED = ("password", "sentinel_password")


class FollowedSecret(SecretStr):
    """A secret that ``${file:…}`` brought in. Two that name the same file are equal, whatever it holds by now."""

    def __init__(self, value: str, *, text: str, base: FilePath) -> None:
        """Take the value, the text as written, and the directory from which a relative path counts."""
        super().__init__(value)
        self._named = (text, base)

    def current(self) -> str:
        """Return what the file holds now; what it held at the start while it cannot be read."""
        try:
            return read_again(*self._named)
        except UnusableReferenceError:
            return self.get_secret_value()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FollowedSecret) and self._named == other._named

    def __hash__(self) -> int:
        return hash(self._named)


def follow_files(settings: Settings, root: Node) -> Settings:
    """Return ``settings`` with secrets of Redis that follow their files; ``root`` is what they were read from."""
    section = root.child("redis")
    found = {}
    for name in FOLLOWED:
        node, secret = section.child(name) if section else None, getattr(settings.redis, name)
        if secret is not None and node is not None and "${file:" in (node.source or ""):
            base = directory_of(node.origin).absolute()
            found[name] = FollowedSecret(secret.get_secret_value(), text=str(node.source), base=base)
    return settings.model_copy(update={"redis": settings.redis.model_copy(update=found)}) if found else settings
