"""Sending commands to replicas through Redis, and waiting for their results."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import click

from supervisor.cli.cluster import moment_of_patience, run
from supervisor.cli.connection import Connection
from supervisor.clock import SystemClock
from supervisor.core.errors import TenureError
from supervisor.core.units import SECOND_NS
from supervisor.store.election.commands import Answer, Command, Commands, Word
from supervisor.store.election.leases import CandidateInfo

WAIT_S = 15.0
REPORT_WAIT_S = 4.0
FRESH_MS = 3 * 300_000  # a candidate that was never seen within so long is gone for good


def send(
    connection: Connection, commands: Mapping[str, Command], *, wait_s: float = WAIT_S
) -> dict[str, Answer | None]:
    """Send one command to each replica and wait until all have answered.

    Returns:
        The answer of each replica; None for one that gave none in time.
    """
    calls, clock = Commands(connection.keys), SystemClock()
    signer = connection.settings.commands.signer(connection.settings.cluster)
    ids = {replica: secrets.token_hex(12) for replica in commands}
    for replica, command in commands.items():
        signed = command.signed(signer, replica, ids[replica], clock.wall_ms())
        if not run(connection, calls.send(replica, ids[replica], signed)):
            raise TenureError(f"replica {replica} takes no commands: many wait for it already; is it alive?")
    found: dict[str, Answer | None] = dict.fromkeys(commands)
    until_ns = clock.elapsed_ns() + int(wait_s * SECOND_NS)
    while commands:
        waiting = [replica for replica, answer in found.items() if answer is None]
        answers = run(connection, calls.read([ids[replica] for replica in waiting]))
        found.update(zip(waiting, answers, strict=True))
        if None not in found.values() or clock.elapsed_ns() >= until_ns:
            break
        moment_of_patience()
    return found


def replicas(connection: Connection) -> list[str]:
    """Return the ids of the replicas that may be alive: those that would lead, and those with workers."""
    candidates: list[CandidateInfo] = run(connection, connection.leases.candidates())
    newest_ms = max((each.seen_ms for each in candidates), default=0)
    fresh = {each.replica for each in candidates if each.seen_ms >= newest_ms - FRESH_MS}
    return sorted(fresh | {session.partition("/")[0] for session in run(connection, connection.sessions.list())})


def chosen_replica(names: Sequence[str], name: str | None) -> str:
    """Return the one replica that is meant, by its id or its name; with none named, the only one there is.

    Raises:
        click.UsageError: it is not clear which.
    """
    matching = [each for each in names if name is None or name in {each, each.rpartition(".")[0]}]
    if len(matching) == 1:
        return matching[0]
    shown = ", ".join(names[:10]) or "none"
    if name is None:
        raise click.UsageError(f"name the replica: --replica; there are: {shown}")
    if not matching:
        raise click.UsageError(f"no replica is called {name!r}; there are: {shown}")
    raise click.UsageError(f"several replicas are called {name!r}; give the whole id: {', '.join(matching[:10])}")


def report_of(connection: Connection, names: Sequence[str]) -> dict[str, Answer | None]:
    """Ask replicas for the state of their workers."""
    return send(connection, {name: Command(word=Word.REPORT) for name in names}, wait_s=REPORT_WAIT_S)
