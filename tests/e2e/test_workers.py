"""Workers of whole trees: poison among innocents, a lost machine, a deploy, a hard timeout, an outage of Redis."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from supervisor.core.model import Envelope, Kind, Template
from supervisor.core.retry import Retry
from supervisor.store.client.sync_client import Store
from supervisor.store.event_log import EventLog
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from supervisor.store.wire.poll import HistoryEntry
from tests.e2e.clusters import family
from tests.e2e.servers import Server
from tests.e2e.trees import Tree
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
INNOCENTS = 20
JOBS = """
import asyncio
import os
import signal
import time

from tenure import Context, job


def note(path: str, ctx: Context) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{ctx.run_id} {ctx.attempt} {ctx.fence} {os.getpid()}\\n".encode())
    os.close(file)


@job("e2e.innocent")
async def innocent(path: str, seconds: float, ctx: Context) -> None:
    note(path, ctx)
    await asyncio.sleep(seconds)


@job("e2e.poison", max_crashes=2)
async def poison(path: str, ctx: Context) -> None:
    note(path, ctx)
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGSEGV)


@job("e2e.quits")
async def quits(path: str, ctx: Context) -> None:
    note(path, ctx)
    os.kill(os.getpid(), signal.SIGQUIT)
    await asyncio.sleep(60)


@job("e2e.quits-plain")
def quits_plain(path: str, ctx: Context) -> None:
    note(path, ctx)
    os.kill(os.getpid(), signal.SIGQUIT)
    time.sleep(60)


@job("e2e.blocking", max_crashes=1)
async def blocking(path: str, ctx: Context) -> None:
    note(path, ctx)
    time.sleep(600)


@job("e2e.hold")
def hold(path: str, seconds: float, ctx: Context) -> None:
    note(path, ctx)
    time.sleep(seconds if ctx.fence == 1 else 0)


@job("e2e.stubborn", timeout=1, soft_timeout=0.5, max_crashes=1)
def stubborn(path: str, ctx: Context) -> None:
    note(path, ctx)
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
"""
CONFIG = """
version: 1
cluster: e2e
web: {{port: 0}}
log: {{format: json}}
election: {{lease_duration: 2s, renew_period: 400ms, renew_timeout: 400ms}}
queues: {{session_lease: 2s, beat_period: 300ms}}
supervision: {{grace: 1s}}
workers:
  io: {{kind: async, processes: 1, concurrency: 50, queues: [default]}}
  cpu: {{kind: sync, processes: 1, queues: [default]}}
jobs: [e2e_jobs]
redis: {{url: "{url}"}}
"""


class Site:
    """A server, trees, and what their jobs wrote down."""

    def __init__(self, start: Callable[..., Tree], directory: Path, url: str, store: Store) -> None:
        (directory / "e2e_jobs.py").write_text(JOBS)
        (directory / "tenure.yaml").write_text(CONFIG.format(url=url))
        self._start, self._store = start, store
        self._queues = Queues(Keys("e2e"))
        self.path = directory / "ledger"
        self.path.touch()

    def tree(self, name: str) -> Tree:
        """Start a replica and wait until it is ready."""
        tree = self._start(name, "--config", "tenure.yaml", "--set", f"replica={name}", "--data-dir", f"data-{name}")
        tree.wait_for("tree_ready")
        return tree

    def enqueue(self, *run_ids: str, job: str, kind: Kind = Kind.ASYNC, **fields: float) -> None:
        """Enqueue runs of one job at once; ``seconds`` is an argument of the job."""
        args = {"path": str(self.path)} | ({"seconds": fields.pop("seconds")} if "seconds" in fields else {})
        template = Template(job=f"e2e.{job}", kind=kind, args=args, **fields)  # type: ignore[arg-type]
        envelopes = [Envelope(id=run_id, template=template) for run_id in run_ids]
        self._store.run(self._queues.enqueue(nonce=run_ids[0], envelopes=envelopes))

    def starts(self) -> list[tuple[str, int, int, int]]:
        """Return run, attempt, fence and process of each execution, in order."""
        lines = (line.split() for line in self.path.read_text().splitlines())
        return [(run_id, int(attempt), int(fence), int(pid)) for run_id, attempt, fence, pid in lines]

    def started(self) -> list[str]:
        """Return the run of each execution, in order."""
        return [run_id for run_id, *_ in self.starts()]

    def wait_for_starts(self, count: int) -> None:
        """Return once so many executions have begun."""
        wait_until(lambda: len(self.starts()) >= count, what=f"{count} executions")

    def ended(self, outcome: str = "ok") -> Counter[str]:
        """Return how often each run ended so, on record."""
        return Counter(each.run_id for each in self.record() if each.outcome == outcome)

    def record(self) -> list[HistoryEntry]:
        """Return every attempt on record, newest first."""
        return self._store.run(self._queues.recent("default", 1000))

    def wait_for_ok(self, *run_ids: str) -> None:
        """Return once these have completed; each must have done so once."""
        wait_until(lambda: set(run_ids) <= set(self.ended()), what=f"{run_ids} to complete")
        assert all(self.ended()[run_id] == 1 for run_id in run_ids), self.ended()

    def dead(self) -> dict[str, tuple[str, str, int]]:
        """Return reason, detail and crashes of each dead run."""
        found = self._store.run(self._queues.dead("default", 100))
        return {each.run_id: (each.error["reason"], each.error.get("detail", ""), each.crashes) for each in found}

    def has_event(self, reason: str, subject: str) -> bool:
        """Whether an event is on record."""
        kept = self._store.run(EventLog(Keys("e2e")).read())
        return any((each.event.reason, each.event.subject) == (reason, subject) for each in kept)

    def is_sound(self) -> bool:
        """Whether the queue's own check finds nothing."""
        return self._store.run(self._queues.fsck("default")) == []


@pytest.fixture
def site(start: Callable[..., Tree], short_directory: Path, redis_url: str, store: Store) -> Site:
    """A place to start replicas."""
    return Site(start, short_directory, redis_url, store)


def test_poison_dies_and_its_neighbours_finish(site: Site) -> None:
    """It takes the process down among twenty others: each is run at most once more, it alone is charged and named."""
    innocents = [f"innocent-{number}" for number in range(INNOCENTS)]
    site.enqueue(*innocents[:10], job="innocent", seconds=0.2)
    site.enqueue("poison", job="poison", max_crashes=2)
    site.enqueue(*innocents[10:], job="innocent", seconds=0.2)
    tree = site.tree("one")
    wait_until(lambda: site.ended("crashed")["poison"] >= 1, what="the poison to have crashed alone")
    later = [f"later-{number}" for number in range(10)]
    site.enqueue(*later, job="innocent", seconds=1.5)  # they run while the poison comes back
    site.wait_for_ok(*innocents, *later)
    wait_until(lambda: "poison" in site.dead(), what="the poison to be dead")

    assert site.dead() == {"poison": ("crashed", "SIGSEGV", 2)}
    told = tree.wait_for("run_dead", run="poison")
    assert (told["job"], told["error"], told["level"]) == ("e2e.poison", "crashed: SIGSEGV", "error")
    (counted,) = [line for line in tree.get("/metrics")[1].splitlines() if "e2e.poison" in line and '"dead"' in line]
    assert counted.endswith(" 1.0")
    wait_until(lambda: site.has_event("run_dead", "e2e.poison"), what="its event")
    executions = Counter(run_id for run_id, *_ in site.starts())
    assert max(executions[run_id] for run_id in innocents) == 2, "at most one extra run each"
    assert all(executions[run_id] == 1 for run_id in later), "what has crashed alone gets no neighbours again"
    assert all(attempt == 1 for run_id, attempt, *_ in site.starts()), "nobody was charged an attempt"
    assert executions["poison"] <= 3, "worker crashes caused: at most max_crashes + 1"
    crashes = [each for each in tree.events("child_exited") if each.get("signal") == signal.SIGSEGV]
    assert len(crashes) == executions["poison"]
    assert site.is_sound()


@pytest.mark.long
def test_a_run_that_tells_its_process_to_quit_is_charged_with_its_death(site: Site) -> None:
    """The same signal with which the tree stops a worker; handed back as at a stop, it did so every second for ever."""
    site.enqueue("neighbour", job="innocent", seconds=2)
    site.enqueue("quits", job="quits", max_crashes=2)
    site.enqueue("plain", job="quits-plain", kind=Kind.SYNC, max_crashes=2)
    site.tree("one")

    wait_until(lambda: {"quits", "plain"} <= site.dead().keys(), what="both to be dead")
    site.wait_for_ok("neighbour")

    assert site.dead() == dict.fromkeys(("quits", "plain"), ("crashed", "exit code 131", 2))
    executions = Counter(run_id for run_id, *_ in site.starts())
    assert (executions["plain"], executions["neighbour"]) == (2, 2)
    assert executions["quits"] <= 3
    assert site.is_sound()


@pytest.mark.long
def test_a_coroutine_that_blocks_its_loop_is_charged_and_not_those_whose_time_it_takes(site: Site) -> None:
    """Their hard timeouts pass first, so the process is killed for them; the next time each of them is alone."""
    brief = [f"brief-{number}" for number in range(5)]
    site.enqueue(*brief, job="innocent", seconds=1, timeout_s=5, soft_timeout_s=4)
    site.enqueue("blocking", job="blocking", timeout_s=9, max_crashes=1)
    site.tree("one")

    site.wait_for_ok(*brief)
    wait_until(lambda: "blocking" in site.dead(), what="the blocking run to be dead")

    assert site.dead() == {"blocking": ("crashed", "killed at a hard timeout", 1)}
    assert not site.ended("crashed").keys() & set(brief), "nobody is charged for the time that another took"
    assert Counter(run_id for run_id, *_ in site.starts()) == {"blocking": 2, **dict.fromkeys(brief, 2)}
    assert site.is_sound()


def test_a_coroutine_whose_times_are_one_ends_and_costs_no_process(site: Site) -> None:
    """It was asked to stop at the moment at which its process was killed, with all neighbours: for each such record.

    A machine that stands still for the 0.2 s between the two ends costs a process all the same, so one round of five must not.
    """
    tree = site.tree("one")
    once: dict[str, Any] = {"timeout_s": 0.01, "soft_timeout_s": 0.01, "retry": Retry(attempts=1)}

    def costs_a_process(number: int) -> bool:
        hasty, neighbour = [f"hasty-{number}-{each}" for each in range(10)], f"neighbour-{number}"
        killed = len(tree.events("child_exited"))
        site.enqueue(neighbour, job="innocent", seconds=1)
        wait_until(lambda: neighbour in site.started(), what="the neighbour to begin")
        site.enqueue(*hasty, job="innocent", seconds=60, **once)
        wait_until(lambda: site.ended("dead").keys() >= set(hasty), what="those to have ended")
        site.wait_for_ok(neighbour)
        return len(tree.events("child_exited")) > killed

    calm = next((number for number in range(5) if not costs_a_process(number)), None)
    assert calm is not None, "a process was killed in each of five rounds"
    begun = Counter(
        name for name in site.started() if name.split("-")[1] == str(calm)
    )  # 10 ms may be over before the job begins
    assert set(begun.values()) == {1}, begun
    assert site.is_sound()


def test_the_runs_of_a_lost_machine_go_on_elsewhere_uncharged(site: Site) -> None:
    """Every process of a replica vanishes at once, its agent too: after the sessions' lease another has its runs."""
    lost = site.tree("lost")
    site.enqueue("sync", job="hold", kind=Kind.SYNC, seconds=60)
    site.enqueue("async", job="innocent", seconds=0.5)
    site.wait_for_starts(2)
    other = site.tree("other")
    for process in reversed(family(lost)):
        process.suspend()
    for process in family(lost):
        process.kill()
    site.wait_for_ok("sync", "async")

    assert [(attempt, fence) for run_id, attempt, fence, _ in site.starts() if run_id == "sync"] == [(1, 1), (1, 2)]
    assert set(site.ended("interrupted")) >= {"sync"}
    assert not site.ended("crashed"), "a lost machine charges nobody"

    def reclaimed() -> list[dict[str, Any]]:  # its agent tells after the runs are given back
        told = other.events("session_reclaimed")
        return [each for each in told if "sync" in str(each) or "cpu" in each["session"]]

    (told,) = wait_until(reclaimed, what="the session's end to be told")
    assert (told["death"], told["how"]) == ("node_lost", "its replica vanished")
    assert site.is_sound()


def test_a_deploy_interrupts_a_long_run_and_charges_nothing(site: Site) -> None:
    """SIGTERM, a grace that is too short for it, and the next version goes on with it: the same attempt, a new fence."""
    tree = site.tree("one")
    site.enqueue("long", job="hold", kind=Kind.SYNC, seconds=60)
    site.wait_for_starts(1)
    tree.terminate()
    tree.wait()
    site.tree("two")
    site.wait_for_ok("long")

    assert [(attempt, fence) for _, attempt, fence, _ in site.starts()] == [(1, 1), (1, 2)]
    assert not site.ended("crashed")
    assert site.is_sound()


@pytest.mark.long
def test_a_run_that_hears_nothing_is_killed_at_its_hard_timeout(site: Site) -> None:
    """It spins and swallows every exception: the process goes, the record says why, and the next run is served."""
    tree = site.tree("one")
    site.enqueue("stubborn", job="stubborn", kind=Kind.SYNC, timeout_s=1.0, soft_timeout_s=0.5, max_crashes=1)
    site.enqueue("next", job="hold", kind=Kind.SYNC, seconds=0)
    site.wait_for_ok("next")
    wait_until(site.dead, what="the stubborn run to be dead")

    assert site.dead() == {"stubborn": ("crashed", "killed at a hard timeout", 1)}
    tree.wait_for("run_overran", slot="worker-cpu-0")
    assert site.is_sound()


def test_a_hanging_redis_takes_no_run_from_anybody(site: Site, server: Server) -> None:
    """It answers nobody for longer than a session's lease: no session is reaped, no process restarted, nothing repeated.

    Redis hangs for ten seconds; six of silence by a busy machine cost no session, eight no process.
    """
    config, jobs = site.path.with_name("tenure.yaml"), site.path.with_name("e2e_jobs.py")
    config.write_text(config.read_text().replace("session_lease: 2s", "session_lease: 6s"))
    limits = "from supervisor.app import tree\ntree.AGENT_HANG_S = tree.SCHEDULER_HANG_S = 8.0\n"
    jobs.write_text(limits + jobs.read_text())
    trees = [site.tree("one"), site.tree("two")]
    site.enqueue("slow-1", "slow-2", job="innocent", seconds=1.0)
    site.wait_for_starts(2)
    hung = psutil.Process(server.process.pid)
    hung.suspend()
    for tree in trees:
        wait_until(lambda each=tree: each.get("/readyz")[0] == 503, what=f"{tree.name} to be unready")  # type: ignore[misc]
    hung.resume()
    site.wait_for_ok("slow-1", "slow-2")
    site.enqueue("after", job="innocent", seconds=0)
    site.wait_for_ok("after")

    assert Counter(run_id for run_id, *_ in site.starts()) == {"slow-1": 1, "slow-2": 1, "after": 1}
    for tree in trees:
        assert tree.events("session_reclaimed") == []
        assert {each["generation"] for each in tree.events("child_started")} == {1}
    assert site.is_sound()
