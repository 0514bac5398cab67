"""``tenure worker list``, ``quiet``, ``resume``, ``recycle`` and ``stacks``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from supervisor.cli.cluster import confirm, run, who
from supervisor.cli.connection import Connection, connected
from supervisor.cli.help import SectionedCommand as CliCommand
from supervisor.cli.help import SectionedGroup
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import list_options, output_option, print_rows, span
from supervisor.cli.replica.replica_commands import chosen_replica, replicas, report_of, send
from supervisor.core.errors import EXIT_FAILED, EXIT_NO, EXIT_OK
from supervisor.store.election.commands import Command, Word, WorkerReport

RUNS_MAX = 1000
RUNS_SHOWN = 3
COLUMNS = ("replica", "slot", "pid", "state", "busy", "done", "memory", "age", "version", "runs")


@click.group(cls=SectionedGroup)
def worker() -> None:
    """List worker processes and control them, on any replica."""


@worker.command("list")
@click.option("--replica", help="Only of this replica: its id or its name.")
@config_options
@list_options
def worker_list(*, replica: str | None, output: str, load_settings: LoadSettings) -> int:
    """List the worker processes of all replicas, and the runs of each.

    Each replica is asked, and answers within about a second. One that does not is shown by its data in Redis,
    in state "no answer". Exits with 3 when there is no worker.

    \b
    Examples:
      tenure worker list
      tenure worker list --replica web-1 -o json
    """
    with connected(load_settings().settings) as connection:
        names = replicas(connection)
        if replica is not None:
            names = [chosen_replica(names, replica)]
        rows = _rows(connection, names)
    print_rows(rows, columns=COLUMNS, output=output, empty="no replica has workers")
    return EXIT_OK if rows else EXIT_NO


def _rows(connection: Connection, names: list[str]) -> list[dict[str, Any]]:
    answers = report_of(connection, names)
    running = _running(connection)
    rows = [
        _row(connection, replica, worker, running)
        for replica, answer in answers.items()
        if answer is not None
        for worker in answer.workers
    ]
    silent = {replica for replica, answer in answers.items() if answer is None}
    sessions: dict[str, int] = run(connection, connection.sessions.list())
    for session in sorted(sessions):
        replica, _, rest = session.partition("/")
        if replica in silent:
            slot, _, generation = rest.rpartition("/")
            unknown = WorkerReport(slot=slot, pool="", state="no answer", generation=int(generation))
            rows.append(_row(connection, replica, unknown, running))
    return sorted(rows, key=lambda row: (row["replica"], row["slot"], row["generation"]))


def _row(connection: Connection, replica: str, worker: WorkerReport, running: dict[str, list[str]]) -> dict[str, Any]:
    session = f"{replica}/{worker.slot}/{worker.generation}"
    info = run(connection, connection.sessions.info(session))
    runs = running.get(session, [])
    more = len(runs) - RUNS_SHOWN
    has_process = bool(worker.pid)
    return {
        "replica": replica,
        "slot": worker.slot,
        "session": session,
        "generation": worker.generation,
        "pid": worker.pid or (int(info["pid"]) if worker.state == "no answer" and "pid" in info else None),
        "pool": worker.pool or info.get("pool"),
        "state": worker.state,
        "busy": worker.busy if has_process else None,
        "done": worker.done if has_process else None,
        "memory": f"{worker.rss_kib / 1024:.1f} MiB" if worker.rss_kib else None,
        "rss_kib": worker.rss_kib or None,
        "age": span(worker.age_s) if has_process else None,
        "age_s": worker.age_s if has_process else None,
        "version": info.get("version"),
        "host": info.get("host"),
        "runs": "\n".join([*runs[:RUNS_SHOWN], *([f"and {more} more"] if more > 0 else [])]),
        "run_ids": runs,
    }


def _running(connection: Connection) -> dict[str, list[str]]:
    """Return the runs that each session holds, at most so many in all."""
    found: dict[str, list[str]] = {}
    count = 0
    names: list[str] = run(connection, connection.queues.names())
    for queue in sorted(names):
        cursor = "0"
        while count < RUNS_MAX:
            page = run(connection, connection.queues.running(queue, cursor))
            for each in page.items:
                found.setdefault(each.session, []).append(each.run_id)
            count += len(page.items)
            cursor = page.cursor
            if cursor == "0":
                break
    return found


@dataclass(frozen=True, slots=True)
class _Target:
    """Worker process named on the command line."""

    replica: str
    slot: str
    generation: int


def _control(word: Word, *, done: str, question: str = "") -> Callable[..., int]:
    """Return the body of a command that sends ``word``."""

    def act(
        *,
        target: str | None,
        replica: str | None,
        everything: bool,
        yes: bool,
        output: str,
        load_settings: LoadSettings,
    ) -> int:
        if everything == (target is not None):
            raise click.UsageError("name one worker, by its slot or its session, or give --all")
        with connected(load_settings().settings) as connection:
            found = _target(connection, target, replica)
            if question and everything:
                confirm(f"{question} {found.replica}?", yes=yes)
            command = Command(word=word, slot=found.slot, generation=found.generation, by=who())
            answer = send(connection, {found.replica: command})[found.replica]
        row = {"replica": found.replica, "worker": found.slot or "all", "result": done}
        if answer is None:
            row["result"] = "no answer; `tenure worker list` shows whether that replica lives"
        elif not answer.is_done:
            row["result"] = f"refused: {answer.reason}"
        print_rows([row], columns=("replica", "worker", "result"), output=output, empty="nothing")
        return EXIT_OK if answer is not None and answer.is_done else EXIT_FAILED

    return act


def _target(connection: Connection, target: str | None, replica: str | None) -> _Target:
    """Return which process is meant: ``worker-io-0``, or ``web-1.4fe2a1/worker-io-0/3``."""
    parts = (target or "").split("/")
    if len(parts) == 3 and parts[2].isdecimal():
        return _Target(chosen_replica(replicas(connection), parts[0]), parts[1], int(parts[2]))
    if len(parts) > 1:
        raise click.UsageError(f"{target!r} is neither a slot nor a session, as `tenure worker list` shows them")
    return _Target(chosen_replica(replicas(connection), replica), target or "", 0)


def _add(name: str, act: Callable[..., int], text: str) -> None:
    """Add one command to the group. All of them take the same options."""
    command = output_option(config_options(act))
    command = click.option("--yes", is_flag=True, help="Do not ask.")(command)
    command = click.option("--all", "everything", is_flag=True, help="All workers of the replica.")(command)
    command = click.option("--replica", help="Its id or its name.  [default: the only one there is]")(command)
    command = click.argument("target", metavar="[SLOT|SESSION]", required=False)(command)
    worker.add_command(click.command(name, cls=CliCommand, help=text)(command))


_add(
    "quiet",
    _control(Word.QUIET, done="drains: finishes its runs and stays stopped", question="Quiet all workers of"),
    """Drain a worker: finish current runs, exit, stay stopped until `resume`.

    \b
    Examples:
      tenure worker quiet worker-io-0
      tenure worker quiet --all --replica web-1 --yes
    """,
)
_add(
    "resume",
    _control(Word.RESUME, done="started again"),
    """Start workers that were drained.

    \b
    Examples:
      tenure worker resume worker-io-0
      tenure worker resume --all --replica web-1
    """,
)
_add(
    "recycle",
    _control(Word.RECYCLE, done="replaced, once its successor runs", question="Replace all workers of"),
    """Replace a worker by a fresh one, which is started first. What it runs ends normally.

    \b
    Examples:
      tenure worker recycle web-1.4fe2a1/worker-io-0/3
      tenure worker recycle --all --replica web-1 --yes
    """,
)
_add(
    "stacks",
    _control(Word.STACKS, done="the stacks of all its threads are in the log of that replica"),
    """Make a worker write the stacks of all its threads into the log of its replica.

    \b
    Example:
      tenure worker stacks worker-cpu-1
    """,
)
