"""Presence under stalls, cut connections and restarts of Redis, with whole trees on a real server.

No process ever dies here. So each term that was taken because its holder seemed gone was taken wrongly.
"""

from __future__ import annotations

import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

from bench.clusters import CLOCK, DEFAULT, PRESENCE, Bench, bench, suspend
from bench.table import Samples, Tick
from supervisor.core.errors import TenureError
from tests.kit.waiting import wait_until

STALL_S_MAX = 2.9
OUTAGE_S_MAX = 2.0
SLOW_S_MAX = 0.7
PAUSE_S = (0.5, 4.0)
CHUNK_S = 10
EVENTS_MAX = 1000


def wrong_takeovers(directory: Path, seconds: int, seed: int, tick: Tick) -> Samples:
    """Return one sample for each ten seconds: how many terms were taken from a holder that lived."""
    done: Counter[str] = Counter()
    found: list[float] = []
    with bench(directory, election=DEFAULT + PRESENCE, workers="{}") as cluster:
        unrest, taken = Unrest(cluster, Random(seed), done), 0
        others = _reasons(cluster)
        for _ in range(max(1, seconds // CHUNK_S)):
            until_ns = CLOCK.elapsed_ns() + CHUNK_S * 1_000_000_000
            while CLOCK.elapsed_ns() < until_ns:
                unrest.strike()
            reasons = _reasons(cluster)
            found.append(reasons["presence"] - taken)
            taken, others = reasons["presence"], reasons
            tick()
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(done.items()))
    return Samples(found, f"{seconds} s real, seed {seed}: {told}; terms by reason: {dict(others)}")


def _reasons(cluster: Bench) -> Counter[str]:
    def read() -> Counter[str] | None:
        with suppress(TenureError):
            events = cluster.store.run(cluster.leases.history(EVENTS_MAX))
            return Counter(each.reason for each in events if each.kind == "acquired")
        return None

    found: Counter[str] = wait_until(read, what="the events")
    return found


class Unrest:
    """Does one harm after the other, and puts it right before the next."""

    def __init__(self, cluster: Bench, rng: Random, done: Counter[str]) -> None:
        self._cluster, self._rng, self._done = cluster, rng, done

    def strike(self) -> None:
        """Do one harm, and wait."""
        kind = self._rng.choice(("stall", "stall_and_cut", "cut", "restart", "slow"))
        getattr(self, f"_{kind}")()
        self._done[kind] += 1
        _wait(self._rng.uniform(*PAUSE_S))

    def _stall(self) -> None:
        tree = self._rng.choice(self._cluster.trees)
        suspend(tree, is_pause=True)
        _wait(self._rng.uniform(0.05, STALL_S_MAX))
        suspend(tree, is_pause=False)

    def _stall_and_cut(self) -> None:
        tree = self._rng.choice(self._cluster.trees)
        suspend(tree, is_pause=True)
        self._cut()
        _wait(self._rng.uniform(0.05, STALL_S_MAX))
        suspend(tree, is_pause=False)

    def _cut(self) -> None:
        self._cluster.store.command("CLIENT", "KILL", "TYPE", "pubsub")

    def _restart(self) -> None:
        self._cluster.server.kill()
        _wait(self._rng.uniform(0.05, OUTAGE_S_MAX))
        self._cluster.server.start()
        _reasons(self._cluster)  # returns once it answers

    def _slow(self) -> None:
        self._cluster.server.process.send_signal(signal.SIGSTOP)
        _wait(self._rng.uniform(0.05, SLOW_S_MAX))
        self._cluster.server.process.send_signal(signal.SIGCONT)


def _wait(seconds: float) -> None:
    until_ns = CLOCK.elapsed_ns() + int(seconds * 1e9)
    wait_until(lambda: CLOCK.elapsed_ns() >= until_ns, what="some time to pass")
