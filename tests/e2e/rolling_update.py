"""A rolling update and its roll-back, between an older revision of Tenure and this one, under load.

``python -m tests.e2e.rolling_update --old REVISION --seconds 8``. Needs git. Trees of both versions work on one
server; the older one is replaced by the newer one, comes back, and is replaced again, while a producer of each version
enqueues runs of every shape all the time. In the end every run must have completed once on record, whichever version
enqueued it and whichever executed it, and every due time of every schedule must have been fired once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import closing
from itertools import product
from pathlib import Path

from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from tests.e2e.chaos_verdict import CLUSTER, say
from tests.e2e.chaos_workers_load import CONFIG
from tests.e2e.chaos_workers_verdict import records
from tests.e2e.servers import Server
from tests.e2e.trees import ROOT, Tree
from tests.kit.waiting import wait_until

SIDES = ("old", "new")
PAIRS = set(product((*SIDES, "schedule"), SIDES))  # who made a run, and who executed it
PERIODS_MS = {"every": 500, "cron": 2000}
SHAPES = ("async", "sync", "retried", "delayed", "parent")  # of the runs, in turn
CHILDREN = 4
SHOWN_MAX = 20
DRAIN_S_MAX = 120
STOP_S_MAX = 60

JOBS = """
import asyncio
import os
import time

from supervisor import Context, Retry, job

AGAIN = Retry(attempts=3, base_s=0.1, cap_s=0.2)


def note(what: str, ctx: Context) -> None:
    with open("ledger.txt", "a") as file:
        file.write(f"{os.environ['SIDE']} {what} {ctx.run_id}\\n")


@job("rolling.async", retry=AGAIN)
async def coroutine(failures: int, ctx: Context) -> str:
    if ctx.attempt <= failures:
        raise RuntimeError("as it should")
    await asyncio.sleep(0.01)
    note("run", ctx)
    return ctx.run_id


@job("rolling.sync", retry=AGAIN)
def function(failures: int, ctx: Context) -> str:
    if ctx.attempt <= failures:
        raise RuntimeError("as it should")
    time.sleep(0.01)
    note("run", ctx)
    return ctx.run_id


@job("rolling.child")
async def child(number: int, ctx: Context) -> None:
    note("child", ctx)


@job("rolling.parent")
async def parent(ctx: Context) -> None:
    for number in range(3):
        ctx.spawn(child, {"number": number})
    ctx.then(child, {"number": 3})
    note("run", ctx)


@job("rolling.tick")
async def tick(ctx: Context) -> None:
    with open("ticks.txt", "a") as file:
        file.write(f"{os.environ['SIDE']} {ctx.schedule} {ctx.nominal.timestamp():.3f}\\n")
"""

PRODUCER = """
import os
import signal
import sys
import time

import chaos_jobs as jobs
from supervisor import connect, enqueue

stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
connect(sys.argv[1], cluster=sys.argv[2])
side, shapes = os.environ["SIDE"], [
    lambda run_id: enqueue(jobs.coroutine, {"failures": 0}, run_id=run_id),
    lambda run_id: enqueue(jobs.function, {"failures": 0}, run_id=run_id),
    lambda run_id: enqueue(jobs.coroutine, {"failures": 1}, run_id=run_id, queue="heavy", priority="high"),
    lambda run_id: enqueue(jobs.function, {"failures": 1}, run_id=run_id, delay=1.0),
    lambda run_id: enqueue(jobs.parent, run_id=run_id),
]
number = 0
while not stopping:
    run_id = f"{side}-{number:06d}"
    try:
        shapes[number % len(shapes)](run_id)
    except Exception as error:
        print(f"{run_id}: {error!r}", flush=True)
        time.sleep(0.2)
        continue
    number += 1
    time.sleep(0.02)
print(number)
"""

SCHEDULES = """
schedules:
  every: {job: rolling.tick, every: 500ms, overlap: allow, missed: all}
  cron: {job: rolling.tick, cron: "*/2 * * * * *", overlap: allow, missed: all}
"""


class RollingUpdate:
    """Trees and producers of two versions on one server."""

    def __init__(self, directory: Path, old: Path) -> None:
        self.directory = directory
        self.code = {"old": old, "new": ROOT}
        self.server = Server(directory)
        (directory / "chaos_jobs.py").write_text(JOBS)
        (directory / "producer.py").write_text(PRODUCER)
        (directory / "tenure.yaml").write_text(CONFIG.format(cluster=CLUSTER, url=self.server.url) + SCHEDULES)
        self.trees: list[Tree] = []
        self.producers: dict[str, subprocess.Popen[str]] = {}

    def environ(self, side: str) -> dict[str, str]:
        """Return the environment in which the code of a side is imported."""
        return {"PYTHONPATH": f"{self.code[side]}:{self.directory}", "SIDE": side}

    def start(self, side: str) -> Tree:
        """Start a tree of a version, and wait until it is ready."""
        name = f"{len(self.trees)}-{side}"
        tree = Tree(self.directory, name, environ=self.environ(side), is_fresh=True)
        self.trees.append(tree)
        tree.wait_for("tree_ready")
        return tree

    def stop(self, tree: Tree) -> None:
        """Stop a tree as a deployment does."""
        tree.terminate()
        code = tree.wait(STOP_S_MAX)
        assert code == 0, f"{tree.name} ended with {code}"

    def produce(self, side: str) -> None:
        """Start a producer of a version."""
        self.producers[side] = subprocess.Popen(
            [sys.executable, "producer.py", self.server.url, CLUSTER],
            cwd=self.directory, env={**os.environ, **self.environ(side)}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def go_on(self, seconds: float) -> None:
        """Wait until runs and due times of so many seconds have been executed since now."""
        until = len(self.lines("ticks.txt")) + seconds * 1000 * sum(1 / each for each in PERIODS_MS.values())
        wait_until(lambda: len(self.lines("ticks.txt")) >= until, what="schedules to go on")

    def end_production(self) -> dict[str, int]:
        """Stop the producers; return the number of runs of each.

        Raises:
            AssertionError: one of them was refused something.
        """
        numbers = {}
        for side, producer in self.producers.items():
            producer.terminate()
            printed = (producer.communicate(timeout=STOP_S_MAX)[0] or "").split("\n")
            refusals = printed[:-2]
            assert not refusals, f"the {side} producer was refused: {refusals[:3]}"
            numbers[side] = int(printed[-2])
        return numbers

    def close(self) -> None:
        """Leave no process behind."""
        for producer in self.producers.values():
            if producer.poll() is None:
                producer.kill()
                producer.wait()
        for tree in self.trees:
            tree.close()
        self.server.kill()

    def drain(self, numbers: dict[str, int]) -> None:
        """Wait until every run that was enqueued, and every child of one, has written its line."""
        runs = sum(numbers.values())
        children = CHILDREN * sum(1 for count in numbers.values() for number in range(count) if is_parent(number))
        wait_until(
            lambda: len(self.lines("ledger.txt")) >= runs + children,
            what=f"{runs} runs and {children} children to end",
            bound_s=DRAIN_S_MAX,
        )

    def lines(self, name: str) -> list[list[str]]:
        """Return the words of each line that jobs have written into a file."""
        path = self.directory / name
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def judge(self, numbers: dict[str, int]) -> list[str]:
        """Return one line for each promise that is broken."""
        expected = {f"{side}-{number:06d}" for side, count in numbers.items() for number in range(count)}
        executed = Counter(run_id for _, what, run_id in self.lines("ledger.txt") if what == "run")
        children = Counter(run_id for _, what, run_id in self.lines("ledger.txt") if what == "child")
        with closing(Store.connect(self.server.url, settings=RedisSettings(), name="judge", timeout_s=3)) as store:
            recorded = Counter(each.run_id for each in records(store) if each.outcome == "ok")
            ends = Counter(each.outcome for each in records(store))
        broken = [f"lost: {each}" for each in sorted(expected - executed.keys())]
        broken += [f"never enqueued: {each}" for each in sorted(executed.keys() - expected)]
        for where, counts in (("executed", executed), ("child executed", children), ("recorded ok", recorded)):
            broken += [f"{where} {count} times: {each}" for each, count in counts.items() if count != 1]
        broken += [f"no ok on record: {each}" for each in sorted((expected | children.keys()) - recorded.keys())]
        broken += [f"ended {outcome}: {count}" for outcome, count in ends.items() if outcome not in ("ok", "retry")]
        for schedule, period_ms in PERIODS_MS.items():
            fired = Counter(round(float(at) * 1000) for _, name, at in self.lines("ticks.txt") if name == schedule)
            every = range(min(fired), max(fired) + 1, period_ms)
            broken += [f"{schedule}: {at} was fired {fired[at]} times" for at in every if fired[at] != 1]
            broken += [f"{schedule}: {at} is no due time" for at in fired if at not in every]
        return broken

    def table(self) -> Counter[tuple[str, str]]:
        """Return how many lines each version wrote of what each version had enqueued."""
        made = Counter(
            (run_id.partition("-")[0], side) for side, what, run_id in self.lines("ledger.txt") if what == "run"
        )
        return made + Counter(("schedule", side) for side, *_ in self.lines("ticks.txt"))


def is_parent(number: int) -> bool:
    """Return whether the run of this number spawns others."""
    return number % len(SHAPES) == SHAPES.index("parent")


def update_and_roll_back(cluster: RollingUpdate, seconds: float) -> dict[str, int]:
    """Replace old by new, go back, and replace it again; return the number of runs that each producer enqueued."""
    old = cluster.start("old")
    cluster.produce("old")
    cluster.go_on(seconds)
    new = cluster.start("new")
    cluster.produce("new")
    cluster.go_on(seconds)
    cluster.stop(old)
    cluster.go_on(seconds)
    old = cluster.start("old")
    cluster.go_on(seconds)
    cluster.stop(new)
    cluster.go_on(seconds)
    cluster.start("new")
    cluster.stop(old)
    cluster.go_on(seconds)
    return cluster.end_production()


def export(revision: str, directory: Path) -> Path:
    """Write the tree of a revision into a directory.

    Raises:
        SystemExit: git knows no such revision.
    """
    directory.mkdir()
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        sys.exit(f"--old: {archive.stderr.decode().strip()}; give a tag or a commit of this repository")
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive.stdout, check=True)
    return directory


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.rolling_update", description=__doc__)
    parser.add_argument("--old", required=True, metavar="REVISION", help="a tag or commit: the version to update from")
    parser.add_argument(
        "--seconds",
        type=float,
        default=5,
        help="how much of the schedules each of the six stages executes (default: 5)",
    )
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="tenure-rolling-"))
    cluster = RollingUpdate(directory, export(options.old, directory / "code"))
    try:
        numbers = update_and_roll_back(cluster, options.seconds)
        cluster.drain(numbers)
        for tree in cluster.trees:
            if tree.process.poll() is None:
                cluster.stop(tree)
        broken = cluster.judge(numbers)
        broken += [f"{made} was never executed by {side}" for made, side in PAIRS - cluster.table().keys()]
    except AssertionError as error:
        broken = [str(error)]
    finally:
        cluster.close()
    if broken:
        say("\n".join([*broken[:SHOWN_MAX], f"FAILED: {len(broken)} findings; logs are in {directory}"]))
        return 1
    for (made, side), count in sorted(cluster.table().items()):
        say(f"{'fired by a ' if made == 'schedule' else 'enqueued by '}{made}, executed by {side}: {count:,}")
    shutil.rmtree(directory, ignore_errors=True)
    say(f"held: {options.old} and this version side by side, {sum(numbers.values()):,} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
