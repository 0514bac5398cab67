"""Plan and outcome of a reload.

A plan is made in a throw-away child and carried out by the parent, which understands nothing else of the
new configuration. It holds no value of a setting but numbers, so no secret.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

PROBLEMS_MAX = 100
"""At most so many problems are handed over and told."""


class ReloadOutcome(StrEnum):
    """Outcome of a reload."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"  # there was nothing to do
    REFUSED = "refused"  # it cannot be used, or not in a running tree: nothing changed
    UNDONE = "undone"  # new workers did not come up: what ran before runs on
    CUT = "cut off"  # the tree began to stop meanwhile

    @property
    def is_success(self) -> bool:
        """True if the tree runs with the current files."""
        return self in {ReloadOutcome.APPLIED, ReloadOutcome.UNCHANGED}


class NewLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits, in seconds, by which the parent judges its children after the reload."""

    grace_s: float
    boot_timeout_s: float
    hang_timeout_s: float
    backoff_max_s: float


class ReloadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of a reload for the parent. With a problem in it, the parent changes nothing."""

    problems: tuple[str, ...] = ()
    problem_count: int = 0  # some may be left out above
    changed: tuple[str, ...] = ()
    """Paths of settings, for people; empty: nothing changed."""

    processes: dict[str, int] = {}
    rolled: tuple[str, ...] = ()
    restarts: tuple[str, ...] = ()
    """Slots whose process is started afresh."""

    limits: NewLimits | None = None
    stale: tuple[str, ...] = ()
    """Modules whose file was changed since they were imported: what they do now is what they did then."""

    log_level: str = ""
    log_format: str = ""
    log_mask: dict[str, tuple[str, ...]] = {}
    log_exclude: tuple[str, ...] = ()


class ReloadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Record of the latest reload that ended, for those who asked for one."""

    number: int = 0  # of reloads that ended; 0: there was none
    outcome: ReloadOutcome | None = None
    began_ns: int = 0  # CLOCK_BOOTTIME; what was asked for later is answered by a later one
    ended_ms: int = 0  # wall clock
    reasons: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()  # modules whose changed code needs a restart
