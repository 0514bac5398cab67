"""``python -m bench.presence``: may presence be on by default? Only if it never takes a term from a holder that lives.

Presence notices the death of a leader by the end of its connection (docs/adr/0015). Here nothing dies,
while processes stall, connections are cut and Redis restarts: each disturbance by itself, then all
together in 10,000 simulated seconds, then with whole trees on a real server.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from bench import presence_real, presence_simulated
from bench.table import Goal, Result, Samples, Tick, print_json, print_results


def main() -> int:
    """Measure, print, and return 0 if there was no wrong takeover."""
    options = _options()
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
    simulated, kinds = options.simulated_seconds, presence_simulated.KINDS
    measures: dict[str, tuple[int, Callable[[Tick], Samples]]] = {
        f"simulated, only {kind}": (simulated, partial(presence_simulated.wrong_takeovers, simulated, seed, (kind,)))
        for kind in kinds
    }
    measures["simulated, all together"] = (
        simulated,
        partial(presence_simulated.wrong_takeovers, simulated, seed, kinds),
    )
    results: list[Result] = []
    with (
        Progress(console=Console(stderr=True)) as progress,
        tempfile.TemporaryDirectory(prefix="tenure-bench-", ignore_cleanup_errors=True) as directory,
    ):
        if options.seconds:
            real = partial(presence_real.wrong_takeovers, Path(directory) / "b", options.seconds, seed)
            measures["real trees, all together"] = (options.seconds, real)
        for name, (seconds, measure) in measures.items():
            step_s = presence_simulated.CHUNK_S if name.startswith("simulated") else presence_real.CHUNK_S
            task = progress.add_task(name, total=seconds // step_s)
            samples = measure(partial(progress.advance, task))
            total = Samples([sum(samples.values)], samples.note)
            results.append(Result(Goal(name=name, title=f"wrong takeovers: {name}", p99_max=0, unit=""), total))
    (print_json if options.json else print_results)(results)
    return int(any(result.verdict != "holds" for result in results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.presence", description=__doc__)
    parser.add_argument("--seconds", type=int, default=300, help="with real trees; 0: not at all")
    parser.add_argument("--simulated-seconds", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
