"""How soon schedules fire again when Sentinel has promoted a replica of Redis.

Run by ``python -m bench.failovers``; a row of ``bench.election`` can be made of ``sentinel``.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.clusters import CLOCK, CLUSTER, CONFIG, DEFAULT, JOBS, LOG_COUNT, PERIODS_MS, WORKERS
from bench.table import Goal, Result, Samples, Tick, print_results
from supervisor.core.errors import StoreUnavailableError
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import Leases
from supervisor.store.keys import Keys
from supervisor.store.schedules.fire import Schedules
from supervisor.store.wire.fire import FireCode
from tests.e2e.trees import Tree
from tests.kit.topologies import Node, Sentinels
from tests.kit.waiting import wait_until

ROUNDS = 10
REGRESSIONS = "failover-epochs"
GOAL = Goal(name="sentinel", title="Sentinel fail-over: promotion to first accepted fire", p99_max=1000)
PART = Goal(name=REGRESSIONS, title="… fail-overs after which an epoch went back", p99_max=0, unit="")


def sentinel(directory: Path, rounds: int, tick: Tick) -> Samples:
    """Kill the master; from a replica's first answer that it is master to the first accepted fire."""
    return _measure(directory, rounds, tick, signal.SIGKILL, "master killed -9")


def sentinel_silent(directory: Path, rounds: int, tick: Tick) -> Samples:
    """The same for a master that says nothing any more, as one on a host that was lost."""
    return _measure(directory, rounds, tick, signal.SIGSTOP, "master stopped: connections stand, nothing is answered")


def _measure(directory: Path, rounds: int, tick: Tick, blow: signal.Signals, note: str) -> Samples:
    found: list[float] = []
    regressions: list[float] = []
    with _deployment(directory) as deployment:
        store = Store.connect(deployment.url, settings=RedisSettings(), name=f"{CLUSTER}:bench", timeout_s=5)
        for _ in range(rounds):
            deployment.revive()
            wait_until(lambda: _first_fire_ms(store, after_ms=CLOCK.wall_ms() - 500), what="a fire")
            epoch = store.run(Leases(Keys(CLUSTER)).view()).epoch
            old = deployment.master()
            old.signal(blow)
            killed_ms = CLOCK.wall_ms()
            wait_until(lambda gone=old: _promoted(deployment, gone), what="a promotion")
            promoted_ms = CLOCK.wall_ms()
            fired_ms = wait_until(lambda since=killed_ms: _first_fire_ms(store, after_ms=since), what="a fire")
            found.append(max(0.0, fired_ms - promoted_ms))
            regressions.append(float(store.run(Leases(Keys(CLUSTER)).view()).epoch < epoch))
            old.signal(signal.SIGCONT)
            tick()
        store.close()
    return Samples(found, f"{note}; down-after 500 ms, two replicas, three sentinels", {REGRESSIONS: regressions})


def _promoted(deployment: Sentinels, old: Node) -> bool:
    return any(node.is_role(b"master") for node in deployment.nodes if node is not old)


def _first_fire_ms(store: Store, *, after_ms: int) -> int | None:
    try:
        log = store.run(Schedules(Keys(CLUSTER)).log(LOG_COUNT))
    except StoreUnavailableError:
        return None
    fired = [each.at_ms for each in log if each.code is FireCode.FIRED and each.at_ms > after_ms]
    return min(fired, default=None)


@contextmanager
def _deployment(directory: Path) -> Iterator[Sentinels]:
    directory.mkdir(parents=True)
    deployment = Sentinels(directory, replicas=2)
    ticks = "\n".join(f"  tick-{ms}: {{job: bench.tick, every: {ms}ms, overlap: allow}}" for ms in PERIODS_MS)
    config = {"cluster": CLUSTER, "election": DEFAULT, "workers": WORKERS, "url": deployment.url, "schedules": ticks}
    (directory / "bench_jobs.py").write_text(JOBS)
    (directory / "tenure.yaml").write_text(CONFIG.format(**config))
    trees: list[Tree] = []
    try:
        for name in ("a", "b"):
            settings = ("--config", "tenure.yaml", "--set", f"replica={name}", "--data-dir", f"data-{name}")
            trees.append(Tree(directory, name, *settings))
        for tree in trees:
            tree.wait_for("tree_ready")
        yield deployment
    finally:
        for tree in trees:
            tree.close()
        deployment.close()


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    results = []
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as directory:
        for measure in (sentinel, sentinel_silent):
            samples = measure(Path(directory) / measure.__name__, rounds, lambda: None)
            results += [Result(GOAL, samples), Result(PART, Samples(samples.parts[REGRESSIONS]))]
    print_results(results)


if __name__ == "__main__":
    main()
