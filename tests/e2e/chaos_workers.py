"""Chaos among workers: a producer enqueues known runs while everything that can die dies, and Redis suffers too.

``python -m tests.e2e.chaos_workers --runs 100000 --seconds 240 --seed 7``. Workers, agents, other
roles and whole supervisors are killed, trees are stopped and go on, and the durable server is killed,
stopped for longer than a session's lease, and its clock stepped. In the end every run must have
completed once on record, and none may have run twice but for a session that was lost.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from supervisor.core.errors import TenureError
from tests.e2e.chaos import STOP_S, Chaos
from tests.e2e.chaos_target import Replica, await_sessions
from tests.e2e.chaos_verdict import CLUSTER, say
from tests.e2e.chaos_workers_load import CONFIG, JOBS, LoadProducer, run_ids
from tests.e2e.chaos_workers_verdict import Verdict, completed, judge, judge_reaped
from tests.e2e.clock_shim import ClockShim, find_compiler
from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until

NAMES = ("one", "two", "three")
FAULTS = {
    "kill_role": 10,
    "kill_parent": 2,
    "suspend": 2,
    "terminate": 1,
    "kill_server": 1,
    "pause_server": 1,
    "step_clock": 2,
}
LEASE_S = 6.0
STEP_S_MAX = 30  # a run that is delayed by a clock that is ahead waits so much longer when it is right again
DRAIN_S_MAX = 600
SHARE = 0.8  # of the time, in which the runs come in


class WorkerChaos(Chaos):
    """The cluster, the load, the faults."""

    def __init__(self, directory: Path, seed: int, *, runs: int, replicas: int) -> None:
        super().__init__(directory, seed)
        self.ids = run_ids(runs)
        self.names = NAMES[:replicas]
        self.ledger = directory / "ledger.txt"
        self.ledger.touch()
        self.disturbed: set[str] = set()  # replicas whose agent or tree was struck: they may lose sessions that live
        self.paused: set[str] = set()  # sessions of trees that were stopped for a while
        self.shim: ClockShim | None = None
        (directory / "chaos_jobs.py").write_text(JOBS)
        (directory / "tenure.yaml").write_text(CONFIG.format(cluster=CLUSTER, url=self.server.url))
        if find_compiler():
            self.shim = ClockShim(directory)
            self.server.environ |= self.shim.environ
            self.server.kill()
            self.server.start()
        self.producer: LoadProducer | None = None

    def start(self) -> None:
        """Start every replica."""
        self.replicas += [Replica(self.directory, name) for name in self.names]
        for replica in self.replicas:
            wait_until(lambda each=replica: each.is_ready, what=f"{replica.name} to be ready")

    # Faults.

    def kill_role(self, replica: Replica) -> None:
        """Kill -9 one process; if it is an agent, its sessions may be given up by others."""
        before = len(replica.kills)
        super().kill_role(replica)
        if len(replica.kills) > before and replica.kills[-1][1] == "agent":
            self.disturbed |= _replica_ids(replica.tree)

    def kill_parent(self, replica: Replica) -> None:
        """Kill -9 a supervisor."""
        self._strike_tree(replica.tree)
        super().kill_parent(replica)

    def suspend(self, replica: Replica) -> None:
        """SIGSTOP a whole tree."""
        if replica.state == "up":
            self._strike_tree(replica.tree)
        super().suspend(replica)

    def _strike_tree(self, tree: Tree) -> None:
        started = tree.events("child_started")
        self.disturbed |= _replica_ids(tree)
        self.killed_sessions |= {f"{each['replica']}/{each['slot']}/{each['generation']}" for each in started}

    def resume(self, replica: Replica, tree: Tree) -> None:
        """SIGCONT; what was started in between counts as struck too."""
        super().resume(replica, tree)
        self._strike_tree(tree)

    def pause_server(self) -> None:
        """SIGSTOP Redis for longer than a session's lease."""
        if self.is_server_up:
            server, self.is_server_up = psutil.Process(self.server.process.pid), False
            server.suspend()
            self.later(LEASE_S + self.rng.uniform(0.5, 3), lambda: self.resume_server(server))
            self.faults["pause server"] += 1

    def resume_server(self, server: psutil.Process) -> None:
        """SIGCONT Redis."""
        server.resume()
        self.is_server_up = True

    def step_clock(self) -> None:
        """Set the wall clock of Redis forward or back."""
        if self.shim is not None:
            self.shim.step(self.rng.randint(-STEP_S_MAX, STEP_S_MAX))
            self.faults["step clock"] += 1

    def strike(self) -> None:
        """Do one harm at random."""
        fault = self.rng.choices(list(FAULTS), list(FAULTS.values()))[0]
        standing = [each for each in self.replicas if each.state != "dead"]
        if fault in {"kill_server", "pause_server", "step_clock"}:
            getattr(self, fault)()
        elif standing:
            getattr(self, fault)(self.rng.choice(standing))

    # The course of it.

    def progress(self, elapsed_s: float) -> None:
        """Say how it goes."""
        states = " ".join(f"{each.tree.name}:{each.state}" for each in self.replicas)
        faults = ", ".join(f"{what} {count}" for what, count in sorted(self.faults.items()))
        sent = self.producer.sent if self.producer else 0
        done = "?"
        if self.is_server_up:
            with suppress(TenureError, OSError):
                done = f"{self.completed():,}"
        trouble = f" ({self.producer.trouble})" if self.producer and self.producer.trouble else ""
        say(
            f"{elapsed_s:5.0f} s  {states}  enqueued {sent:,}{trouble}, completed {done} of {len(self.ids):,}  [{faults}]"
        )

    def completed(self) -> int:
        """Return how many runs have completed; -1 while Redis does not answer."""
        try:
            return completed(self.store)
        except Exception as error:  # noqa: BLE001 - the raw client raises its own errors while the server starts
            say(f"Redis does not answer: {type(error).__name__}")
            return -1

    def run_load(self, seconds: float) -> Verdict:
        """Harm while runs come in, then be calm until all have completed, then judge."""
        self.producer = LoadProducer(self.server.url, self.ids, ledger=self.ledger, over_s=SHARE * seconds)
        self.producer.start()
        begin_s = self.harm(seconds, first_s=0.5, between_s=(0.3, 1.5))
        self.calm()
        self.progress(self.now_s() - begin_s)
        self.stop()
        trees = [tree for replica in self.replicas for tree in replica.trees]
        judge_reaped(trees, self.disturbed)
        return judge(self.store, self.ledger, self.ids, trees, self.killed_sessions)

    def calm(self) -> None:
        """Put everything right, and wait until every run has completed."""
        if self.shim is not None:
            self.shim.step(0)
        begin_s, told_s = self.now_s(), self.now_s()

        def is_over() -> bool:
            nonlocal told_s
            self.tend()
            if self.now_s() - told_s > 10:
                told_s = self.now_s()
                self.progress(told_s - begin_s)
            assert self.producer is not None
            is_whole = not self.owed and all(each.state == "up" and each.is_ready for each in self.replicas)
            return is_whole and not self.producer.is_alive() and self.completed() >= len(self.ids)

        wait_until(is_over, what="every run to complete", bound_s=DRAIN_S_MAX)
        await_sessions(self.store, [replica.tree for replica in self.replicas])

    def stop(self) -> None:
        """Stop every tree cleanly."""
        for replica in self.replicas:
            replica.tree.terminate()
        for replica in self.replicas:
            assert replica.tree.wait(STOP_S) == 0, f"{replica.tree.name} did not stop cleanly"

    def close(self) -> None:
        """Leave no process behind."""
        if not self.is_server_up:
            with suppress(psutil.Error):
                psutil.Process(self.server.process.pid).resume()
        if self.producer is not None:
            self.producer.close()
        super().close()


def _replica_ids(tree: Tree) -> set[str]:
    return {str(each["replica"]) for each in tree.events("child_started")}


def main() -> int:
    """Run it."""
    options = _options()
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
    directory = Path(tempfile.mkdtemp(prefix="tenure-chaos-"))
    say(f"seed {seed}, {options.runs:,} runs, {options.seconds:g} s, in {directory}")
    chaos = WorkerChaos(directory, seed, runs=options.runs, replicas=options.replicas)
    if chaos.shim is None:
        say("no C compiler: the server's clock stays as it is")
    try:
        chaos.start()
        verdict = chaos.run_load(options.seconds)
    except (AssertionError, TenureError) as error:
        chaos.progress(0)
        say(f"FAILED with seed {seed}: {error}\nlogs and data are in {directory}")
        return 1
    finally:
        chaos.close()
    shutil.rmtree(directory, ignore_errors=True)
    for line in verdict.lines():
        say(line)
    say(f"held: seed {seed}, {options.seconds:g} s, {sum(chaos.faults.values())} faults: {dict(chaos.faults)}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.chaos_workers", description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60, help="how long there are faults; then everything drains")
    parser.add_argument("--replicas", type=int, default=len(NAMES), choices=range(1, len(NAMES) + 1))
    parser.add_argument("--seed", type=int, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
