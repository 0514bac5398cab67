"""Judges a changed configuration, in a child that is thrown away: loads, completes, compares, hands over.

Guarantees
    Everything that a start would refuse is refused, with the same words and places, as are changes that a running
    tree cannot follow. The parent receives a plan; it parses nothing.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import structs

from supervisor.clock import SystemClock
from supervisor.core.errors import ConfigError, Problem
from supervisor.core.jobs.registry import registry
from supervisor.core.model import ScheduleDef
from supervisor.core.supervision.reload import PROBLEMS_MAX, NewLimits, ReloadPlan
from supervisor.reload.audiences import Audience
from supervisor.reload.config_memfd import Brief, Handover, HandoverError
from supervisor.reload.diff import ConfigDifference, Effect, compare, named
from supervisor.settings.loader import Loaded
from supervisor.settings.schedules.complete import schedules_digest
from supervisor.settings.sections.models import Settings
from supervisor.telemetry.masking import mask_text

Complete = Callable[[Loaded], tuple[Loaded, tuple[ScheduleDef, ...]]]


@dataclass(eq=False, kw_only=True)
class ConfigCheck:
    """Configuration check of the parent: opened, run in a child, and asked for the plan afterwards."""

    definitions: tuple[ScheduleDef, ...]  # as the tree started
    runs_at_once_max: int  # for so many each process of an async pool has room on the board
    handover: Handover
    load: Callable[[], Loaded]  # reads the same files, variables and flags as the start did
    prepare: Complete  # imports the jobs, adds the schedules that they declare, and completes all

    def __post_init__(self) -> None:
        self._started_s = SystemClock().wall_ms() / 1000  # as the times of files
        self._in_effect = 0

    def open(self, number: int, in_effect: int) -> None:
        """Make room for reload ``number`` of a tree in which ``in_effect`` rules; raises OSError when there is none."""
        self.handover.open(number, in_effect=in_effect)
        self._in_effect = in_effect

    def run(self, number: int, in_effect: int, fits: Callable[[str, int], str]) -> bool:
        """Make the plan of reload ``number`` and hand it over with everything; return whether it can be carried out.

        The number was never used before; ``in_effect`` is that of the configuration that rules, 0 the tree's first.
        ``fits`` returns why a pool may not have so many processes; empty when it may.
        """
        reader = self.handover.reader(Audience.CHECK)
        before = reader.settings(in_effect)
        digest_before = reader.brief(in_effect).schedules_digest if in_effect else digest_of(self.definitions)
        stale = _stale(before.jobs, self._started_s)
        definitions: tuple[ScheduleDef, ...] = ()
        settings, digest = before, ""
        try:
            loaded, definitions = self.prepare(self.load())
            settings, digest = loaded.settings, digest_of(definitions)
            found = compare(
                before,
                loaded,
                has_other_schedules=digest != digest_before,
                fits=fits,
                runs_at_once_max=self.runs_at_once_max,
            )
            plan = _refusal(found.problems) if found.problems else structs.replace(_plan(found, settings), stale=stale)
        except ConfigError as error:
            plan = _refusal(error.problems)
        if plan.problems:
            settings, definitions = Settings(), ()
        try:
            self._hand_over(number, plan, settings, Brief(digest, registry.cards()), definitions)
        except HandoverError as error:
            refused = _refusal([Problem("configuration", "", str(error), "split it over several clusters")])
            self._hand_over(number, refused, Settings(), Brief("", {}), ())
            return False
        return not plan.problems

    def _hand_over(
        self, number: int, plan: ReloadPlan, settings: Settings, brief: Brief, definitions: tuple[ScheduleDef, ...]
    ) -> None:
        packed = msgspec.json.encode(plan)
        self.handover.write(number, plan=packed, settings=settings, brief=brief, definitions=definitions)

    def plan(self, number: int) -> bytes | None:
        """Return the plan that ``run`` handed over; None when it did not come so far."""
        return self.handover.take(number, in_effect=self._in_effect)


def _stale(modules: Sequence[str], started_s: float) -> tuple[str, ...]:
    """Return the job modules that were changed since they were imported; their own imports are not looked at."""
    found = []
    for name in modules:
        file = getattr(sys.modules.get(name), "__file__", None)  # absent: it is imported by this reload
        with contextlib.suppress(OSError):
            if file is not None and Path(file).stat().st_mtime > started_s:
                found.append(name)
    return tuple(found)


def digest_of(definitions: Sequence[ScheduleDef]) -> str:
    """Return the identity of a set of schedules in the form that candidates publish: empty when they bring none."""
    return schedules_digest(definitions) if definitions else ""


def _refusal(problems: Sequence[Problem]) -> ReloadPlan:
    told = tuple(mask_text(" ".join(str(problem).splitlines())) for problem in problems[:PROBLEMS_MAX])
    return ReloadPlan(problems=told, problem_count=len(problems))


def _plan(found: ConfigDifference, settings: Settings) -> ReloadPlan:
    if not found.changed:
        return ReloadPlan()
    log = settings.log
    is_replanned = Effect.SCHEDULER in found.effects
    return ReloadPlan(
        changed=tuple(named(found.changed)),
        processes=found.processes,
        rolled=tuple(sorted(found.rolled)),
        restarts=("scheduler", "web") if is_replanned else ("web",),  # the web process shows the settings
        limits=msgspec.convert(settings.supervision, NewLimits, from_attributes=True),
        log_level=log.level,
        log_format=log.format,
        log_mask=log.mask,
        log_exclude=log.exclude,
    )
