"""Shared options of the queue and run commands, and the queues that are configured here."""

from __future__ import annotations

import click

from supervisor.cli.connection import Connection
from supervisor.core.model import PRIORITIES

PRIORITY_NAMES = {number: name for name, number in PRIORITIES.items()}

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
reason_option = click.option("--reason", default="", help="For people; kept in the history.")


def configured_queues(connection: Connection) -> set[str]:
    """Return the queues of the pools that are configured here."""
    return {queue for pool in connection.settings.workers.values() for queue in pool.queues}
