"""Two real electors on a real server, in this process: what a clean hand-over costs without anything else.

Everything is what a replica uses (elector, its thread, client, scripts) but for the tree around
it: a flag says whether it stops. Both share one interpreter, which adds to the numbers.
"""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Any

from bench.table import Samples, Tick
from supervisor.clock import SystemClock
from supervisor.core.supervision.scoreboard import Board, board_words
from supervisor.roles.agent.election.context import ElectionContext, ElectionTiming
from supervisor.roles.agent.election.elector_thread import ElectorThread
from supervisor.roles.agent.main import new_nonce
from supervisor.roles.leadership.contender import ProgramSurroundings
from supervisor.settings.sections.models import ElectionSettings, RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import CandidateInfo, Leases
from supervisor.store.keys import Keys
from tests.e2e.servers import Server
from tests.kit.waiting import wait_until

WAIT_S = 30.0
CLOCK = SystemClock()


class Timed(Store):
    """A client that notes when it sent a release."""

    released_ns = 0

    def run(self, call: Any, *, timeout_s: float | None = None) -> Any:
        """Send ``call``."""
        if call.script == "lease_release":
            type(self).released_ns = CLOCK.elapsed_ns()
        return super().run(call, timeout_s=timeout_s)


class Candidate:
    """One elector, and when it last could fire."""

    def __init__(self, url: str, name: str) -> None:
        self.around = ProgramSurroundings(lambda: None)
        self.leads = threading.Event()
        self.stands_by = threading.Event()
        self.may_fire_ns = 0
        words = memoryview(bytearray(8 * board_words(slots=1, inflight=1))).cast("Q")
        self.board = Board(words, slots=1, inflight=1)
        settings = ElectionSettings()
        keys = Keys("bench")
        standing = ElectionContext(
            leases=Leases(keys),
            board=self.board,
            clock=CLOCK,
            me=CandidateInfo(replica=name, started_ms=CLOCK.wall_ms()),
            timing=ElectionTiming.of(settings),
            around=self.around,
            report=self.report,
            rng=Random(name),
            new_nonce=new_nonce,
        )
        store = Timed.connect(url, settings=RedisSettings(), name=name, timeout_s=settings.renew_timeout_s)
        self.thread = ElectorThread(standing, store=store, keys=keys)
        self.thread.start()

    def report(self, event: str, **fields: Any) -> None:
        """Note the two moments that count. The term is on the board by then."""
        del fields
        if event == "leader_acquired":
            self.may_fire_ns = CLOCK.elapsed_ns()
            self.leads.set()
        elif event == "standby":
            self.stands_by.set()

    def stop(self) -> None:
        """Release, and end."""
        self.around.is_ending = True
        self.thread.wake()


def clean_hand_over(directory: Path, rounds: int, tick: Tick) -> Samples:
    """Return the milliseconds from the release leaving one elector to the trusted term on the other's board."""
    directory.mkdir(parents=True)
    server = Server(directory)
    found: list[float] = []
    try:
        leader = Candidate(server.url, "candidate-0")
        assert leader.leads.wait(WAIT_S)
        watcher = Store.connect(server.url, settings=RedisSettings(), name="watcher", timeout_s=WAIT_S)
        for number in range(1, rounds + 1):
            heir = Candidate(server.url, f"candidate-{number}")
            assert heir.stands_by.wait(WAIT_S)
            wait_until(lambda: _is_blocked(watcher), what="the standby to block on the events")
            leader.stop()
            assert heir.leads.wait(WAIT_S)
            found.append((heir.may_fire_ns - Timed.released_ns) / 1e6)
            leader.thread.join(WAIT_S)
            leader = heir
            tick()
        leader.stop()
        leader.thread.join(WAIT_S)
    finally:
        server.kill()
    return Samples(found, "two electors in one process; release sent to trusted term on the board")


def _is_blocked(watcher: Store) -> bool:
    """Whether somebody waits for events on the server."""
    return b"blocked_clients:0" not in watcher.command("INFO", "clients")
