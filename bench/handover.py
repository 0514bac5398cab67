"""How long a hand-over takes, from the log lines of real trees."""

from __future__ import annotations

import os
import signal
from datetime import datetime
from pathlib import Path

from tests.e2e.pairs import Pair, make_pair
from tests.e2e.servers import Server
from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until


def _moment_s(event: dict[str, object]) -> float:
    return datetime.fromisoformat(str(event["ts"])).timestamp()


def _with_pair(directory: Path) -> tuple[Pair, list[Tree], Server]:
    directory.mkdir(parents=True)
    server = Server(directory)
    trees: list[Tree] = []
    return make_pair(trees, directory, server), trees, server


def _close(pair: Pair, trees: list[Tree], server: Server) -> None:
    pair.store.close()
    for tree in trees:
        tree.close()
    server.kill()


def measure_resign(directory: Path) -> float:
    """Return the seconds from SIGTERM at the leading replica to the other's term."""
    pair, trees, server = _with_pair(directory)
    try:
        leader, standby = pair.roles()
        leader.terminate()
        acquired = standby.wait_for("leader_acquired")
        return _moment_s(acquired) - _moment_s(leader.wait_for("signal_received"))
    finally:
        _close(pair, trees, server)


def measure_worker_death(directory: Path) -> float:
    """Return the seconds from ``kill -9`` of a worker to the moment its run is given back."""
    pair, trees, server = _with_pair(directory)
    try:
        path = pair.enqueue_slow(3.0)
        os.kill(int(path.read_text().split()[3]), signal.SIGKILL)
        tree = wait_until(
            lambda: next((each for each in trees if each.events("session_reclaimed")), None), what="the reclaim"
        )
        exits = [each for each in tree.events("child_exited") if each["slot"].startswith("worker-cpu")]
        return _moment_s(tree.events("session_reclaimed")[0]) - _moment_s(exits[0])
    finally:
        _close(pair, trees, server)
