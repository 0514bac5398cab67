"""What the tree costs: memory, processor time, descriptors; and what its endpoint delivers under load."""

from __future__ import annotations

import http.client
import os
import re
import threading
import time
from pathlib import Path

import psutil

from bench.supervision_world import busy, tree
from bench.table import Samples, Tick
from tests.integration.process.restarting import grown_after
from tests.kit.waiting import wait_until

WORKER, WAKEUPS, DESCRIPTORS = "memory-worker", "idle-wakeups", "restarts-fds"
MIB = 1 << 20
IDLE_S = 20.0
SETTLE_S = 3.0


def memory(directory: Path, rounds: int, tick: Tick) -> Samples:
    """PSS of the parent and USS of its workers, three seconds after READY."""
    parent: list[float] = []
    workers: list[float] = []
    for number in range(rounds):
        with tree(directory / f"t{number}", workers=8) as one:
            time.sleep(SETTLE_S)
            parent.append(psutil.Process(one.pid).memory_full_info().pss / MIB)
            processes = (psutil.Process(one.slot_pid(f"worker-cpu-{index}")) for index in range(8))
            workers.extend(process.memory_full_info().uss / MIB for process in processes)
        tick()
    return Samples(parent, "", {WORKER: workers})


def idle(directory: Path, rounds: int, tick: Tick) -> Samples:
    """Processor time and voluntary context switches of the parent while nothing happens."""
    shares: list[float] = []
    wakeups: list[float] = []
    with tree(directory, workers=28) as one:  # with agent, scheduler, web and the server: 32
        time.sleep(SETTLE_S)
        for _ in range(rounds):
            used_s, switches = _spent(one.pid)
            time.sleep(IDLE_S)
            used_after_s, switches_after = _spent(one.pid)
            shares.append(100 * (used_after_s - used_s) / IDLE_S)
            wakeups.append((switches_after - switches) / IDLE_S)
            tick()
    return Samples(shares, f"over {IDLE_S:g} s each", {WAKEUPS: wakeups})


def _spent(pid: int) -> tuple[float, int]:
    run_ns = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    switches = re.findall(r"voluntary_ctxt_switches:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]
    return run_ns / 1e9, int(switches)


def restarts(_directory: Path, rounds: int, tick: Tick) -> Samples:
    """Children that end at once, forked again and again by the parent's own machinery, under a clock that is driven."""
    grown_kib, descriptors = grown_after(rounds, each=tick)
    return Samples([grown_kib / 1024], f"{rounds} restarts of 8 slots", {DESCRIPTORS: [float(descriptors)]})


def livez(directory: Path, rounds: int, tick: Tick) -> Samples:
    """One request after the other, each on a connection of its own, beside two busy processes a core."""
    found: list[float] = []
    with tree(directory) as one, busy(2 * (os.cpu_count() or 1)):
        address = one.address()
        for _ in range(rounds):
            struck = time.perf_counter()
            assert _get(address) == 200
            found.append((time.perf_counter() - struck) * 1e3)
            tick()
    return Samples(found, "a connection for each request")


def _get(address: str) -> int:
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status
    finally:
        connection.close()


def web_killed(directory: Path, rounds: int, tick: Tick) -> Samples:
    """Kill -9 of the web child under a stream of requests. One that it was serving breaks; none may be refused."""
    refused: list[float] = []
    broken = served = 0
    for number in range(rounds):
        with tree(directory / f"t{number}") as one:
            stream = _Stream(one.address())
            before = one.slot_pid("web")
            one.kill("web")
            wait_until(lambda t=one, b=before: t.slot_pid("web") != b, what="the next web child")
            wait_until(lambda s=stream, n=stream.served: s.served > n + 50, what="requests to be served again")
            stream.stop()
            refused.append(float(stream.refused))
            broken, served = broken + stream.broken, served + stream.served
        tick()
    return Samples(refused, f"{served} requests served, {broken} broken in the middle")


class _Stream:
    """Requests without a pause, from a thread, counted by how they ended."""

    def __init__(self, address: str) -> None:
        self.served = self.refused = self.broken = 0
        self._address = address
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()
        wait_until(lambda: self.served > 50, what="the stream to flow")

    def stop(self) -> None:
        """End it."""
        self._is_over.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._is_over.is_set():
            try:
                _get(self._address)
                self.served += 1
            except ConnectionRefusedError:
                self.refused += 1
            except (OSError, http.client.HTTPException):
                self.broken += 1
