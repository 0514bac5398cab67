"""Watchdog of the elector's loop: wired where its steps are executed, so that none can escape it.

Each step has an end: the moment it waits for, or the time-out of its question. That
moment, and a margin, is on the board while the step lasts; /readyz and /healthz look
at it, and the agent ends itself when it stays in the past. (kube-scheduler's own check
always passes: only client-go's RunOrDie wires it, and it uses NewLeaderElector and Run.)

Guarantees
    A machine that was suspended, or a tree that was stopped, is not called stuck: only
    time that the main thread saw pass in looks of its own counts.
"""

from __future__ import annotations

from supervisor.core.units import MILLISECOND_NS

MARGIN_NS = 10_000 * MILLISECOND_NS  # connecting, searching for Redis, a machine without a processor to spare
LATE_NS_MAX = 5000 * MILLISECOND_NS  # then the loop is stuck
LOOK_NS_MAX = 1500 * MILLISECOND_NS  # what two looks prove at most about the time between them


class Watchdog:
    """Counts for how long the elector has been overdue."""

    def __init__(self) -> None:
        self._looked_ns = 0
        self._late_ns = 0

    def is_stuck(self, *, due_ns: int, now_ns: int) -> bool:
        """Look; return whether the loop should have turned long ago. ``due_ns`` 0: it has not begun, or has ended."""
        since_ns = min(now_ns - self._looked_ns, LOOK_NS_MAX) if self._looked_ns else 0
        self._looked_ns = now_ns
        self._late_ns = self._late_ns + since_ns if 0 < due_ns < now_ns else 0
        return self._late_ns > LATE_NS_MAX
