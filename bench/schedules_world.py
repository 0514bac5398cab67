"""A real server on loopback and a real scheduler process, with the benchmark in the place of the agent.

The benchmark grants and ends terms itself, so that it knows to the millisecond when one began.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.schedules_board import cpu_s, open_board, private_mib
from bench.schedules_listener import Listener
from supervisor.clock import SystemClock
from supervisor.core.election.lease import NO_TERM, Term
from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.core.supervision.states import Phase, SlotState
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import CandidateInfo, Leases, LeaseView
from supervisor.store.keys import Keys
from supervisor.store.schedules.definitions import Change, Definitions
from supervisor.store.schedules.fire import Schedules
from tests.kit.servers import RealServer
from tests.kit.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
CLUSTER, QUEUE = "bench", "bench"
LEASE_MS = 5000
CLIENT_COMMANDS = ("evalsha", "eval", "xread", "ping", "script|load", "hello", "client|setname", "client|setinfo")
TEMPLATE = Template(job="bench.noop", kind=Kind.ASYNC, queue=QUEUE, args={"tenant": "acme", "limit": 100})
BOUND_S = 600.0


def schedule(number: int, **fields: Any) -> ScheduleDef:
    """Return one schedule of a benchmark; it may overlap, because nothing here finishes its runs."""
    return ScheduleDef(**{"id": f"bench:{number:06d}", "template": TEMPLATE, "overlap": "allow"} | fields)


def spread(count: int, every_ms: int) -> Iterable[ScheduleDef]:
    """Return ``count`` schedules of one interval, due evenly over it."""
    return (schedule(n, every_ms=every_ms, phase_ms=n * every_ms // count) for n in range(count))


def due_at(count: int, at_ms: int, every_ms: int = 86_400_000) -> Iterable[ScheduleDef]:
    """Return ``count`` schedules that are all due at ``at_ms``, and then for a long time not."""
    return (schedule(n, every_ms=every_ms, phase_ms=at_ms % every_ms) for n in range(count))


class World:
    """Everything that one row of the table needs; a fresh one for each."""

    def __init__(self, *, log_level: str = "info", appendfsync: str = "") -> None:
        self.clock = SystemClock()
        self.directory = Path(tempfile.mkdtemp(prefix="tenure-bench-"))
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        durable = ("--appendonly", "yes", "--appendfsync", appendfsync) if appendfsync else ()
        self._server = RealServer(self.directory, "--port", str(port), "--bind", "127.0.0.1", *durable)
        self.url = f"redis://127.0.0.1:{port}"
        self.keys = Keys(CLUSTER)
        self.store = Store.connect(self.url, settings=RedisSettings(), name="bench", timeout_s=60)
        self.raw = self.store.raw
        self.definitions = Definitions(self.keys)
        self.schedules = Schedules(self.keys)
        self._leases = Leases(self.keys)
        self._log_level = log_level
        self._term: LeaseView | None = None
        self._leader: subprocess.Popen[bytes] | None = None
        self.board = open_board(self.directory / "board")
        self.board.header.phase = Phase.READY

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._leader is not None:
            self._leader.kill()
            self._leader.wait()
        self.store.close()
        self._server.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    # The leader.

    def start_leader(self) -> None:
        """Start the scheduler process; it stands by until it is given a term."""
        metrics = self.directory / "metrics"
        spec = {
            "board": str(self.directory / "board"),
            "url": self.url,
            "cluster": CLUSTER,
            "log_level": self._log_level,
            "metrics": str(metrics),
        }
        row = self.board.rows[0]
        row.generation, row.state = 1, SlotState.STARTING
        with self.log_path.open("ab") as log:
            self._leader = subprocess.Popen(
                [sys.executable, "-m", "bench.schedules_leader", json.dumps(spec)], stdout=log, stderr=log, cwd=ROOT
            )
        row.pid, row.state = self._leader.pid, SlotState.RUNNING
        wait_until(lambda: row.child_generation == 1 or self._leader_failed(), what="the scheduler to be ready")

    def _leader_failed(self) -> bool:
        assert self._leader is not None
        assert self._leader.poll() is None, self.log_path.read_text()[-2000:]
        return False

    @property
    def log_path(self) -> Path:
        """What the leader wrote."""
        return self.directory / "leader.log"

    @property
    def pid(self) -> int:
        """The leader's process."""
        assert self._leader is not None
        return self._leader.pid

    def win(self) -> float:
        """Grant the scheduler a term; return the wall clock, in ms, when the grant was answered."""
        self._term = self.campaign()
        won_ms = wall_ms()
        hour_ns = 3_600_000_000_000
        self.board.publish_term(Term(self._term.epoch, self._term.nonce, self.clock.elapsed_ns() + hour_ns))
        os.kill(self.pid, signal.SIGURG)
        return won_ms

    def campaign(self) -> LeaseView:
        """Take the lease, which nobody holds."""
        nonce = os.urandom(16).hex()
        info = CandidateInfo(replica="bench.000001", host="bench", pid=os.getpid(), version="0")
        call = self._leases.campaign(
            replica="bench.000001", nonce=nonce, duration_ms=LEASE_MS, floor=0, mode="cold",
            observed_epoch=0, observed_seq=0, info=info,
        )  # fmt: skip
        view = self.store.run(call)
        assert view.is_ours, view
        return view

    def lose(self) -> None:
        """End the term, as an election that goes to somebody else does."""
        assert self._term is not None
        self.board.publish_term(NO_TERM)
        os.kill(self.pid, signal.SIGURG)
        self.store.run(self._leases.release(self._term, reason="bench"))
        self._term = None

    # Schedules.

    def load(self, definitions: Iterable[ScheduleDef], told: Callable[[int], None] = lambda _n: None) -> None:
        """Bring in dynamic schedules, 250 at a time."""
        batch: list[Change] = []
        for definition in definitions:
            batch.append(Change(definition=definition))
            if len(batch) == 250:
                self._upsert(batch)
                told(len(batch))
                batch = []
        if batch:
            self._upsert(batch)

    def _upsert(self, batch: list[Change]) -> None:
        self.store.run(self.definitions.upsert(batch, wall_ms=self.clock.wall_ms()))

    def is_planned(self) -> bool:
        """Whether the leader has looked at everything that it was asked to look at."""
        return self.raw.zcount(self.keys.schedule_next, "-inf", 0) == 0

    def plan(self) -> float:
        """Return the seconds until everything is planned."""
        begun = self.clock.elapsed_ns()
        wait_until(self.is_planned, what="the leader to plan everything", bound_s=BOUND_S)
        return (self.clock.elapsed_ns() - begun) / 1e9

    def enqueued(self) -> int:
        """Return how many runs were enqueued."""
        return int(self.raw.hget(self.keys.queue(QUEUE).stat, "in") or 0)

    def listener(self) -> Listener:
        """Return a listener to the decisions that are made from now on."""
        return Listener(self.url, self.keys.schedule_log)

    # What it costs.

    def leader_cpu_s(self) -> float:
        """Return the processor time of the leader."""
        return cpu_s(self.pid)

    def server_cpu_s(self) -> float:
        """Return the processor time of the server."""
        return cpu_s(self._server.process.pid)

    def leader_mib(self) -> float:
        """Return the private memory of the leader."""
        return private_mib(self.pid)

    def redis_mib(self) -> float:
        """Return what the server's data takes."""
        return int(self.raw.info("memory")["used_memory"]) / 2**20

    def sent(self) -> int:
        """Return how many commands clients sent, apart from those that scripts called and those of this question."""
        stats = self.raw.info("commandstats")
        return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in CLIENT_COMMANDS)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the leader's log lines about one event."""
        found = []
        for line in self.log_path.read_text(errors="replace").splitlines():
            with suppress(json.JSONDecodeError):
                entry = json.loads(line)
                if entry.get("event") == name:
                    found.append(entry)
        return found


def wall_ms() -> float:
    """Return the wall clock in ms, with what is below a millisecond."""
    return time.time_ns() / 1e6
