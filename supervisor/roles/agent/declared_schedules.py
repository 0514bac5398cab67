"""Comparison of this replica's static schedules with the set that is in place, whoever leads.

A leader removes the static schedules that its configuration does not name. So of replicas with other files only those
of one fire, and each change of the leader may change which.

Guarantees
    A set that is not in place at two looks, a minute apart, is told once; a deploy or reload of all replicas that takes
    less is not. One small question a minute.

Does not guarantee
    Anything of a replica that never leads, or whose configuration has no schedules: those replace nobody's.
    A look while a set is being brought in, or before any was, tells nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from supervisor.core.effects import Call, Reporter
from supervisor.core.units import MILLISECOND_NS
from supervisor.store.schedules.definitions import Definitions
from supervisor.telemetry.metrics import CONFIG_SCHEDULES_IN_PLACE

PERIOD_NS = 60_000 * MILLISECOND_NS
LOOKS = 2
SHOWN = 12  # characters of a digest
REMEDY = (
    "run the same files on all replicas of a cluster, or give this one a `cluster:` of its own; where the log has "
    "schedules_refused or schedules_put_off, the set was refused, and the former one is in place"
)


class DeclaredSchedulesTask:
    """The task of one agent."""

    name = "declared_schedules"
    period_ns = PERIOD_NS

    def __init__(
        self, *, run: Callable[[Call[Any]], Any], definitions: Definitions, digest: str, report: Reporter
    ) -> None:
        self._run = run
        self._definitions = definitions
        self._report = report
        self.bring(digest)

    def bring(self, digest: str) -> None:
        """Compare the set with ``digest`` from now on; empty: none."""
        self._digest = digest
        self._differing = 0  # looks in a row that found another set

    def run(self, _now_ns: int) -> None:
        """Look once."""
        applied: str = self._run(self._definitions.applied()) if self._digest else ""
        if not applied:
            return
        self._differing = 0 if applied == self._digest else self._differing + 1
        if self._differing in {0, LOOKS}:
            CONFIG_SCHEDULES_IN_PLACE.set(int(self._differing == 0))
        if self._differing == LOOKS:
            self._report("schedules_differ", own=self._digest[:SHOWN], in_place=applied[:SHOWN], remedy=REMEDY)
