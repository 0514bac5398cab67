"""What chaos strikes: the jobs, the configuration, and replicas that are started again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.sessions import Sessions
from tests.e2e.chaos_verdict import CLUSTER
from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until

KILLS_MAX = 4  # of one slot within the window: the sixth would rightly count as a crash loop
KILL_WINDOW_S = 130

HOST = "redis.chaos"

JOBS = """
import asyncio
import os
import socket
import time

from tenure import Context, job

real_look_up = socket.getaddrinfo


def look_up(host, *rest, **more):
    if host != "redis.chaos":
        return real_look_up(host, *rest, **more)
    if os.path.exists("names-hang"):
        time.sleep(10)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")
    return real_look_up("127.0.0.1", *rest, **more)


socket.getaddrinfo = look_up


def note(path: str, ctx: Context) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{ctx.run_id} {ctx.attempt} {ctx.fence}\\n".encode())
    os.close(file)


@job("chaos.tick", timeout=60)
async def tick() -> None:
    await asyncio.sleep(0.3)


@job("chaos.line", timeout=60)
def line(path: str, ctx: Context) -> None:
    note(path, ctx)


@job("chaos.slow", timeout=60, queue="heavy")
def slow(path: str, seconds: float, ctx: Context) -> None:
    note(path, ctx)
    time.sleep(seconds)
"""

CONFIG = """
version: 1
cluster: {cluster}
web: {{port: 0}}
log: {{format: json}}
election: {{lease_duration: 2s, renew_period: 400ms, renew_timeout: 400ms}}
queues: {{session_lease: 3s, beat_period: 500ms}}
supervision: {{grace: 20s}}
workers:
  io: {{kind: async, queues: [default]}}
  cpu: {{kind: sync, processes: 1, queues: [default, heavy]}}
jobs: [chaos_jobs]
redis: {{url: "{url}"}}
schedules:
  tick: {{job: chaos.tick, every: 500ms, overlap: allow}}
  line: {{job: chaos.line, every: 1s, overlap: allow, args: {{path: "{lines}"}}}}
  slow: {{job: chaos.slow, every: 4s, args: {{path: "{lines}", seconds: 2.5}}}}
"""


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return those that still run; a zombie does not, it waits for its new parent to look."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def is_in(process: psutil.Process, directory: Path) -> bool:
    """Return whether a process was started by the run in ``directory``."""
    try:
        return process.cwd() == str(directory)
    except psutil.Error:
        return False


def await_sessions(store: Store, trees: Sequence[Tree]) -> None:
    """Wait until no session is open, or dying, but the two of each of these trees, which run.

    Those of a process that died with its agent are given up when its lease is over.
    """
    sessions = Sessions(Keys(CLUSTER))
    wait_until(lambda: not store.run(sessions.dying()), what="dying sessions to be buried")
    running = {each["replica"] for tree in trees for each in tree.events("child_started")}

    def is_whole() -> bool:
        return Counter(name.partition("/")[0] for name in store.run(sessions.list())) == dict.fromkeys(running, 2)

    wait_until(is_whole, what=f"two open sessions of each of {sorted(running)}, and no others")


def signal_family(tree: Tree, *, is_pause: bool) -> None:
    """Stop a tree or let it go on; the parent first, so that it starts nothing behind our back."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(tree.pid)
        (parent.suspend if is_pause else parent.resume)()
    for process in tree.descendants():
        with suppress(psutil.NoSuchProcess):
            (process.suspend if is_pause else process.resume)()


class Replica:
    """One place in the cluster: a tree, and the trees that were there before."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.name = name
        self.trees: list[Tree] = []
        self.kills: list[tuple[Tree, str, float]] = []
        self.start()

    def start(self) -> None:
        """Start a tree with the name and the data of the earlier ones."""
        settings = ("--set", f"replica={self.name}", "--data-dir", f"data-{self.name}")
        name = f"{self.name}-{len(self.trees)}"
        self.trees.append(Tree(self.directory, name, "--config", "tenure.yaml", *settings))
        self.state = "up"
        self.stop_by_s = 0.0
        self.is_disturbed = False  # whether a stop that is not clean has an excuse

    @property
    def tree(self) -> Tree:
        """The newest."""
        return self.trees[-1]

    @property
    def is_ready(self) -> bool:
        """Whether every role of the newest tree was ready once."""
        return bool(self.tree.events("tree_ready"))

    def victims(self, now_s: float) -> list[dict[str, object]]:
        """Return the starts of the processes that may be killed now without an excuse for a crash loop."""
        children = {each.pid for each in alive(self.tree.descendants())}
        started = [each for each in self.tree.events("child_started") if each["child_pid"] in children]
        recent = Counter(slot for tree, slot, at_s in self.kills if tree is self.tree and now_s - at_s < KILL_WINDOW_S)
        most = KILLS_MAX if self.is_ready else 1
        return [each for each in started if recent[each["slot"]] < most]
