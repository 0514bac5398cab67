"""The judgement after chaos: everything that was due happened, once, and nobody was blamed unjustly."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import Leases
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from tests.e2e.history import COUNT_MAX, History, read_history

CLUSTER = "chaos"
PERIODS_MS = {"tick": 500, "line": 1000, "slow": 4_000}
QUEUES = {"tick": "default", "line": "default", "slow": "heavy"}
MAX_CRASHES = 3
UNFINISHED_MS = 60_000  # so old may a run be that waits for its end


def say(text: str) -> None:
    """Tell the person who watches."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def fires(store: Store) -> str:
    """Return who leads, and how much was fired and is unfinished."""
    view = store.run(Leases(Keys(CLUSTER)).view())
    histories = {name: history_of(store, name) for name in PERIODS_MS}
    counts = (f"{name} {len(each.fired)}-{len(each.unfinished())}" for name, each in histories.items())
    return f"epoch {view.epoch} of {view.holder or 'nobody'}; fired-unfinished {', '.join(counts)}"


def history_of(store: Store, schedule: str) -> History:
    """Return what is remembered of a schedule."""
    period_ms, queue = PERIODS_MS[schedule], QUEUES[schedule]
    return read_history(store, cluster=CLUSTER, schedule=schedule, period_ms=period_ms, queue=queue)


def dead(store: Store, queue: str) -> set[str]:
    """Return the runs that were given up; each must have been killed so often."""
    found = store.run(Queues(Keys(CLUSTER)).dead(queue, COUNT_MAX))
    for run in found:
        assert run.crashes >= MAX_CRASHES, f"{run.run_id} is dead without a reason: {run}"
    return {run.run_id for run in found}


def judge(
    store: Store, directory: Path, killed_sessions: set[str], losses: Sequence[tuple[int, int]], counted: int
) -> None:
    """Prove what is promised, after every tree has stopped.

    Args:
        store: client of the server.
        directory: of the run.
        killed_sessions: worker processes that were killed: their runs may be charged.
        losses: wall clock of each copy of the server's data, and of the return to it.
        counted: fires that were told to be doubtful.
    """
    lines = [text.split() for text in (directory / "lines.txt").read_text().splitlines()]
    judge_repeats([(run, fence) for run, _, fence in lines], losses, counted)
    queues = Queues(Keys(CLUSTER))
    for name, queue in QUEUES.items():
        assert len(store.run(queues.recent(queue, COUNT_MAX))) < COUNT_MAX, "the history is full"
        history = history_of(store, name)
        history.prove()
        judge_attempts(history, {run for run, *_ in lines} if name != "tick" else None, killed_sessions)
    for queue in sorted(set(QUEUES.values())):
        assert (found := store.run(queues.fsck(queue))) == [], f"fsck of {queue}: {found}"


def judge_repeats(executions: Sequence[tuple[str, str]], losses: Sequence[tuple[int, int]], counted: int) -> None:
    """Fail if a run was executed twice under one fence, unless Redis lost that: then what was fired again is counted."""
    twice = {run: int(run.partition("@")[2]) for (run, _), count in Counter(executions).items() if count > 1}
    excused = [
        run
        for run, due_ms in twice.items()
        if any(copied_ms - UNFINISHED_MS < due_ms <= back_ms for copied_ms, back_ms in losses)
    ]
    assert len(excused) == len(twice), f"run twice under one fence: {twice.keys() - set(excused)}"
    again = [run for run in excused if any(copied_ms < twice[run] <= back_ms for copied_ms, back_ms in losses)]
    assert counted >= len(again), f"{len(again)} were fired again, {counted} were counted as doubtful: {again}"
    say(f"{len(losses)} losses of data: {len(excused)} executed again, {len(again)} fired again, {counted} doubtful")


def judge_attempts(history: History, written: set[str] | None, killed_sessions: set[str]) -> None:
    """Fail if a run was completed without being executed, or charged with what it did not do."""
    done = {each.run_id for each in history.attempts if each.outcome == "ok"}
    assert written is None or done <= written, f"completed but never executed: {done - written}"
    charged = {each.session for each in history.attempts if each.outcome == "crashed"}
    assert charged <= killed_sessions, f"charged with a crash that was none: {charged - killed_sessions}"
    outcomes = Counter(each.outcome for each in history.attempts)
    assert set(outcomes) <= {"ok", "crashed", "interrupted"}, f"ended as nothing here should: {outcomes}"
    missed = sum(each.missed for each in history.decisions)
    say(f"{history.schedule}: {len(history.fired)} fired, {missed} missed, {dict(outcomes)}")
