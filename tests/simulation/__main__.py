"""``python -m tests.simulation --seeds 1000 [--first N]``, or ``--seed N`` for one world with its history."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.scenario import run


def _judge(seed: int) -> tuple[int, str, int]:
    outcome = run(seed)
    return seed, str(outcome) if outcome.problems else "", outcome.fired


def main() -> int:
    """Run many seeds on all processors; print the history of each that broke a promise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seed", type=int, help="one world, with its history")
    parser.add_argument("--jobs", type=int, default=None, help="processes; default: one for each processor")
    options = parser.parse_args()
    if options.seed is not None:
        outcome = run(options.seed)
        sys.stdout.write(f"{outcome}\n")
        return 1 if outcome.problems else 0
    failed, fired = 0, 0
    with ProcessPoolExecutor(options.jobs) as pool:
        seeds = range(options.first, options.first + options.seeds)
        for _seed, report, count in pool.map(_judge, seeds, chunksize=8):
            fired += count
            if report:
                failed += 1
                sys.stdout.write(f"{report}\n")
    sys.stdout.write(f"{options.seeds} worlds, {fired} decisions, {failed} broken\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
