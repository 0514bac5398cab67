"""Shared parts of the commands: types of options, filters, questions, and the requester's name."""

from __future__ import annotations

import getpass
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli.connection import Connection
from supervisor.cli.output import printable, say
from supervisor.core.errors import TenureError
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import PRIORITIES
from supervisor.operations import InvalidRequestError, workers

if TYPE_CHECKING:
    from supervisor.settings.loader import Loaded

PRIORITY_NAMES = {number: name for name, number in PRIORITIES.items()}

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
reason_option = click.option("--reason", default="", help="For people; kept in the history.")


@contextmanager
def checked_options() -> Iterator[None]:
    """Report a field of a request that cannot be used as the option that gave it.

    Raises:
        click.UsageError: naming the option.
    """
    try:
        yield
    except InvalidRequestError as error:
        raise click.UsageError(f"--{error.field} {error.problem}") from None


class LabelType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """``name=value``."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return name and value."""
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not equals or not name:
            self.fail(f"{value!r} is not NAME=VALUE, such as team=billing", param, ctx)
        return name, text


LABEL = LabelType()


class InstantType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """An instant: ISO 8601, in UTC without an offset; or ``now``, ``-2h``, ``+15m``. Becomes milliseconds.

    A day without a time is its beginning, or with ``is_end`` its last millisecond.
    """

    name = "instant"

    def __init__(self, *, is_end: bool = False) -> None:
        self._is_end = is_end

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return milliseconds since 1970; a usage error names the fault."""
        from supervisor.clock import SystemClock
        from supervisor.core.durations import parse_duration
        from supervisor.settings.schedules.instants import parse_bound

        if isinstance(value, int):
            return value
        try:
            if value == "now":
                return SystemClock().wall_ms()
            if value[:1] in "+-":
                return SystemClock().wall_ms() + round(parse_duration(value[1:]) * 1000) * (
                    -1 if value[0] == "-" else 1
                )
            return parse_bound(value, is_end=self._is_end)
        except ValueError as error:
            self.fail(str(error), param, ctx)


INSTANT = InstantType()
LAST_INSTANT = InstantType(is_end=True)


def known_jobs(connection: Connection, loaded: Loaded) -> Registry:
    """Return the jobs to check schedules against: those that the configuration imports, else those in Redis.

    Raises:
        ConfigError: a job module cannot be imported.
    """
    from supervisor.app.jobs import prepare_plugins
    from supervisor.core.errors import ConfigError
    from supervisor.core.jobs.registry import registry
    from supervisor.operations import jobs
    from supervisor.settings.schedules.complete import import_jobs

    if loaded.settings.jobs:
        problems = import_jobs(loaded.settings.jobs, loaded.origins)
        if problems:
            raise ConfigError(problems)
        prepare_plugins(loaded.settings, loaded.origins)
        return registry
    published = connection.ask(jobs.known)
    say(
        f"note: no job modules are configured here (jobs:), so jobs and the names of their arguments are checked "
        f"against the {len(published.names())} that the replicas published; types are not checked",
        err=True,
    )
    return published


def who() -> str:
    """Return the requester's name, for the record."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):
        return socket.gethostname()


def command_replica(
    connection: Connection, target: workers.WorkerTarget, word: workers.Word, *, wait_s: float = workers.WAIT_S
) -> workers.Answer | None:
    """Send a command to a replica, signed where the cluster has a key; None when there was no answer in time."""
    from supervisor.clock import SystemClock

    signer = connection.settings.commands.signer(connection.settings.cluster)
    at_ms = SystemClock().wall_ms()
    return connection.ask(workers.control, target, word, by=who(), signer=signer, at_ms=at_ms, wait_s=wait_s)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed, unless ``--yes`` was given.

    Raises:
        click.Abort: the answer is no.
        TenureError: there is nobody who could answer.
    """
    if yes:
        return
    try:
        is_agreed = click.confirm(printable(question), err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise  # by Ctrl-C
        click.echo(err=True)
        raise TenureError("nobody answered, so nothing was done; give --yes where there is no terminal") from None
    if not is_agreed:
        raise click.Abort
