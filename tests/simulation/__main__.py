"""``python -m tests.simulation --seeds 1000 [--first N]``, ``--seed N`` for one world with its history, or ``--mutants``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from tests.simulation.mutants import MUTANTS, first_caught
from tests.simulation.progress import Progress
from tests.simulation.scenario import run

CHUNK = 4
MUTANT_WORLDS = 300

T = TypeVar("T")
R = TypeVar("R")


def _judge(seed: int) -> tuple[str, int]:
    outcome = run(seed)
    return str(outcome) if outcome.problems else "", outcome.fired


def _hunt(name: str) -> tuple[str, int | None, str]:
    outcome = first_caught(name, seeds=MUTANT_WORLDS)
    return (name, None, "") if outcome is None else (name, outcome.seed, outcome.problems[0])


def _spread(work: Callable[[T], R], items: list[T], jobs: int, chunk: int) -> Iterator[R]:
    """Yield the results in their order, as they come."""
    if jobs == 1:
        yield from map(work, items)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(work, items, chunksize=chunk)


def worlds(first: int, count: int, jobs: int) -> int:
    """Run many seeds; print the history of each that broke a promise."""
    progress = Progress(count)
    fired = broken = 0
    for done, (report, decisions) in enumerate(_spread(_judge, list(range(first, first + count)), jobs, CHUNK), 1):
        fired += decisions
        if report:
            broken += 1
            sys.stdout.write(f"\n{report}\n")
        progress.show(done, broken)
    sys.stdout.write(f"{count} worlds from seed {first}, {fired} decisions, {broken} broken\n")
    return 1 if broken else 0


def mutants(jobs: int) -> int:
    """Break the program in each way in turn; print which world shows it first."""
    missed = 0
    sys.stdout.write(f"{'what is broken':<70} {'worlds':>6}  shown by\n")
    for name, seed, problem in _spread(_hunt, list(MUTANTS), jobs, 1):
        missed += seed is None
        shown = "NOT CAUGHT" if seed is None else f"seed {seed}: {problem[:90]}"
        sys.stdout.write(f"{name:<70} {MUTANT_WORLDS if seed is None else seed + 1:>6}  {shown}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(MUTANTS)} mutants, {missed} not caught\n")
    return 1 if missed else 0


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seed", type=int, help="one world, with its history")
    parser.add_argument("--focus", default="", help="with --seed: kinds of fault that it has in any case")
    parser.add_argument("--mutants", action="store_true", help="break the program; each break must be caught")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()
    if options.seed is not None:
        outcome = run(options.seed, focus=frozenset(options.focus.split()))
        sys.stdout.write(f"{outcome}\n")
        return 1 if outcome.problems else 0
    return mutants(options.jobs) if options.mutants else worlds(options.first, options.seeds, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
