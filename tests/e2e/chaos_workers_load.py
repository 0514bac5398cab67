"""The work that chaos strikes: jobs that keep a ledger of their own, and a producer that never gives up."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from supervisor.clock import SystemClock
from supervisor.core.errors import TenureError
from supervisor.core.model import Envelope, Kind, Template
from supervisor.core.retry import Retry
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from tests.e2e.chaos_verdict import CLUSTER

QUEUES = ("default", "heavy")
BATCH = 50
AGAIN_S = 0.1
CRASHES_MAX = 1000  # a run that is struck by chance more often than usual is not poison

JOBS = """
import asyncio
import os
import time

from tenure import Context, job

FILES = {}


def note(what: str, path: str, ctx: Context) -> None:
    file = FILES.get(os.getpid())
    if file is None:
        file = FILES[os.getpid()] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{what} {ctx.run_id} {ctx.attempt} {ctx.fence} {os.getpid()}\\n".encode())


@job("chaos.async")
async def coroutine(path: str, seconds: float, failures: int, ctx: Context) -> None:
    note("start", path, ctx)
    await asyncio.sleep(seconds)
    if ctx.attempt <= failures:
        raise RuntimeError("as it should")
    note("end", path, ctx)


@job("chaos.sync")
def function(path: str, seconds: float, failures: int, ctx: Context) -> None:
    note("start", path, ctx)
    if seconds:
        time.sleep(seconds)
    if ctx.attempt <= failures:
        raise RuntimeError("as it should")
    note("end", path, ctx)
"""

CONFIG = """
version: 1
cluster: {cluster}
web: {{port: 0}}
log: {{format: json}}
election: {{lease_duration: 2s, renew_period: 400ms, renew_timeout: 400ms}}
queues: {{session_lease: 6s, beat_period: 500ms, history: 1000000}}
supervision: {{grace: 20s}}
workers:
  io: {{kind: async, concurrency: 20, queues: [default, heavy]}}
  cpu: {{kind: sync, processes: 1, queues: [default, heavy]}}
jobs: [chaos_jobs]
redis: {{url: "{url}"}}
"""


def run_ids(count: int) -> list[str]:
    """Return the ids of all runs."""
    return [f"c{number:07d}" for number in range(count)]


def envelope(number: int, run_id: str, ledger: str) -> tuple[Envelope, int]:
    """Return one run and how long it is delayed, in ms: most are short, some long, late, or fail at first."""
    is_sync = number % 10 == 0
    seconds = 0.5 if number % 400 == 7 else 0.0 if is_sync else 0.01
    args = {"path": ledger, "seconds": seconds, "failures": int(number % 50 == 3)}
    template = Template(
        job="chaos.sync" if is_sync else "chaos.async",
        kind=Kind.SYNC if is_sync else Kind.ASYNC,
        queue=QUEUES[number % 7 == 0],
        priority=number % 3,
        args=args,
        retry=Retry(attempts=3, base_s=0.2, cap_s=1),
        timeout_s=60,
        max_crashes=CRASHES_MAX,
    )
    return Envelope(id=run_id, template=template), 400 if number % 20 == 1 else 0


class LoadProducer(threading.Thread):
    """Enqueues every run, evenly over the time; what was not answered is sent again with its nonce."""

    def __init__(self, url: str, ids: Sequence[str], *, ledger: Path, over_s: float) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self.trouble = ""  # why the last call that failed did
        self._ids = ids
        self._ledger = str(ledger)
        self._over_s = over_s
        self._must_end = threading.Event()
        self._store = Store.connect(url, settings=RedisSettings(), name="producer", timeout_s=3)
        self._queues = Queues(Keys(CLUSTER))
        self._clock = SystemClock()

    def run(self) -> None:
        """Enqueue."""
        begun_ns = self._clock.elapsed_ns()
        for start in range(0, len(self._ids), BATCH):
            due_s = self._over_s * start / len(self._ids)
            self._must_end.wait(max(0.0, due_s - (self._clock.elapsed_ns() - begun_ns) / 1e9))
            if self._must_end.is_set():
                return
            self._send(start)

    def _send(self, start: int) -> None:
        ids = self._ids[start : start + BATCH]
        runs = [envelope(start + offset, run_id, self._ledger) for offset, run_id in enumerate(ids)]
        call = self._queues.enqueue(
            nonce=f"load-{start}", envelopes=[each for each, _ in runs], delays_ms=[delay for _, delay in runs]
        )
        while not self._must_end.is_set():
            try:
                self._store.run(call)
            except TenureError as error:
                self.trouble = str(error)
                self._must_end.wait(AGAIN_S)
            else:
                self.sent, self.trouble = self.sent + len(ids), ""
                return

    def close(self) -> None:
        """End it, whatever is left."""
        self._must_end.set()
        if self.is_alive():
            self.join(30)
        self._store.close()
