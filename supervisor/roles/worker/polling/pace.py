"""Pace of a sync worker: so many runs are taken at a time as end within a journey to Redis."""

from __future__ import annotations

from collections import OrderedDict

FAST_S = 0.005
"""A job that takes longer is worth a journey of its own."""

AHEAD_S = 0.010
"""How much work, by what the last runs took, may lie here."""

STREAK_MIN = 8
"""So many fast runs, one after the other, before more than one is fetched at a time."""

KNOWN_MIN = 3
"""So many runs of a job before it counts as known."""

JOBS_MAX = 1000
_WEIGHT = 0.2  # of the newest run


class Pace:
    """Durations of the last runs, all together and by job.

    Runs that wait behind another are lost to the other processes of the pool. That is worth it while a journey to
    Redis takes longer than the jobs do, and at no other time.

    Time enters as an argument. Nothing here reads a clock.
    """

    def __init__(self, prefetch: int) -> None:
        """Build it; ``prefetch``: the most runs that may be here."""
        assert prefetch >= 1
        self._prefetch = prefetch
        self._mean_s = FAST_S
        self._streak = 0
        self._jobs: OrderedDict[str, tuple[int, float]] = OrderedDict()  # job: runs, mean of the last

    @property
    def want(self) -> int:
        """Number of runs that may be here."""
        if self._streak < STREAK_MIN or self._prefetch == 1:
            return 1
        return max(1, min(self._prefetch, int(AHEAD_S / max(self._mean_s, 1e-6))))

    def is_fast(self, job: str) -> bool:
        """Return whether ``job`` is known to be over at once."""
        runs, mean_s = self._jobs.get(job, (0, 0.0))
        return runs >= KNOWN_MIN and mean_s < FAST_S

    def ended(self, job: str, seconds: float) -> None:
        """Note that a run of ``job`` took so long."""
        self._streak = self._streak + 1 if seconds < FAST_S else 0
        self._mean_s += _WEIGHT * (seconds - self._mean_s)
        runs, mean_s = self._jobs.get(job, (0, seconds))
        self._jobs[job] = runs + 1, mean_s + _WEIGHT * (seconds - mean_s)
        if len(self._jobs) > JOBS_MAX:
            self._jobs.popitem(last=False)
