"""``tenure runs cancel``, ``requeue`` and ``set-priority``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from supervisor.cli.cluster import PRIORITY_NAMES, confirm, reason_option, who, yes_option
from supervisor.cli.connection import Connection, cluster_options
from supervisor.cli.help import SectionedCommand
from supervisor.cli.options import DURATION
from supervisor.cli.output import output_option, print_rows, span
from supervisor.core.errors import EXIT_FAILED, EXIT_NO, EXIT_OK
from supervisor.core.model import PRIORITIES
from supervisor.operations import queues, runs
from supervisor.operations.runs import CancelCode, Cancelled, Placed, Run, UnknownRunError

_runs_argument = click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
_queue_option = click.option("--queue", "queue_name", help="The queue it is in; spares looking into all.")
_WHERE = {
    "running": "is running",
    "ready": "is ready already",
    "suspect": "waits to run alone, after a process died of it or of a neighbour",
    "blocked": "waits for a concurrency limit; `tenure runs show` names it",
    "dead": "is dead; see `tenure dead requeue`",
}


@click.command(cls=SectionedCommand)
@_runs_argument
@_queue_option
@click.option(
    "--kill", "is_killed", is_flag=True, help="One that does not end in time: let go of it, kill its process."
)
@click.option("--grace", "grace_s", type=DURATION, default="10s", show_default=True, help="With --kill: how long.")
@reason_option
@yes_option
@cluster_options
@output_option
def cancel(
    *,
    run_ids: tuple[str, ...],
    queue_name: str | None,
    is_killed: bool,
    grace_s: float,
    reason: str,
    yes: bool,
    connection: Connection,
) -> int:
    """End runs: one that waits at once, one that runs is asked, within a second, by its attempt.

    A process is killed only if it executes nothing else, so in sync pools. Exits with 3 when a run had ended, or is
    dead, and with 1 when one is unknown.

    \b
    Examples:
      tenure runs cancel nightly-report@1795055400000
      tenure runs cancel import-17 --kill --grace 30s --reason 'wrong file' --yes
    """
    kill_ms = max(1, round(grace_s * 1000)) if is_killed else 0
    chosen = _chosen(connection, queue_name, run_ids)
    confirm(f"Cancel {chosen[0][1] if len(chosen) == 1 else f'{len(chosen)} runs'}?", yes=yes)
    done = connection.ask(
        runs.cancel, chosen, history=connection.settings.queues.history, by=who(), reason=reason, kill_ms=kill_ms
    )
    rows = [_cancel_row(connection, each, found, kill_ms) for (_, each), found in done]
    print_rows(rows, columns=("run", "queue", "result"))
    return max(EXIT_NO if row["code"] == "no" else EXIT_FAILED if row["code"] == "unknown" else 0 for row in rows)


def _chosen(connection: Connection, queue: str | None, run_ids: Sequence[str]) -> list[Run]:
    """Return the runs that a command names, each once.

    Raises:
        InvalidRunError: no run can have such an id.
        UnknownQueueError: there is no such queue.
    """
    if queue:
        connection.ask(queues.known, [queue], connection.configured_queues)
    return runs.checked_runs([(queue or "", each) for each in run_ids])


def _cancel_row(connection: Connection, run_id: str, found: Cancelled, kill_ms: int) -> dict[str, Any]:
    code, queue = "ok", found.queue
    if found.code is CancelCode.CANCELLED:
        result = "cancelled: it had not begun"
    elif found.code is CancelCode.ASKED:
        then = f", and killed after {span(kill_ms / 1000)}" if kill_ms else ""
        result = f"attempt {found.attempt} runs: asked to end{then}"
    elif found.code is CancelCode.DEAD:
        code, result = "no", "is dead already; see `tenure dead drop`"
    else:
        view = _found(connection, run_id)
        outcome = view.history[0].outcome if view and view.history else None
        queue = view.queue if view else ""
        is_done = outcome in {"cancelled", "cancel_asked"}
        code = "ok" if is_done else "no" if view else "unknown"
        result = f"had ended: {outcome or 'its result is kept'}" if view else "unknown"
    return {"run": run_id, "queue": queue, "result": result, "code": code}


def _found(connection: Connection, run_id: str) -> runs.RunView | None:
    try:
        return connection.ask(runs.show, run_id).view
    except UnknownRunError:
        return None


@click.command(cls=SectionedCommand)
@_runs_argument
@_queue_option
@cluster_options
@output_option
def requeue(*, run_ids: tuple[str, ...], queue_name: str | None, connection: Connection) -> int:
    """Let delayed or retrying runs start now. A dead one: see `tenure dead requeue`.

    Exits with 3 when one was not delayed.

    \b
    Example:
      tenure runs requeue 019f6e0a-3f6c-7d2e-8a54-0d3c4b1f9a11
    """
    done = connection.ask(runs.hasten, _chosen(connection, queue_name, run_ids))
    rows = [{"run": each, "queue": found.queue, "result": _hastened(found)} for (_, each), found in done]
    print_rows(rows, columns=("run", "queue", "result"))
    if any(not row["queue"] for row in rows):
        return EXIT_FAILED
    return EXIT_OK if all(row["result"] == "ready now" for row in rows) else EXIT_NO


def _hastened(found: Placed) -> str:
    if not found.queue:
        return "unknown, or ended"
    return "ready now" if found.place == "later" else _WHERE[found.place]


@click.command("set-priority", cls=SectionedCommand)
@click.argument("priority", metavar="PRIORITY", type=click.Choice(list(PRIORITIES)))
@_runs_argument
@_queue_option
@cluster_options
@output_option
def set_priority(*, priority: str, run_ids: tuple[str, ...], queue_name: str | None, connection: Connection) -> int:
    """Give runs another priority: high, normal or low. One that is ready goes to the tail of its new list.

    \b
    Example:
      tenure runs set-priority high import-17
    """
    chosen = _chosen(connection, queue_name, run_ids)
    done = connection.ask(runs.set_priority, chosen, PRIORITIES[priority])
    rows = [
        {
            "run": each,
            "queue": found.queue,
            "was": PRIORITY_NAMES.get(found.priority) if found.priority is not None else None,
            "place": found.place or "unknown, or ended",
        }
        for (_, each), found in done
    ]
    print_rows(rows, columns=("run", "queue", "was", "place"))
    return EXIT_OK if all(row["queue"] for row in rows) else EXIT_FAILED
