"""Operations on worker processes: commands to the replicas that have them, and their answers.

Guarantees
    A command names one process of a slot, one slot or all workers of one replica, and is signed where the cluster
    has a key. A replica that gives no answer in time has none in the result.

Does not guarantee
    That a command without an answer was not obeyed: the replica may take it later, within a minute.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from supervisor.core.errors import EXIT_USAGE, TenureError
from supervisor.core.signing import Signer
from supervisor.operations import Delay, Operation
from supervisor.operations.queues import TellRefused
from supervisor.operations.runs import running
from supervisor.store.election.commands import Answer, Command, Commands, Word, WorkerReport
from supervisor.store.election.leases import Leases
from supervisor.store.keys import Keys
from supervisor.store.queues.sessions import Sessions

WAIT_S = 15.0
REPORT_WAIT_S = 4.0
LOOK_S = 0.2
RUNS_MAX = 1000
FRESH_MS = 3 * 300_000  # a candidate that was never seen within so long is gone for good
SHOWN_MAX = 10


class ReplicaChoiceError(TenureError):
    """No replica, or several, are called so."""

    exit_code = EXIT_USAGE
    http_status = 404


class ReplicaFullError(TenureError):
    """Many commands wait for a replica."""

    http_status = 409


@dataclass(frozen=True, slots=True)
class WorkerTarget:
    """Process that a command means: ``slot`` empty: all of the replica, ``generation`` 0: whichever lives."""

    replica: str
    slot: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker process: the report of its replica, its own description, and the runs it holds."""

    replica: str
    report: WorkerReport
    info: Mapping[str, str]
    runs: Sequence[str] = field(default_factory=list)

    @property
    def session(self) -> str:
        """Name of the process in the cluster."""
        return f"{self.replica}/{self.report.slot}/{self.report.generation}"


def replicas(keys: Keys) -> Operation[list[str]]:
    """Read the ids of the replicas that may be alive: those that would lead, and those with workers."""
    candidates = yield Leases(keys).candidates()
    newest_ms = max((each.seen_ms for each in candidates), default=0)
    fresh = {each.replica for each in candidates if each.seen_ms >= newest_ms - FRESH_MS}
    return sorted(fresh | {session.partition("/")[0] for session in (yield Sessions(keys).list())})


def chosen(keys: Keys, name: str | None) -> Operation[str]:
    """Return the one replica that is meant, by its id or its name; with none named, the only one there is.

    Raises:
        ReplicaChoiceError: it is not clear which.
    """
    return choose_replica((yield from replicas(keys)), name)


def choose_replica(names: Sequence[str], name: str | None) -> str:
    """Return the one of ``names`` that is meant; see ``chosen``."""
    matching = [each for each in names if name is None or name in {each, each.rpartition(".")[0]}]
    if len(matching) == 1:
        return matching[0]
    shown = ", ".join(names[:SHOWN_MAX]) or "none"
    if name is None:
        raise ReplicaChoiceError(f"name the replica: --replica; there are: {shown}")
    if not matching:
        raise ReplicaChoiceError(f"no replica is called {name[:200]!r}; there are: {shown}")
    several = ", ".join(matching[:SHOWN_MAX])
    raise ReplicaChoiceError(f"several replicas are called {name[:200]!r}; give the whole id: {several}")


def target(keys: Keys, worker: str, replica: str | None = None) -> Operation[WorkerTarget]:
    """Return the process that is meant: ``worker-io-0`` of a replica, or a session, ``web-1.4fe2a1/worker-io-0/3``.

    Raises:
        ReplicaChoiceError: it is not clear which.
    """
    parts = worker.split("/")
    if len(parts) == 3 and parts[2].isascii() and parts[2].isdecimal() and len(parts[2]) < 12:
        return WorkerTarget((yield from chosen(keys, parts[0])), parts[1], int(parts[2]))
    if len(parts) > 1:
        shown = "as `tenure worker list` shows them"
        raise ReplicaChoiceError(f"{worker[:200]!r} is neither a slot nor a session, {shown}")
    return WorkerTarget((yield from chosen(keys, replica)), worker)


def control(
    keys: Keys,
    which: WorkerTarget,
    word: Word,
    *,
    by: str,
    signer: Signer | None,
    at_ms: int,
    wait_s: float = WAIT_S,
) -> Operation[Answer | None]:
    """Send one command and return its answer; None when there was none in time.

    It is signed at ``at_ms`` of the asker's clock; ``signer`` None: the cluster has no key.

    Raises:
        ReplicaFullError: many commands wait for the replica.
    """
    command = Command(word=word, slot=which.slot, generation=which.generation, by=by)
    answers = yield from _send(keys, {which.replica: command}, signer=signer, at_ms=at_ms, wait_s=wait_s)
    return answers[which.replica]


def overview(
    keys: Keys, replica: str | None = None, *, wait_s: float = REPORT_WAIT_S, tell_refused: TellRefused
) -> Operation[list[WorkerView]]:
    """Ask each replica, or one, for its workers, and return them with the runs of each.

    Those of a replica that gives no answer within ``wait_s`` seconds are shown by their sessions, as "no answer".

    Raises:
        ReplicaChoiceError: it is not clear which replica is meant.
    """
    names = yield from replicas(keys)
    names = names if replica is None else [choose_replica(names, replica)]
    commands = {name: Command(word=Word.REPORT) for name in names}
    answers = yield from _send(keys, commands, signer=None, at_ms=0, wait_s=wait_s)  # a report needs no proof
    found = [(name, worker) for name, answer in answers.items() if answer is not None for worker in answer.workers]
    for session in (yield Sessions(keys).list()):
        name, _, rest = session.partition("/")
        slot, _, generation = rest.rpartition("/")
        if name in answers and answers[name] is None and generation.isdecimal():
            found.append((name, WorkerReport(slot=slot, pool="", state="no answer", generation=int(generation))))
    held: dict[str, list[str]] = {}
    for run in (yield from running(keys, count=RUNS_MAX, tell_refused=tell_refused)):
        held.setdefault(run.session, []).append(run.run_id)
    workers = []
    for name, report in sorted(found, key=lambda each: (each[0], each[1].slot, each[1].generation)):
        session = f"{name}/{report.slot}/{report.generation}"
        info = yield Sessions(keys).info(session)
        workers.append(WorkerView(name, report, info, held.get(session, [])))
    return workers


def _send(
    keys: Keys, commands: Mapping[str, Command], *, signer: Signer | None, at_ms: int, wait_s: float
) -> Operation[dict[str, Answer | None]]:
    """Send one command to each replica and wait until all have answered."""
    calls = Commands(keys)
    ids = {replica: os.urandom(12).hex() for replica in commands}
    for replica, command in commands.items():
        signed = command.signed(signer, replica, ids[replica], at_ms)
        if not (yield calls.send(replica, ids[replica], signed)):
            raise ReplicaFullError(f"replica {replica} takes no commands: many wait for it already; is it alive?")
    found: dict[str, Answer | None] = dict.fromkeys(commands)
    for _ in range(1 + round(wait_s / LOOK_S)):
        waiting = [replica for replica, answer in found.items() if answer is None]
        if not waiting:
            break
        yield Delay(LOOK_S)
        found.update(zip(waiting, (yield calls.read([ids[replica] for replica in waiting])), strict=True))
    return found
