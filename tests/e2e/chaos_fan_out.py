"""A tree of runs whose workers are killed at random: its tally must be exact in the end, and what follows starts once.

``python -m tests.e2e.chaos_fan_out --leaves 10000 --kills 30 --seed 7``. A planner spawns planners, each of which spawns
its part; leaves count things, tell of errors, fail once, or fail for good; and all the while a process that executes
them is killed with ``kill -9``, at moments that a seed chooses.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

from supervisor.clock import SystemClock
from supervisor.core.model import Envelope, Kind, Template
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.run_records import Tallies, Tally
from supervisor.store.queues.runs import Queues
from tests.e2e.chaos_verdict import say
from tests.e2e.trees import Tree
from tests.kit.servers import RealServer, Server
from tests.kit.waiting import wait_until

CLUSTER, ROOT_RUN = "fan", "root"
BRANCH_MAX = 1000
DRAIN_S_MAX = 900
AGENTS_MAX = 2  # kills: a tree whose agent keeps dying gives up
VICTIMS = ("worker-plan-0", "worker-io-0", "worker-io-1", "worker-cpu-0", "agent")

JOBS = """
from tenure import Context, Retry, job


@job("fan.leaf", queue="leaves", retry=Retry(attempts=3, base_s=0.01, cap_s=0.05), max_crashes=1000)
async def leaf(number: int, ctx: Context) -> None:
    ctx.count(seen=1, created=number % 3)
    if number % 31 == 3 and ctx.attempt == 1:
        ctx.count(seen=1000)
        raise RuntimeError("once")
    if number % 50 == 7:
        ctx.error("odd", f"leaf {number}")


@job("fan.plain", queue="leaves", retry=Retry(attempts=1), max_crashes=1000)
def plain(number: int, ctx: Context) -> None:
    ctx.count("seen")
    if number % 97 == 5:
        ctx.count(seen=1000)
        raise ValueError("never")


@job("fan.branch", max_crashes=1000)
async def branch(first: int, most: int, ctx: Context):
    ctx.count(branches=1)
    for number in range(first, first + most):
        yield "fan.plain" if number % 10 == 5 else leaf, {"number": number}, {"key": f"n{number}"}


@job("fan.root", max_crashes=1000)
def root(leaves: int, each: int, ctx: Context):
    ctx.then("fan.done")
    for first in range(0, leaves, each):
        yield branch, {"first": first, "most": min(each, leaves - first)}, {"key": f"b{first}"}


@job("fan.done", queue="leaves", max_crashes=1000)
async def done() -> None:
    pass
"""

CONFIG = """
version: 1
cluster: fan
web: {{port: 0}}
log: {{format: json}}
queues: {{history: 100000}}
workers:
  plan: {{kind: sync, processes: 1, queues: [default, leaves]}}
  io: {{kind: async, processes: 2, concurrency: 20, queues: [default, leaves]}}
  cpu: {{kind: sync, processes: 1, queues: [leaves]}}
jobs: [fan_out_jobs]
redis: {{url: "{url}"}}
"""


class FanOut:
    """One tree of processes, one tree of runs, and who kills."""

    def __init__(self, directory: Path, store: Store, url: str, *, leaves: int, kills: int, seed: int) -> None:
        (directory / "fan_out_jobs.py").write_text(JOBS)
        (directory / "fan.yaml").write_text(CONFIG.format(url=url))
        self.store, self.leaves, self.draw = store, leaves, Random(seed)
        self.each = min(BRANCH_MAX, max(1, leaves // 5))
        self.queues, self.keys = Queues(Keys(CLUSTER)), Keys(CLUSTER)
        self.moments = sorted(self.draw.randrange(leaves) for _ in range(kills))
        self.killed: Counter[str] = Counter()
        self.tree = Tree(directory, "fan", "--config", "fan.yaml")

    def tally(self) -> Tally | None:
        """Return what is counted so far."""
        found: Tally | None = self.store.run(Tallies(self.keys).read(ROOT_RUN))
        return found

    def run(self) -> None:
        """Start it, kill while it goes on, and wait until what follows has ended."""
        self.tree.wait_for("tree_ready")
        args = {"leaves": self.leaves, "each": self.each}
        template = Template(job="fan.root", kind=Kind.SYNC, args=args, max_crashes=1000)
        self.store.run(self.queues.enqueue(nonce="root", envelopes=[Envelope(id=ROOT_RUN, template=template)]))
        wait_until(self._is_over, what="the tree of runs to end", bound_s=DRAIN_S_MAX)
        wait_until(lambda: self._times(f"{ROOT_RUN}/then"), what="what follows to end")
        self.tree.terminate()
        assert self.tree.wait() == 0

    def _is_over(self) -> bool:
        found = self.tally()
        ended = 0 if found is None else found.total - found.left
        while self.moments and ended >= self.moments[0]:
            self.moments.pop(0)
            self._kill(self.draw.choice(VICTIMS if self.killed["agent"] < AGENTS_MAX else VICTIMS[:-1]))
        assert self.tree.process.poll() is None, "the tree gave up"
        return found is not None and found.left == 0

    def _kill(self, slot: str) -> None:
        with suppress(ProcessLookupError, IndexError):  # it was killed a moment ago, and has no successor yet
            self.tree.kill(slot)
            self.killed[slot.rpartition("-")[0] or slot] += 1

    def _times(self, run_id: str) -> int:
        entries = self.store.run(self.queues.recent("leaves", 100_000))
        return sum(entry.run_id == run_id and entry.outcome == "ok" for entry in entries)

    def judge(self) -> Tally:
        """Hold that every number is what it must be."""
        found = self.tally()
        assert found is not None
        branches = -(-self.leaves // self.each)
        numbers = range(self.leaves)
        plain = [number for number in numbers if number % 10 == 5]
        dead = sum(number % 97 == 5 for number in plain)
        total = branches + self.leaves
        assert (found.total, found.left) == (total, 0), found
        assert found.outcomes == {"ok": total - dead} | ({"dead": dead} if dead else {}), found
        created = sum(number % 3 for number in numbers if number % 10 != 5)
        assert found.counts == {"branches": branches, "seen": self.leaves - dead, "created": created}, found
        assert found.errors == dead + sum(number % 50 == 7 for number in numbers), found
        assert self._times(f"{ROOT_RUN}/then") == 1
        ends = Counter(
            entry.run_id
            for queue in ("default", "leaves")
            for entry in self.store.run(self.queues.recent(queue, 100_000))
            if entry.outcome in {"ok", "dead"}
        )
        assert set(ends.values()) == {1}, ends.most_common(3)
        assert len(ends) == total + 2
        for queue in ("default", "leaves"):
            assert self.store.run(self.queues.fsck(queue)) == []
            assert self.store.raw.hlen(self.keys.queue(queue).limits) == 0
        return found


def main() -> int:
    """Run it as told, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="fan-"))
    real = RealServer(directory)
    server, clock = Server(real), SystemClock()
    fan = FanOut(directory, server.store(), real.url, leaves=options.leaves, kills=options.kills, seed=options.seed)
    begun_ns = clock.elapsed_ns()
    try:
        fan.run()
        found = fan.judge()
    finally:
        fan.tree.close()
        real.stop()
    seconds = (clock.elapsed_ns() - begun_ns) / 1e9
    say(
        f"{found.total:,} runs below one, {sum(fan.killed.values())} processes killed {dict(fan.killed)}, {seconds:.0f} s"
    )
    say(f"outcomes {found.outcomes}, counts {found.counts}, errors {found.errors}: exact")
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
