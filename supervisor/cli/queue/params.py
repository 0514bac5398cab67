"""Shared options of the queue and run commands."""

from __future__ import annotations

import click

from supervisor.core.model import PRIORITIES

PRIORITY_NAMES = {number: name for name, number in PRIORITIES.items()}

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
reason_option = click.option("--reason", default="", help="For people; kept in the history.")
