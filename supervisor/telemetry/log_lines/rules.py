"""Log filters of the settings: values hidden under names, lines of events left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

EVERY_JOB = "*"
"""Stands for all jobs, and for lines outside of runs."""

_NONE: frozenset[str] = frozenset()
_ALWAYS_WRITTEN = frozenset({"error", "exception", "critical", "fatal"})


@dataclass(frozen=True, slots=True)
class LogRules:
    """Rules beside those that hold everywhere (masking.py)."""

    hidden: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Job name, or ``EVERY_JOB``, to names whose values are masked on its lines."""

    exclude: frozenset[str] = _NONE
    """Events that are not written below error."""

    @classmethod
    def of(cls, *, mask: Mapping[str, Collection[str]], exclude: Collection[str]) -> LogRules:
        """Return rules as they are set; each job's hold beside those of all."""
        everywhere = frozenset(mask.get(EVERY_JOB, ()))
        return cls({job: everywhere.union(names) for job, names in mask.items()}, frozenset(exclude))

    def names_for(self, job: Any) -> frozenset[str]:
        """Return the names whose values are masked on a line of ``job``; None: outside of runs."""
        if not self.hidden:
            return _NONE
        found = self.hidden.get(job) if isinstance(job, str) else None
        return self.hidden.get(EVERY_JOB, _NONE) if found is None else found

    def drops(self, event: Any, level: str) -> bool:
        """Return whether a line is not written."""
        return bool(self.exclude) and event in self.exclude and level not in _ALWAYS_WRITTEN


NO_RULES = LogRules()
