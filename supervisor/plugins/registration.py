"""Plugins that the registry knows, and the identities of their code and options."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from supervisor.plugins.contract import Plugin, PluginUnusableError
from supervisor.settings.base import Path as SettingPath
from supervisor.settings.sections.plugins import PluginSettings


@dataclass(frozen=True, slots=True)
class Registered:
    """A plugin that can be asked for."""

    name: str
    origin: str
    """``module:Class``, or the program without its arguments; for people."""

    settings: PluginSettings = field(default_factory=PluginSettings)
    kind: type[Plugin] | None = None
    """Its class; None for a program."""

    references: Mapping[SettingPath, str] = field(default_factory=dict)
    """Which of its settings came from ``${file:…}`` or ``${env:…}``, by their path in them, and as they are written."""

    @property
    def is_isolated(self) -> bool:
        """True if it is a program."""
        return self.settings.is_isolated


def digest_of(value: Mapping[str, Any]) -> str:
    """Return the identity of options: equal for equal ones, in whatever order they were written.

    Raises:
        PluginUnusableError: they are no JSON.
    """
    try:
        body = msgspec.json.encode(value, order="sorted")
    except (TypeError, ValueError) as error:
        raise PluginUnusableError(f"options are no JSON: {error}", phase="start") from None
    return hashlib.sha256(body).hexdigest()[:16]


def fingerprint_of(registered: Registered) -> str:
    """Return a fingerprint of a program: its command, its settings, the files that the command names."""
    if not registered.is_isolated:
        assert registered.kind is not None
        return f"{registered.origin} {registered.kind.version} {id(registered.kind)}"
    folder = Path(registered.settings.cwd or ".")
    parts = [*registered.settings.command, registered.settings.version]
    path = registered.settings.env.get("PATH")
    first = shutil.which(registered.settings.command[0], path=None if path is None else path.get_secret_value())
    for word in (first or "", *registered.settings.command):
        try:
            found = (folder / word).stat()
        except (OSError, ValueError):
            continue
        parts.append(f"{found.st_ino} {found.st_size} {found.st_mtime_ns}")
    return "\n".join(parts)
