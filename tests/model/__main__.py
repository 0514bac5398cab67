"""``python -m tests.model``: the exploration with larger bounds than the tests afford. Minutes, and two gigabytes."""

from __future__ import annotations

import argparse
import sys
from time import perf_counter

from tests.model.explorer import explore
from tests.model.invariants import INVARIANTS, somebody_leads
from tests.model.protocol import Bounds, Protocol

LARGE = (
    Bounds(ticks=5, faults=1),
    Bounds(ticks=3, faults=2),
    Bounds(replicas=3, ticks=3, faults=1),
    Bounds(ticks=4, faults=2),
)


def main() -> int:
    """Explore each of the larger bounds, or the one asked for; print what was seen, and the path to a broken rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--ticks", type=int, help="two of them are a lease")
    parser.add_argument("--faults", type=int, default=1)
    options = parser.parse_args()
    asked = (Bounds(options.replicas, options.ticks, options.faults),) if options.ticks is not None else LARGE
    broken = 0
    for bounds in asked:
        began = perf_counter()
        # The goal needs every edge in memory; it is proved by the tests, for the smaller bounds.
        explored = explore(Protocol(bounds), INVARIANTS, goal=somebody_leads if bounds.faults < 2 else None)
        sys.stdout.write(f"{bounds}: {explored} ({perf_counter() - began:.0f} s)\n")
        sys.stdout.flush()
        broken += bool(explored.broken)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
