"""``tenure dead``: runs that were given up, kept for inspection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from supervisor.cli.cluster import INSTANT, confirm, run, who
from supervisor.cli.connection import Connection, connected
from supervisor.cli.help import SectionedGroup
from supervisor.cli.options import DURATION, LoadSettings, config_options
from supervisor.cli.output import list_options, output_option, print_rows, print_value
from supervisor.cli.progress import progress
from supervisor.cli.queue.dead_format import dead_record, dead_row, reason_of
from supervisor.cli.queue.params import PAGES_MAX, control, groups, named_queues, yes_option
from supervisor.core.errors import EXIT_FAILED, EXIT_NO, EXIT_OK, TenureError
from supervisor.store.queues.control import PAGE, RequeueCode
from supervisor.store.queues.reads import DeadRun

COUNT_MAX = 100_000
_COLUMNS = ("run", "queue", "job", "died", "attempts", "crashes", "reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Filter of a command on dead runs."""

    ids: tuple[str, ...] = ()
    queue: str | None = None
    job: str | None = None
    reason: str | None = None
    error: str | None = None
    before_ms: int | None = None
    everything: bool = False

    @property
    def is_given(self) -> bool:
        """True if it selects runs; a queue alone does not."""
        return bool(self.ids or self.job or self.reason or self.error or self.before_ms or self.everything)

    def takes(self, dead: DeadRun) -> bool:
        """Return whether ``dead`` is one of them. Reason and error match any part, whatever the case of letters."""
        job = dead.envelope.template.job if dead.envelope else ""
        said = " ".join(map(str, dead.error.values())).lower()
        return (
            (not self.ids or dead.run_id in self.ids)
            and (self.job is None or job == self.job)
            and (self.reason is None or self.reason.lower() in reason_of(dead.error).lower())
            and (self.error is None or self.error.lower() in said)
            and (self.before_ms is None or dead.died_ms < self.before_ms)
        )


def filtered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select dead runs; the command is passed ``which``."""
    from functools import wraps

    @click.option("--queue", help="Only of this queue.")
    @click.option("--job", help="Only runs of this job.")
    @click.option(
        "--reason", "reason_part", metavar="TEXT", help="Only with this in the reason, as `dead list` shows it."
    )
    @click.option(
        "--error", "error_part", metavar="TEXT", help="Only with this anywhere in the error, its traceback too."
    )
    @click.option("--before", "before_ms", type=INSTANT, help="Only those that died before, such as -2h or 2026-11-20.")
    @wraps(function)
    def command(
        *,
        queue: str | None,
        job: str | None,
        reason_part: str | None,
        error_part: str | None,
        before_ms: int | None,
        **options: Any,
    ) -> Any:
        which = Filter(
            ids=tuple(dict.fromkeys(options.pop("run_ids", ()))),
            queue=queue,
            job=job,
            reason=reason_part,
            error=error_part,
            before_ms=before_ms,
            everything=options.pop("everything", False),
        )
        return function(which=which, **options)

    return command


_ids_argument = click.argument("run_ids", metavar="[RUN]...", nargs=-1)
_all_option = click.option("--all", "everything", is_flag=True, help="Every dead run, or with --queue all of it.")


@click.group(cls=SectionedGroup)
def dead() -> None:
    """List, requeue and drop runs that were given up."""


@dead.command("list")
@filtered
@click.option("-n", "--count", type=click.IntRange(1, COUNT_MAX), default=50, show_default=True, help="How many.")
@config_options
@list_options
def dead_list(*, which: Filter, count: int, output: str, load_settings: LoadSettings) -> None:
    """List dead runs, newest first.

    \b
    Examples:
      tenure dead list --job report.make
      tenure dead list --error ConnectionRefused --before -1h -o json
    """
    rows: list[dict[str, Any]] = []
    with connected(load_settings().settings) as connection:
        for name in named_queues(connection, which.queue):
            found = _pages(connection, name, is_newest_first=True)
            taken: dict[str, DeadRun] = {}
            for each in found:
                if which.takes(each):
                    taken.setdefault(each.run_id, each)
                if len(taken) >= count:
                    break
            rows += [dead_row(each) for each in taken.values()]
    rows.sort(key=lambda row: row["died"] or "", reverse=True)
    print_rows(rows[:count], columns=_COLUMNS, output=output, empty="no dead run")


@dead.command("show")
@click.argument("run_id", metavar="RUN")
@config_options
@output_option
def dead_show(*, run_id: str, output: str, load_settings: LoadSettings) -> None:
    """Show one dead run: why, its traceback, its worker, how often it was tried.

    \b
    Example:
      tenure dead show nightly-report@1795055400000
    """
    with connected(load_settings().settings) as connection:
        view = run(connection, connection.queues.show(run_id))
    if view is None or view.state != "dead":
        state = "unknown" if view is None else f"{view.state}, not dead"
        raise TenureError(f"run {run_id!r} is {state}; `tenure dead list` shows the dead ones")
    print_value(dead_record(view), output="yaml" if output == "table" else output)


@dead.command("requeue")
@_ids_argument
@_all_option
@filtered
@click.option("--delay", "delay_s", type=DURATION, default="0s", help="Not sooner than after this time.")
@yes_option
@config_options
@output_option
def dead_requeue(*, which: Filter, delay_s: float, yes: bool, output: str, load_settings: LoadSettings) -> int:
    """Let dead runs run again, with all their attempts, from the tail of their queue.

    Exits with 3 when one could not: another run holds its unique key, or nothing that could run is left of it.

    \b
    Examples:
      tenure dead requeue nightly-report@1795055400000
      tenure dead requeue --job report.make --error Timeout --delay 10m --yes
    """
    words = {
        RequeueCode.REQUEUED: "requeued",
        RequeueCode.ABSENT: "is not dead any more",
        RequeueCode.BROKEN: "nothing that could run is left of it",
    }

    def requeue(connection: Connection, queue: str, ids: list[str]) -> list[str]:
        call = control(connection).requeue(queue, ids, delay_ms=round(delay_s * 1000), by=who())
        return [
            words.get(each.code) or f"run {each.holder.partition(' ')[2]} holds its unique key"
            for each in run(connection, call)
        ]

    return _change(which, "Requeue", requeue, done="requeued", yes=yes, output=output, load_settings=load_settings)


@dead.command("drop")
@_ids_argument
@_all_option
@filtered
@click.option("--note", default="", help="Why, for people; kept in the history.")
@yes_option
@config_options
@output_option
def dead_drop(*, which: Filter, note: str, yes: bool, output: str, load_settings: LoadSettings) -> int:
    """Forget dead runs. The history keeps a line of each.

    \b
    Examples:
      tenure dead drop nightly-report@1795055400000
      tenure dead drop --before -7d --yes
    """

    def drop(connection: Connection, queue: str, ids: list[str]) -> list[str]:
        gone = run(connection, control(connection).drop(queue, ids, by=who(), reason=note))
        return ["dropped" if each else "is not dead any more" for each in gone]

    return _change(which, "Drop", drop, done="dropped", yes=yes, output=output, load_settings=load_settings)


def _change(
    which: Filter,
    verb: str,
    change: Callable[[Connection, str, list[str]], list[str]],
    *,
    done: str,
    yes: bool,
    output: str,
    load_settings: LoadSettings,
) -> int:
    """Apply ``change`` to the runs of ``which``, in batches, and print the result of each."""
    if not which.is_given:
        raise click.UsageError("which? give ids, --job, --reason, --error, --before, or --all")
    rows: list[dict[str, Any]] = []
    with connected(load_settings().settings) as connection:
        found = {name: _chosen(connection, name, which) for name in named_queues(connection, which.queue)}
        total = sum(map(len, found.values()))
        if total:
            confirm(f"{verb} {total} dead run{'s' if total > 1 else ''}?", yes=yes)
        with progress(verb.lower(), total) as tell:
            for name, ids in found.items():
                for group in groups(ids, PAGE):
                    results = change(connection, name, group)
                    rows += [
                        {"run": each, "queue": name, "result": result}
                        for each, result in zip(group, results, strict=True)
                    ]
                    tell(len(rows))
    missing = [each for each in which.ids if each not in {row["run"] for row in rows}]
    rows += [{"run": each, "queue": None, "result": "is not dead"} for each in missing]
    print_rows(rows, columns=("run", "queue", "result"), output=output, empty="no dead run matches")
    if missing:
        return EXIT_FAILED
    return EXIT_OK if all(row["result"] == done for row in rows) else EXIT_NO


def _chosen(connection: Connection, queue: str, which: Filter) -> list[str]:
    return list(dict.fromkeys(each.run_id for each in _pages(connection, queue) if which.takes(each)))


def _pages(connection: Connection, queue: str, *, is_newest_first: bool = False) -> Iterator[DeadRun]:
    position = "0"
    for _ in range(PAGES_MAX):
        page = run(connection, connection.queues.dead_page(queue, position, is_newest_first=is_newest_first))
        yield from page.items
        position = page.position
        if position == "0":
            return
