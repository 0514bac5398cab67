"""Chaos against real processes: three replicas on one durable server, and everything that can die, dies.

``python -m tests.e2e.chaos --seconds 60 --seed 7``. The seed decides which fault strikes what and
when; the interleaving with the processes stays the machine's. At the end everything is left alone,
must drain, and must have happened exactly once.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil

from supervisor.clock import SystemClock
from supervisor.core.errors import TenureError
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.sessions import Sessions
from tests.e2e.chaos_target import CONFIG, HOST, JOBS, Replica, alive, await_sessions, is_in, signal_family
from tests.e2e.chaos_verdict import CLUSTER, PERIODS_MS, QUEUES, dead, fires, history_of, judge, say
from tests.e2e.history import History
from tests.e2e.servers import Server
from tests.e2e.trees import Tree
from tests.kit.proxy import Proxy
from tests.kit.waiting import wait_until

REPLICAS = ("one", "two", "three")
FAULTS = {"kill_role": 8, "kill_parent": 3, "suspend": 4, "terminate": 3}
FAULTS_OF_ALL = {"kill_server": 2, "reset": 4, "hang_names": 2, "roll_back": 3}
SECONDS_MAX = 1800  # 3.3 decisions a second: the log of 10,000 holds them all
GONE_S = 10  # after the death of its parent, for a whole family
STOP_S = 60  # grace, its margin, a pause, and two busy cores
DRAIN_S = 120
KNOWN_S = 5  # without another fault before and after the data goes back: whoever fires again knows of it


class Chaos:
    """The cluster, the faults, and what is owed at the end."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.rng = Random(seed)
        self.clock = SystemClock()
        self.pause = threading.Event()
        self.faults: Counter[str] = Counter()
        self.killed_sessions: set[str] = set()
        self.owed: list[tuple[float, Callable[[], None]]] = []  # what puts things right again, and when
        self.families: list[tuple[float, str, list[psutil.Process]]] = []  # what must be gone, and when
        self.replicas: list[Replica] = []
        self.struck_s = 0.0  # when something was last broken or put right
        self.losses: list[tuple[int, int]] = []  # wall clock of each copy, and of the return to it
        self.server = Server(directory)
        self.network = Proxy(self.server.socket)
        self.is_server_up = True
        self.store = Store.connect(self.server.url, settings=RedisSettings(), name="chaos", timeout_s=20)
        (directory / "chaos_jobs.py").write_text(JOBS)
        config = CONFIG.format(
            cluster=CLUSTER, url=f"redis://{HOST}:{self.network.port}/0", lines=directory / "lines.txt"
        )
        (directory / "tenure.yaml").write_text(config)

    def start(self) -> None:
        """Start every replica and wait for the first fires."""
        self.replicas += [Replica(self.directory, name) for name in REPLICAS]
        for replica in self.replicas:
            replica.tree.wait_for("tree_ready")
        wait_until(lambda: len(history_of(self.store, "tick").fired) > 2, what="the first fires")

    def now_s(self) -> float:
        """Return the time that counts a suspended machine."""
        return self.clock.elapsed_ns() / 1e9

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Owe ``action``."""
        self.owed.append((self.now_s() + seconds, action))

    def tend(self) -> None:
        """Do what is owed, restart what stopped, and fail on what should not be."""
        now_s = self.now_s()
        due = [each for each in self.owed if each[0] <= now_s]
        self.owed = [each for each in self.owed if each[0] > now_s]
        for _, action in sorted(due, key=lambda each: each[0]):
            action()
            self.struck_s = now_s
        for until_s, what, family in self.families:
            assert now_s < until_s or not (left := alive(family)), f"{what} outlived its parent by {GONE_S} s: {left}"
        self.families = [each for each in self.families if each[0] > now_s]
        for replica in self.replicas:
            self.tend_one(replica, now_s)

    def tend_one(self, replica: Replica, now_s: float) -> None:
        """See that a tree stops in time when asked, and never otherwise."""
        if replica.state == "dead":
            return
        code = replica.tree.process.poll()
        if replica.state == "stopping":
            assert code is not None or now_s < replica.stop_by_s, f"{replica.tree.name} did not stop in {STOP_S} s"
            if code is None:
                return
            excused = {1} if replica.is_disturbed else set()
            if not replica.tree.events("child_started"):
                excused.add(-signal.SIGTERM)  # it came before the parent listens, and there was nothing to stop
            assert code in {0, *excused}, f"{replica.tree.name} stopped with {code}"
            replica.state = "dead"
            self.later(self.rng.uniform(0, 2), replica.start)
            return
        assert code is None, f"{replica.tree.name} ended by itself with {code}"

    def strike(self) -> None:
        """Do one harm at random."""
        faults = FAULTS | FAULTS_OF_ALL
        fault = self.rng.choices(list(faults), list(faults.values()))[0]
        standing = [each for each in self.replicas if each.state != "dead"]
        if fault in FAULTS_OF_ALL:
            getattr(self, fault)()
        elif standing:
            getattr(self, fault)(self.rng.choice(standing))
        self.struck_s = self.now_s()

    def kill_role(self, replica: Replica) -> None:
        """Kill -9 one process of a tree, also of one that stands still or stops."""
        victims = replica.victims(self.now_s())
        if not victims:
            return
        victim = self.rng.choice(victims)
        replica.kills.append((replica.tree, str(victim["slot"]), self.now_s()))
        replica.is_disturbed = True
        self.killed_sessions.add(f"{victim['replica']}/{victim['slot']}/{victim['generation']}")
        with suppress(ProcessLookupError):
            os.kill(int(str(victim["child_pid"])), signal.SIGKILL)
        self.faults[f"kill {re.sub(r'-[0-9]+$', '', str(victim['slot']))}"] += 1

    def kill_parent(self, replica: Replica) -> None:
        """Kill -9 the parent; its family must follow."""
        family = replica.tree.descendants()
        replica.tree.kill()
        replica.tree.process.wait()
        replica.state = "dead"
        self.families.append((self.now_s() + GONE_S, replica.tree.name, family))
        self.later(self.rng.uniform(0, 3), replica.start)
        self.faults["kill parent"] += 1

    def suspend(self, replica: Replica) -> None:
        """SIGSTOP a whole tree for longer or shorter than its leases."""
        if replica.state == "up":
            tree, replica.state = replica.tree, "paused"
            signal_family(tree, is_pause=True)
            self.later(self.rng.uniform(1, 6), lambda: self.resume(replica, tree))
            self.faults["pause"] += 1

    def resume(self, replica: Replica, tree: Tree) -> None:
        """SIGCONT what is left of it."""
        signal_family(tree, is_pause=False)
        if replica.tree is tree and replica.state == "paused":
            replica.state = "up"

    def terminate(self, replica: Replica) -> None:
        """SIGTERM; it must end by itself."""
        if replica.state == "up":
            replica.state, replica.stop_by_s = "stopping", self.now_s() + STOP_S
            replica.is_disturbed = not self.is_server_up
            replica.tree.terminate()
            self.faults["terminate"] += 1

    def kill_server(self) -> None:
        """Kill -9 the server, and bring it back with its data."""
        if self.is_server_up:
            self.server.kill()
            self.is_server_up = False
            for replica in self.replicas:
                replica.is_disturbed = True
            self.later(self.rng.uniform(0.1, 4), self.start_server)
            self.faults["kill server"] += 1

    def reset(self) -> None:
        """Reset every connection, as a firewall does with those that were idle for too long."""
        self.network.reset()
        self.faults["reset"] += 1

    def hang_names(self) -> None:
        """End every connection while the name server hangs, for less or more than a process may be silent."""
        flag = self.directory / "names-hang"
        flag.touch()
        self.network.reset()
        for replica in self.replicas:
            replica.is_disturbed = True
        self.later(self.rng.uniform(1, 8), lambda: flag.unlink(missing_ok=True))
        self.faults["hang names"] += 1

    def roll_back(self) -> None:
        """Let everything settle; copy the data, and start the server on the copy a little later."""
        self.settle()
        self.server.copy()
        copied_ms = self.clock.wall_ms()
        self.wait(self.rng.uniform(1, 3))
        self.losses.append((copied_ms, self.clock.wall_ms()))
        self.server.go_back()
        for replica in self.replicas:
            replica.is_disturbed = True
        self.wait(KNOWN_S)
        self.faults["roll back"] += 1

    def settle(self) -> None:
        """Wait until every replica stands and nothing was broken for a while."""

        def is_settled() -> bool:
            self.tend()
            is_whole = not self.owed and all(each.state == "up" and each.is_ready for each in self.replicas)
            return is_whole and self.now_s() >= self.struck_s + KNOWN_S

        wait_until(is_settled, what="every replica to stand again", bound_s=DRAIN_S)

    def wait(self, seconds: float) -> None:
        """Let time pass without another fault."""
        until_s = self.now_s() + seconds
        while self.now_s() < until_s:
            self.tend()
            self.pause.wait(0.05)

    def start_server(self) -> None:
        """Start it on the data it has."""
        self.server.start()
        self.is_server_up = True

    def progress(self, elapsed_s: float) -> None:
        """Say how it goes."""
        states = " ".join(f"{each.tree.name}:{each.state}" for each in self.replicas)
        faults = ", ".join(f"{what} {count}" for what, count in sorted(self.faults.items()))
        fired = "the server is down"
        if self.is_server_up:
            with suppress(TenureError):
                fired = fires(self.store)
        say(f"{elapsed_s:5.0f} s  {states}  {fired}  [{faults}]")

    def run(self, seconds: float) -> None:
        """Harm for so long, then be calm, then judge."""
        begin_s = self.harm(seconds, first_s=0, between_s=(0.5, 2))
        self.calm()
        self.progress(self.now_s() - begin_s)
        self.stop()
        trees = [tree for replica in self.replicas for tree in replica.trees]
        counted = sum(int(str(told["count"])) for tree in trees for told in tree.events("fires_doubtful"))
        judge(self.store, self.directory, self.killed_sessions, self.losses, counted)

    def harm(self, seconds: float, *, first_s: float, between_s: tuple[float, float]) -> float:
        """Strike again and again for so long, the first time after ``first_s``; return when it began."""
        begin_s = self.now_s()
        strike_s, tell_s = begin_s + first_s, begin_s + 10
        while (now_s := self.now_s()) < begin_s + seconds:
            self.tend()
            if now_s >= strike_s:
                self.strike()
                strike_s = self.now_s() + self.rng.uniform(*between_s)
            if now_s >= tell_s:
                self.progress(now_s - begin_s)
                tell_s += 10
            self.pause.wait(0.05)
        return begin_s

    def calm(self) -> None:
        """Put everything right, and wait until all that was owed by then is done."""
        self.settle()
        before = {name: history_of(self.store, name) for name in PERIODS_MS}
        for name, history in before.items():
            self.drain(name, history)
        await_sessions(self.store, [replica.tree for replica in self.replicas])

    def drain(self, name: str, before: History) -> None:
        """Wait until a schedule fired again, and all that it had fired is done."""

        def open_runs() -> set[str]:
            return before.unfinished() & history_of(self.store, name).unfinished() - dead(self.store, QUEUES[name])

        wait_until(lambda: len(history_of(self.store, name).fired) >= len(before.fired) + 2, what=f"fires of {name}")
        what = f"runs of {name} to complete, at first {sorted(open_runs())}"
        wait_until(lambda: not open_runs(), what=what, bound_s=DRAIN_S)

    def stop(self) -> None:
        """Stop every tree; nothing may be left of any."""
        for replica in self.replicas:
            replica.tree.terminate()
        for replica in self.replicas:
            assert replica.tree.wait(STOP_S) == 0, f"{replica.tree.name} did not stop cleanly"
        ours = {os.getpid(), self.server.process.pid}
        left = [
            process
            for process in alive(list(psutil.process_iter()))
            if process.pid not in ours and is_in(process, self.directory)
        ]
        assert not left, f"left behind: {left}"
        crashed = [each for replica in self.replicas for tree in replica.trees for each in tree.events("child_crashed")]
        assert not crashed, f"ended by an error of their own: {crashed}"
        assert not self.store.run(Sessions(Keys(CLUSTER)).list()), "a session is open and nobody is left"

    def close(self) -> None:
        """Leave no process behind, whatever happened."""
        for replica in self.replicas:
            for tree in replica.trees:
                tree.close()
        self.store.close()
        self.network.close()
        self.server.kill()


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    if not 0 < options.seconds <= SECONDS_MAX:
        parser.error(f"--seconds must be at most {SECONDS_MAX}: the log would not hold everything")
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big")
    directory = Path(tempfile.mkdtemp(prefix="tenure-chaos-"))
    say(f"seed {seed}, {options.seconds:g} s, in {directory}")
    chaos = Chaos(directory, seed)
    try:
        chaos.start()
        chaos.run(options.seconds)
    except (AssertionError, TenureError) as error:
        chaos.progress(0)
        say(f"FAILED with seed {seed}: {error}\nlogs and data are in {directory}")
        return 1
    finally:
        chaos.close()
    shutil.rmtree(directory, ignore_errors=True)
    say(f"held: seed {seed}, {options.seconds:g} s, {sum(chaos.faults.values())} faults")
    return 0


if __name__ == "__main__":
    sys.exit(main())
