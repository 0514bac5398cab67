"""Shared parts of the queue and run commands: queue lookup, its places, and paging through them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from supervisor.cli.cluster import run
from supervisor.cli.connection import Connection
from supervisor.core.errors import EXIT_FAILED, TenureError
from supervisor.core.model import PRIORITIES
from supervisor.store.queues.control import QueueControl
from supervisor.store.queues.reads import PARTS

PAGES_MAX = 100_000
SUGGESTIONS_MAX = 3
PRIORITY_NAMES = {number: name for name, number in PRIORITIES.items()}

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
reason_option = click.option("--reason", default="", help="For people; kept in the history.")


class UnknownQueueError(TenureError):
    """No run was ever in a queue of this name, and no pool here serves it."""

    exit_code = EXIT_FAILED


def control(connection: Connection) -> QueueControl:
    """Return the calls that change queues."""
    return QueueControl(connection.keys, history=connection.settings.queues.history)


def queue_names(connection: Connection) -> list[str]:
    """Return every queue that was ever used, sorted."""
    names: list[str] = run(connection, connection.queues.names())
    return names


def known_queue(connection: Connection, name: str) -> str:
    """Return ``name`` if there is such a queue, in Redis or in the pools that are configured here.

    Raises:
        UnknownQueueError: there is none; names the nearest.
    """
    import difflib

    known = {*queue_names(connection), *(q for pool in connection.settings.workers.values() for q in pool.queues)}
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, n=SUGGESTIONS_MAX, cutoff=0.6)
    hint = f"did you mean {', '.join(close)}?" if close else "`tenure queue list` shows all"
    raise UnknownQueueError(f"no queue is called {name!r}; {hint}")


def named_queues(connection: Connection, name: str | None) -> list[str]:
    """Return the queue that was asked for, or all."""
    return queue_names(connection) if name is None else [known_queue(connection, name)]


def waiting_parts(connection: Connection, queue: str) -> list[str]:
    """Return every place of ``queue`` in which runs wait: its lists, and one for each concurrency key."""
    keys: dict[str, None] = {}
    cursor = "0"
    for _ in range(PAGES_MAX):
        page = run(connection, connection.queues.blocked(queue, cursor))
        keys.update((key, None) for _, key in page.items)
        cursor = page.cursor
        if cursor == "0":
            break
    return [*PARTS, *(f"wait:{key}" for key in sorted(keys))]


def groups(items: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield ``items`` in lists as large as one call takes."""
    group: list[str] = []
    for item in items:
        group.append(item)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
