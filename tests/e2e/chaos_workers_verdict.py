"""The judgement after chaos among workers: each run completed once on record, and ran twice only for a reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from tests.e2e.chaos_verdict import CLUSTER
from tests.e2e.chaos_workers_load import QUEUES
from tests.e2e.trees import Tree

PAGE = 5000
SHOWN_MAX = 5
EXPECTED = {"ok", "retry", "crashed", "interrupted"}


@dataclass(frozen=True, slots=True)
class Start:
    """One execution, as the job itself wrote it down."""

    run_id: str
    attempt: int
    fence: int
    pid: int


@dataclass(frozen=True, slots=True)
class Record:
    """One ended attempt, as Redis has it."""

    run_id: str
    outcome: str
    session: str


@dataclass(slots=True)
class Verdict:
    """What was found, for people."""

    runs: int
    completed: int
    starts: int
    repeated: int  # runs that were executed more than once within an attempt
    outcomes: Counter[str]
    lost_sessions: int

    def lines(self) -> Iterator[str]:
        """Return the table."""
        yield f"{'runs':<42}{self.runs:>10,}"
        yield f"{'completed on record, exactly once':<42}{self.completed:>10,}"
        yield f"{'lost':<42}{self.runs - self.completed:>10,}"
        yield f"{'executions begun':<42}{self.starts:>10,}"
        yield f"{'runs executed again (their session was lost)':<42}{self.repeated:>8,}"
        yield f"{'sessions lost':<42}{self.lost_sessions:>10,}"
        for outcome, count in sorted(self.outcomes.items()):
            yield f"{'attempts on record: ' + outcome:<42}{count:>10,}"


def completed(store: Store) -> int:
    """Return how many completions the queues count, without reading the history."""
    keys = Keys(CLUSTER)
    return sum(int(store.raw.hget(keys.queue(queue).stat, "ok") or 0) for queue in QUEUES)


def records(store: Store) -> Iterator[Record]:
    """Yield every ended attempt, oldest first."""
    for queue in QUEUES:
        key, start = Keys(CLUSTER).queue(queue).hist, 0
        while page := store.raw.lrange(key, start, start + PAGE - 1):
            for line in page:
                run_id, outcome, _attempt, session, *_ = line.decode().split("|")
                yield Record(run_id, outcome, session)
            start += len(page)


def judge(store: Store, ledger: Path, ids: Sequence[str], trees: Sequence[Tree], struck: Collection[str]) -> Verdict:
    """Prove what is promised, after every tree has stopped.

    Args:
        store: a client of the server.
        ledger: what the jobs wrote.
        ids: of every run that was enqueued.
        trees: every tree that there was, with its log.
        struck: sessions whose process was killed, or stopped for longer than a beat.
    """
    ended = list(records(store))
    done = Counter(each.run_id for each in ended if each.outcome == "ok")
    outcomes = Counter(each.outcome for each in ended)
    _is_empty(set(ids) - set(done), "lost: not completed on record")
    _is_empty(set(done) - set(ids), "completed, and never enqueued")
    _is_empty([run for run, count in done.items() if count > 1], "completed twice on record")
    assert set(outcomes) <= EXPECTED, f"ended as nothing here should: {outcomes}"
    lost = set(struck) | reclaimed(trees)
    starts = _starts(ledger)
    repeated = _judge_starts(starts, done, _sessions_by_pid(trees), lost)
    _judge_rest(store)
    return Verdict(len(ids), len(done), len(starts), repeated, outcomes, len(lost))


def _judge_starts(starts: list[Start], done: Counter[str], sessions: dict[int, str], lost: set[str]) -> int:
    """Fail if an execution was repeated although its session lived; return how many runs were."""
    fences = Counter((each.run_id, each.fence) for each in starts)
    _is_empty([fence for fence, count in fences.items() if count > 1], "two executions under one fence")
    _is_empty(set(done) - {each.run_id for each in starts}, "completed, and never executed")
    by_attempt: dict[tuple[str, int], list[Start]] = defaultdict(list)
    for each in starts:
        by_attempt[each.run_id, each.attempt].append(each)
    # A process that was stopped while its session was lost may begin what another is executing by then.
    lived = {
        key: [each for each in group if sessions.get(each.pid, "?") not in lost] for key, group in by_attempt.items()
    }
    _is_empty([group for group in lived.values() if len(group) > 1], "executed again although the session lived")
    return len({run_id for (run_id, _), group in by_attempt.items() if len(group) > 1})


def _judge_rest(store: Store) -> None:
    """Fail if anything is left of the runs but history and counters."""
    queues, sessions = Queues(Keys(CLUSTER)), Sessions(Keys(CLUSTER))
    for queue in QUEUES:
        keys = Keys(CLUSTER).queue(queue)
        left = {key: store.raw.exists(key) for key in (keys.data, keys.run, keys.att, keys.later, keys.dead, keys.err)}
        _is_empty([key for key, count in left.items() if count], "left behind")
        found = store.run(queues.fsck(queue))
        assert found == [], f"fsck of {queue}: {found}"
    assert not store.run(sessions.list()), "a session is open and nobody is left"
    assert not store.run(sessions.dying()), "a session was condemned and never buried"


def reclaimed(trees: Sequence[Tree]) -> set[str]:
    """Return the sessions that an agent gave up or took back."""
    events = ("session_reclaimed", "session_lost")
    return {
        str(each["session"]) for tree in trees for name in events for each in tree.events(name) if "session" in each
    }


def judge_reaped(trees: Sequence[Tree], excused: Collection[str]) -> None:
    """Fail if a session was taken from a living replica: ``excused`` are those whose agent or tree was struck.

    One that stopped while Redis hung says that it could not give its sessions back: those are left to the others.
    """
    ended = {each["replica"] for tree in trees for each in tree.events("agent_ended") if each["unreclaimed"]}
    found = [
        each["session"]
        for tree in trees
        for each in tree.events("session_reclaimed")
        if each["death"] == "node_lost" and each["session"].partition("/")[0] not in ended.union(excused)
    ]
    _is_empty(found, "reaped although it lived")


def _sessions_by_pid(trees: Sequence[Tree]) -> dict[int, str]:
    return {
        int(each["child_pid"]): f"{each['replica']}/{each['slot']}/{each['generation']}"
        for tree in trees
        for each in tree.events("child_started")
    }


def _starts(ledger: Path) -> list[Start]:
    found = []
    for line in ledger.read_text().splitlines():
        what, run_id, attempt, fence, pid = line.split()
        if what == "start":
            found.append(Start(run_id, int(attempt), int(fence), int(pid)))
    return found


def _is_empty(found: Collection[Any], what: str) -> None:
    assert not found, f"{len(found)} {what}, such as {sorted(found, key=str)[:SHOWN_MAX]}"
