"""Origins of settings, carried along with them: paths and places, never values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ORIGINS_MAX = 10_000
"""A copy goes to every process: of schedules only where each begins, and of very many not all."""


@dataclass(frozen=True, slots=True)
class Origins:
    """All are equal: the origin of a setting is no part of its value."""

    by_path: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Path of a setting to file:line, variable or flag; absent: its default, or left out."""

    left_out: int = field(default=0, compare=False)
