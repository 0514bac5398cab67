"""A real server on loopback and real trees, started by the command as a user would, for the benchmark of workers."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from bench.schedules_board import cpu_s
from supervisor.clock import SystemClock
from supervisor.core.model import Envelope, Kind, Template
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from tests.e2e.servers import Server
from tests.e2e.trees import Tree, end_all
from tests.kit.servers import RealServer
from tests.kit.waiting import wait_until

CLUSTER, QUEUE = "bench", "bench"
BATCH = 500
BOUND_S = 900.0
ASYNC = "io: {kind: async, processes: 1, concurrency: 100, queues: [bench]}"
SYNC = "cpu: {kind: sync, processes: 1, queues: [bench]}"
CLIENT_COMMANDS = ("evalsha", "eval", "blpop", "ping", "xread", "script|load", "hello", "client|setname")
ASYNC_JOBS = """
import asyncio
import os
import time
from pathlib import Path

from tenure import Context, job


@job("bench.noop", queue="bench")
async def noop() -> None:
    pass


@job("bench.tell", queue="bench")
async def tell() -> None:
    for line in range(10):
        print("line", line, "of a run that prints what it does")


@job("bench.now", queue="bench")
async def now() -> int:
    return time.time_ns()


@job("bench.hold", queue="bench", timeout=300, max_crashes=1000)
async def hold(path: str, seconds: float, ctx: Context) -> None:
    Path(path, ctx.run_id).write_text(str(os.getpid()))
    if ctx.fence == 1:  # whoever gets it after a death is done at once
        await asyncio.sleep(seconds)
"""
SYNC_JOBS = """
import os
import time

from tenure import job


@job("bench.noop_sync", queue="bench")
def noop_sync() -> None:
    pass


@job("bench.spin", queue="bench", timeout=2, soft_timeout=1, max_crashes=1)
def spin(path: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, f"{os.getpid()} {time.time_ns()}\\n".encode())
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
"""
CONFIG = """
version: 1
cluster: bench
web: {{port: 0}}
log: {{format: json}}
{extra}
workers:
  {workers}
jobs: [{jobs}]
redis: {{url: "{url}"}}
"""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything is measured."""

    runs: int = 60_000
    rounds: int = 200  # of what takes milliseconds
    kills: int = 56
    nodes: int = 5
    timeouts: int = 8
    outage_s: float = 60.0
    many: int = 1_000_000


QUICK = Scale(runs=20_000, rounds=50, kills=12, nodes=2, timeouts=3, outage_s=5.0, many=100_000)


class World:
    """Everything that one row of the table needs; a fresh one for each."""

    def __init__(self, *, is_durable: bool = False) -> None:
        """Start a server: on loopback, or a durable one on a unix socket, which can be killed and started again."""
        self.clock = SystemClock()
        self.directory = Path(tempfile.mkdtemp(prefix="tenure-bench-"))
        if is_durable:
            self.server: Server | RealServer = Server(self.directory)
            self.url = self.server.url
        else:
            with socket.create_server(("127.0.0.1", 0)) as probe:
                port = probe.getsockname()[1]
            self.server = RealServer(self.directory, "--port", str(port), "--bind", "127.0.0.1")
            self.url = f"redis://127.0.0.1:{port}"
        self.keys = Keys(CLUSTER)
        self.queues = Queues(self.keys)
        self.store = Store.connect(self.url, settings=RedisSettings(), name="bench", timeout_s=60)
        self.raw: redis.Redis = self.store.raw
        self.trees: list[Tree] = []
        self._nonce = 0
        (self.directory / "bench_async.py").write_text(ASYNC_JOBS)
        (self.directory / "bench_sync.py").write_text(SYNC_JOBS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_all(self.trees)
        self.store.close()
        self.server.process.kill()
        self.server.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    # Trees.

    def start(self, *workers: str, name: str = "one", extra: str = "", options: Sequence[str] = ()) -> Tree:
        """Start a replica with these pools and options of the command, and wait until it is ready."""
        config = self.directory / f"{name}.yaml"
        jobs = ", ".join(
            f"bench_{kind}" for kind in ("async", "sync") if any(f"kind: {kind}" in each for each in workers)
        )
        config.write_text(CONFIG.format(workers="\n  ".join(workers), url=self.url, extra=extra, jobs=jobs))
        settings = (
            "--config",
            config.name,
            "--set",
            f"replica={name}",
            "--data-dir",
            f"data-{name}-{len(self.trees)}",
            *options,
        )
        tree = Tree(self.directory, f"{name}-{len(self.trees)}", *settings)
        self.trees.append(tree)
        tree.wait_for("tree_ready")
        return tree

    # Runs.

    def enqueue(self, count: int, template: Template, *, batch: int = BATCH, first: int = 0) -> list[str]:
        """Enqueue runs in batches, as one producer does; return their ids."""
        ids = [f"run-{number:09d}" for number in range(first, first + count)]
        for part in _parts(ids, batch):
            self._nonce += 1
            envelopes = [Envelope(id=run_id, template=template, enqueued_ms=self.clock.wall_ms()) for run_id in part]
            self.store.run(self.queues.enqueue(nonce=f"bench-{self._nonce}", envelopes=envelopes))
        return ids

    def count(self, name: str = "ok") -> int:
        """Return one of the queue's counters."""
        return int(self.raw.hget(self.keys.queue(QUEUE).stat, name) or 0)

    def reclaimed(self) -> int:
        """Return how many runs were taken back from sessions, for whatever reason."""
        stat: dict[bytes, bytes] = self.raw.hgetall(self.keys.queue(QUEUE).stat)
        return sum(int(count) for name, count in stat.items() if name.startswith(b"reclaim_"))

    def hold(self, *run_ids: str, seconds: float = 250.0) -> dict[str, int]:
        """Enqueue runs that go on for long; return the process that executes each, once all have begun."""
        place = self.directory / "held"
        place.mkdir(exist_ok=True)
        job = template("bench.hold", args={"path": str(place), "seconds": seconds}, max_crashes=1000, timeout_s=300)
        self._nonce += 1
        envelopes = [Envelope(id=run_id, template=job) for run_id in run_ids]
        self.store.run(self.queues.enqueue(nonce=f"bench-{self._nonce}", envelopes=envelopes))
        files = [self.held(run_id) for run_id in run_ids]
        wait_until(lambda: all(file.exists() and file.read_text() for file in files), what="the runs to begin")
        return {run_id: int(self.held(run_id).read_text()) for run_id in run_ids}

    def held(self, run_id: str) -> Path:
        """Return the file into which each execution of a held run writes its process."""
        return self.directory / "held" / run_id

    def wait_for_ends(self, total: int, *, bound_s: float = BOUND_S) -> None:
        """Return once so many runs have completed."""
        wait_until(lambda: self.count() >= total, what=f"{total} runs to complete", bound_s=bound_s)

    # What it costs.

    def server_cpu_s(self) -> float:
        """Return the processor time of the server."""
        return cpu_s(self.server.process.pid)

    def round_trips(self) -> int:
        """Return how many commands clients sent, apart from those that scripts called."""
        stats: dict[str, Any] = self.raw.info("commandstats")
        return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in CLIENT_COMMANDS)

    def used_bytes(self) -> int:
        """Return what the server's data takes."""
        return int(self.raw.info("memory")["used_memory"])


def template(job: str = "bench.noop", kind: Kind = Kind.ASYNC, **fields: Any) -> Template:
    """Return what a run of the benchmark needs."""
    return Template(**{"job": job, "kind": kind, "queue": QUEUE} | fields)


def _parts(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))
