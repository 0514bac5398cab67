"""Random kills, pauses and restarts of real trees: how many runs are lost or doubled. None may be."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

from bench.table import Samples, Tick
from supervisor.core.errors import TenureError
from tests.e2e.chaos import SECONDS_MAX, Chaos

SECONDS_PER_ROUND = 1.7  # a fault comes every 0.5 to 2 s, and some find nothing to strike


def lost_or_doubled(directory: Path, rounds: int, tick: Tick) -> Samples:
    """Return one sample for each fault that struck: 0, or 1 for all of them when the judgement fails."""
    seed = int.from_bytes(os.urandom(4), "big")
    directory.mkdir(parents=True)
    failure = ""
    with redirect_stdout(sys.stderr):
        chaos = Told(directory, seed, tick)
        try:
            chaos.start()
            chaos.run(min(SECONDS_MAX, rounds * SECONDS_PER_ROUND))
        except (AssertionError, TenureError) as error:
            failure = f"; FAILED: {error}"
        finally:
            chaos.close()
    struck = sum(chaos.faults.values())
    return Samples([float(bool(failure))] * struck, f"seed {seed}: {dict(chaos.faults)}{failure}")


class Told(Chaos):
    """Chaos that moves a progress bar."""

    def __init__(self, directory: Path, seed: int, tick: Tick) -> None:
        super().__init__(directory, seed)
        self._tick = tick

    def strike(self) -> None:
        """Do one harm at random."""
        before = sum(self.faults.values())
        super().strike()
        for _ in range(sum(self.faults.values()) - before):
            self._tick()
