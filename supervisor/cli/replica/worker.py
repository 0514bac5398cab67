"""``tenure worker list``, ``quiet``, ``resume``, ``recycle`` and ``stacks``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from supervisor.cli.cluster import command_replica, confirm, yes_option
from supervisor.cli.connection import Connection, cluster_options, connected
from supervisor.cli.help import SectionedCommand as CliCommand
from supervisor.cli.help import SectionedGroup
from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import list_options, output_option, print_rows, span
from supervisor.core.errors import EXIT_FAILED, EXIT_NO, EXIT_OK
from supervisor.operations import workers
from supervisor.operations.workers import Word, WorkerView

RUNS_SHOWN = 3
COLUMNS = ("replica", "slot", "pid", "state", "busy", "done", "memory", "age", "version", "runs")


@click.group(cls=SectionedGroup)
def worker() -> None:
    """List worker processes and control them, on any replica."""


@worker.command("list")
@click.option("--replica", help="Only of this replica: its id or its name.")
@cluster_options
@list_options
def worker_list(*, replica: str | None, connection: Connection) -> int:
    """List the worker processes of all replicas, and the runs of each.

    Each replica is asked, and answers within about a second. One that does not is shown by its data in Redis,
    in state "no answer". Exits with 3 when there is no worker.

    \b
    Examples:
      tenure worker list
      tenure worker list --replica web-1 -o json
    """
    rows = [_row(each) for each in connection.ask_each_queue(workers.overview, replica)[0]]
    print_rows(rows, columns=COLUMNS, empty="no replica has workers")
    return EXIT_OK if rows else EXIT_NO


def _row(worker: WorkerView) -> dict[str, Any]:
    report, info, more = worker.report, worker.info, len(worker.runs) - RUNS_SHOWN
    has_process = bool(report.pid)
    return {
        "replica": worker.replica,
        "slot": report.slot,
        "session": worker.session,
        "generation": report.generation,
        "pid": report.pid or (int(info["pid"]) if report.state == "no answer" and "pid" in info else None),
        "pool": report.pool or info.get("pool"),
        "state": report.state,
        "busy": report.busy if has_process else None,
        "done": report.done if has_process else None,
        "memory": f"{report.rss_kib / 1024:.1f} MiB" if report.rss_kib else None,
        "rss_kib": report.rss_kib or None,
        "age": span(report.age_s) if has_process else None,
        "age_s": report.age_s if has_process else None,
        "version": info.get("version"),
        "host": info.get("host"),
        "runs": "\n".join([*worker.runs[:RUNS_SHOWN], *([f"and {more} more"] if more > 0 else [])]),
        "run_ids": worker.runs,
    }


def _control(word: Word, *, done: str, question: str = "") -> Callable[..., int]:

    def act(
        *,
        target: str | None,
        replica: str | None,
        everything: bool,
        yes: bool,
        load_settings: LoadSettings,
    ) -> int:
        if everything == (target is not None):
            raise click.UsageError("name one worker, by its slot or its session, or give --all")
        with connected(load_settings().settings) as connection:
            found = connection.ask(workers.target, target or "", replica)
            if question and everything:
                confirm(f"{question} {found.replica}?", yes=yes)
            answer = command_replica(connection, found, word)
        row = {"replica": found.replica, "worker": found.slot or "all", "result": done}
        if answer is None:
            row["result"] = "no answer; `tenure worker list` shows whether that replica lives"
        elif not answer.is_done:
            row["result"] = f"refused: {answer.reason}"
        print_rows([row], columns=("replica", "worker", "result"), empty="nothing")
        return EXIT_OK if answer is not None and answer.is_done else EXIT_FAILED

    return act


def _add(name: str, act: Callable[..., int], text: str) -> None:
    """Add one command to the group. All of them take the same options."""
    command = yes_option(output_option(config_options(act)))
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
