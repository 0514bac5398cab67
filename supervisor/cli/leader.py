"""``tenure leader``: the current leader, its changes, its history, and handing over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

from supervisor.cli.cluster import confirm, who, yes_option
from supervisor.cli.connection import Connection, cluster_options, moment_of_patience
from supervisor.cli.help import SectionedGroup
from supervisor.cli.options import DURATION
from supervisor.cli.output import (
    distance,
    is_table,
    list_options,
    moment,
    output_option,
    print_record,
    print_rows,
    print_section,
    print_value,
    say,
    span,
)
from supervisor.clock import SystemClock
from supervisor.core.errors import EXIT_NO, EXIT_OK, StoreUnavailableError
from supervisor.core.units import SECOND_NS
from supervisor.operations import leader as operations
from supervisor.operations.leader import CandidateInfo, CannotHandOverError, LeaseEvent, LeaseView, is_fresh

COUNT_MAX = 1000  # as many events as are kept
LISTEN_S = 1.0  # one blocking read
LOOK_S = 0.1  # between two looks at the lease while a hand-over is awaited
AWAY_S = 0.5  # between two questions while Redis does not answer
CANDIDATE_COLUMNS = ("replica", "role", "host", "pid", "version", "seen")
CHANGE_COLUMNS = ("time", "change", "epoch", "who", "reason")


@click.group(cls=SectionedGroup)
def leader() -> None:
    """Show the election, follow it, ask for a hand-over."""


@leader.command("show")
@cluster_options
@output_option
def leader_show(*, connection: Connection) -> int:
    """Show the lease and who could lead. Exits with 3 when nobody leads.

    \b
    Example:
      tenure leader show -o json
    """
    lease, candidates = connection.ask(operations.show)
    replicas = replica_rows(lease, candidates)
    if is_table():
        say(leader_line(lease))
        print_section("Candidates", replicas, columns=CANDIDATE_COLUMNS, empty="none")
    else:
        print_value({**lease_row(lease), "candidates": replicas})
    return EXIT_OK if lease.holder else EXIT_NO


@leader.command("watch")
@click.option("-n", "--count", type=click.IntRange(1), help="Exit after this many changes.  [default: never]")
@click.option("--timeout", "timeout_s", type=DURATION, help="Exit after this time.  [default: never]")
@cluster_options
@output_option
def leader_watch(*, count: int | None, timeout_s: float | None, connection: Connection) -> None:
    """Print the leader, then one line for each change as it happens, until Ctrl-C.

    With -o json each line is one JSON object. An outage of Redis is waited out.

    \b
    Examples:
      tenure leader watch
      tenure leader watch --count 1 --timeout 1m -o json
    """
    watch = ElectionWatch(connection, until_s=None if timeout_s is None else _elapsed_s() + timeout_s)
    try:
        lease = watch.begin()
        print_record(lease_row(lease), line=leader_line(lease))
        for number, change in enumerate(watch.changes(), start=1):
            print_record(change_row(change), line=change_line(change))
            if number == count:
                break
    except KeyboardInterrupt:
        pass  # how a person ends it, not a failure


@leader.command("history")
@click.option("-n", "--count", type=click.IntRange(1, COUNT_MAX), default=20, show_default=True, help="How many.")
@cluster_options
@list_options
def leader_history(*, count: int, connection: Connection) -> None:
    """Show the history of the lease, newest first; Redis remembers about the last thousand changes.

    \b
    Example:
      tenure leader history --count 50
    """
    changes = connection.ask(operations.history, count)
    print_rows([change_row(each) for each in changes], columns=CHANGE_COLUMNS, empty="no changes")


@leader.command("resign")
@click.option("--to", metavar="REPLICA", help="Who should lead next: a replica, or the beginning of its name.")
@yes_option
@click.option("--timeout", "timeout_s", type=DURATION, default="10s", show_default=True, help="How long to wait.")
@cluster_options
def leader_resign(*, to: str | None, yes: bool, timeout_s: float, connection: Connection) -> int:
    """Ask the leader to hand over, and wait until another replica leads.

    Nothing is interrupted: workers go on, and no fire is lost. Exits with 3 when nobody else leads in time.

    \b
    Examples:
      tenure leader resign
      tenure leader resign --to worker-7 --yes
    """
    lease, heir = connection.ask(operations.successor, to)
    if heir == lease.holder:
        say(f"{lease.holder} leads already (epoch {lease.epoch}).")
        return EXIT_OK
    successor = f"to {heir}" if heir else "to another replica"
    confirm(f"{lease.holder} leads (epoch {lease.epoch}). Ask it to hand over {successor}?", yes=yes)
    signer = connection.settings.commands.signer(connection.settings.cluster)
    at_ms = SystemClock().wall_ms()
    connection.ask(operations.resign, lease, heir, by=who(), signer=signer, at_ms=at_ms)
    heard = await_heir(connection, lease, timeout_s)
    say(f"{heard.holder} leads now (epoch {heard.epoch}).")
    if heir and heard.holder != heir:
        say(f"{heir} was asked for, but {heard.holder} was faster: look at `tenure leader show`", err=True)
        return EXIT_NO
    return EXIT_OK


@leader.command("clear-hold")
@yes_option
@cluster_options
def leader_clear_hold(*, yes: bool, connection: Connection) -> None:
    """Let the leader fire again after Redis lost data (election.on_data_loss: hold).

    Look first at the loss: runs that were waiting are gone, and schedules go on from Redis' remaining data.

    \b
    Example:
      tenure leader clear-hold
    """
    lease = connection.ask(operations.view)
    if not lease.hold:
        click.echo("Nothing is held.")
        return
    confirm(f"Fires are held: {lease.hold}. Let them go on?", yes=yes)
    cleared = connection.ask(operations.clear_hold, by=who())
    click.echo("The leader fires again." if cleared.holder else "Cleared. Nobody leads now: the next leader fires.")


def await_heir(connection: Connection, before: LeaseView, timeout_s: float) -> LeaseView:
    """Return the first term after ``before``.

    Raises:
        CannotHandOverError: there was none in time; the message has the last observation.
    """
    until_s = _elapsed_s() + timeout_s
    last = before
    while (left_s := until_s - _elapsed_s()) > 0:
        try:
            last = connection.ask_once(operations.view)
            if last.holder and last.epoch > before.epoch:
                return last
            connection.store.listen(connection.keys.events, last.last_event, min(LOOK_S, left_s))
        except StoreUnavailableError:
            moment_of_patience(min(LOOK_S, left_s))
    if last.holder:
        raise CannotHandOverError(
            f"{last.holder} still leads after {span(timeout_s)}: nobody else asked for the lease, or the leader does "
            f"not answer; see its log for resign_requested, and `tenure leader history`"
        )
    raise CannotHandOverError(
        f"{before.holder} released the lease and nobody took it within {span(timeout_s)}; it will lead again when no "
        f"other does; see the logs of the other replicas"
    )


class ElectionWatch:
    """Follows the events of the election, also across an outage of Redis and the loss of its data."""

    def __init__(self, connection: Connection, *, until_s: float | None) -> None:
        self._connection = connection
        self._until_s = until_s
        self._genesis = ""
        self._last_id = "0-0"

    def begin(self) -> LeaseView:
        """Return the lease as it is; changes count from here."""
        lease = self._connection.ask_once(operations.view)
        self._genesis, self._last_id = lease.genesis, lease.last_event
        return lease

    def changes(self) -> Iterator[LeaseEvent]:
        """Yield each change, until the time is over."""
        is_away = False
        while (left_s := self._left_s()) > 0:
            try:
                if is_away:
                    self._look_again()
                heard = self._connection.store.listen(
                    self._connection.keys.events, self._last_id, min(LISTEN_S, left_s)
                )
            except StoreUnavailableError as error:
                if not is_away:
                    say(f"tenure: {error}; waiting for it", err=True)
                is_away = True
                moment_of_patience(min(AWAY_S, left_s))
                continue
            if is_away:
                is_away = False
                click.echo("tenure: Redis answers again", err=True)
            for event_id, fields in heard:
                self._last_id = event_id
                yield LeaseEvent.of(event_id, fields)

    def _look_again(self) -> None:
        """Start over in a data set that is another one: its events have ids of their own."""
        lease = self._connection.ask_once(operations.view)
        if lease.genesis != self._genesis:
            self._genesis, self._last_id = lease.genesis, "0-0"

    def _left_s(self) -> float:
        return LISTEN_S if self._until_s is None else self._until_s - _elapsed_s()


def _elapsed_s() -> float:
    return SystemClock().elapsed_ns() / SECOND_NS


def leader_line(lease: LeaseView) -> str:
    """Describe the leader, for people."""
    if not lease.holder:
        return f"Nobody leads (last epoch {lease.epoch})."
    held = span(max(0, lease.now_ms - lease.acquired_ms) / 1000)
    late = "" if lease.remaining_ms > 0 else f"; its lease ran out {span(-lease.remaining_ms / 1000)} ago"
    line = f"Leader: {lease.holder} (epoch {lease.epoch}, for {held}, renewed {lease.seq} times{late})"
    if lease.hold:
        line += f"\nIt fires nothing until `tenure leader clear-hold`: {lease.hold}."
    return line


def lease_row(lease: LeaseView) -> dict[str, Any]:
    """Return the lease for scripts."""
    return {
        "holder": lease.holder or None,
        "epoch": lease.epoch,
        "seq": lease.seq,
        "remaining_ms": lease.remaining_ms if lease.holder else None,
        "duration_ms": lease.duration_ms,
        "acquired": moment(lease.acquired_ms),
        "transitions": lease.transitions,
        "hold": lease.hold or None,
        "host": lease.host,
        "pid": lease.pid,
        "version": lease.version,
    }


def change_line(change: LeaseEvent) -> str:
    """Describe one change, for people."""
    reason = f" ({change.reason})" if change.reason else ""
    return f"{moment(change.at_ms)}  {change.kind:<16} epoch {change.epoch}  {change.who}{reason}"


def change_row(change: LeaseEvent) -> dict[str, Any]:
    """Return one change for scripts."""
    return {
        "time": moment(change.at_ms),
        "change": change.kind,
        "epoch": change.epoch,
        "who": change.who,
        "reason": change.reason,
    }


def replica_rows(lease: LeaseView, candidates: Iterable[CandidateInfo]) -> list[dict[str, Any]]:
    """Return one row for each candidate, the leader among them."""
    rows = [replica_row(candidate, lease) for candidate in sorted(candidates, key=lambda each: each.replica)]
    if lease.holder and lease.holder not in {row["replica"] for row in rows}:
        rows.insert(0, {"replica": lease.holder, "role": "leader", "host": lease.host, "pid": lease.pid})
    return rows


def replica_row(candidate: CandidateInfo, lease: LeaseView) -> dict[str, Any]:
    """Return one replica that could lead."""
    return {
        "replica": candidate.replica,
        "role": _role(candidate, lease),
        "host": candidate.host,
        "pid": candidate.pid,
        "version": candidate.version,
        "started": moment(candidate.started_ms),
        "seen": distance(candidate.seen_ms, lease.now_ms),
    }


def _role(candidate: CandidateInfo, lease: LeaseView) -> str:
    if candidate.replica == lease.holder:
        return "leader"
    if not is_fresh(candidate, lease):
        return "silent"
    return "draining" if candidate.draining else "standby"
