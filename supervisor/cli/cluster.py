"""Shared parts of the schedule commands: lookup, filters, retried calls, and the requester's name."""

from __future__ import annotations

import getpass
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import click

from supervisor.cli.connection import Connection
from supervisor.core.effects import drive
from supervisor.core.errors import StoreUnavailableError, TenureError
from supervisor.core.jobs.registry import Registry
from supervisor.core.suggestions import SUGGESTIONS_MAX, suggestion
from supervisor.operations import Delay, Effect, InvalidRequestError, Operation, schedules, workers
from supervisor.operations.schedules import UnknownScheduleError

T = TypeVar("T")
TRIES = 5


def run(connection: Connection, effect: Effect) -> Any:
    """Perform an effect that may be performed again: a reply that was lost is no reason to give up."""
    for tries_left in reversed(range(TRIES)):
        try:
            return _perform(connection.store.run, effect)
        except StoreUnavailableError:
            if not tries_left:
                raise
            moment_of_patience()
    raise AssertionError("unreachable")


def ask(connection: Connection, operation: Operation[T]) -> T:
    """Return the result of ``operation``, each of its calls repeated when its reply was lost.

    Raises:
        UnknownScheduleError: there is no such schedule; names the nearest.
    """
    try:
        return drive(operation, partial(run, connection))
    except UnknownScheduleError as error:
        message = unknown_message(connection, error.schedule, removed_ms=error.removed_ms)
        raise UnknownScheduleError(error.schedule, removed_ms=error.removed_ms, message=message) from None


def ask_once(connection: Connection, operation: Operation[T]) -> T:
    """Return the result of ``operation``; a lost reply ends it."""
    return drive(operation, partial(_perform, connection.store.run))


def _perform(send: Callable[[Any], Any], effect: Effect) -> Any:
    if isinstance(effect, Delay):
        return time.sleep(effect.seconds)  # noqa: TID251 - a person waits, and nothing would announce what is awaited
    return send(effect)


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


def moment_of_patience() -> None:
    """Delay a fifth of a second."""
    time.sleep(0.2)  # noqa: TID251 - a person waits, and nothing would announce what is waited for


def unknown_message(connection: Connection, schedule: str, *, removed_ms: int | None = None) -> str:
    """Return that there is no ``schedule``, and which might be meant."""
    from supervisor.cli.output import moment

    if removed_ms is not None:
        return f"schedule {schedule!r} was removed at {moment(removed_ms)}; adding it again restores its counters"
    names = [record.id for record in ask(connection, schedules.browse(connection.keys))]
    hint = suggestion(schedule, names, "`tenure schedule list` shows all", count=SUGGESTIONS_MAX)
    return f"no schedule is called {schedule!r}; {hint}"


def server_now_ms(connection: Connection) -> int:
    """Return Redis' time."""
    return ask(connection, schedules.now_ms(connection.keys))


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
        from supervisor.settings.schedules.instants import parse_bound
        from supervisor.settings.sections.durations import parse_duration

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


def chosen(connection: Connection, ids: Sequence[str], labels: Mapping[str, str], *, everything: bool) -> list[str]:
    """Return the ids that a command means: those given, those with all of ``labels``, or all.

    Raises:
        click.UsageError: none of these was given, or an id with labels.
    """
    if ids and (labels or everything):
        raise click.UsageError("give ids, or --label, or --all; not two of them")
    if ids:
        return list(dict.fromkeys(ids))
    if not labels and not everything:
        raise click.UsageError("which? give ids, --label NAME=VALUE, or --all")
    found = ask(connection, schedules.browse(connection.keys, lambda record: schedules.has_labels(record, labels)))
    return [record.id for record in found]


def known_jobs(connection: Connection, loaded: Any, say: Callable[[str], None]) -> Registry:
    """Return the jobs to check schedules against: those that the configuration imports, else those in Redis.

    Raises:
        ConfigError: a job module cannot be imported.
    """
    from supervisor.app.plugins import prepare as prepare_plugins
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
    published = ask(connection, jobs.known(connection.keys))
    say(
        f"note: no job modules are configured here (jobs:), so jobs and the names of their arguments are checked "
        f"against the {len(published.names())} that the replicas published; types are not checked"
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
    command = workers.control(connection.keys, target, word, by=who(), signer=signer, at_ms=at_ms, wait_s=wait_s)
    return ask(connection, command)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed, unless ``--yes`` was given.

    Raises:
        click.Abort: the answer is no.
        TenureError: there is nobody who could answer.
    """
    if yes:
        return
    try:
        is_agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise  # by Ctrl-C
        click.echo(err=True)
        raise TenureError("nobody answered, so nothing was done; give --yes where there is no terminal") from None
    if not is_agreed:
        raise click.Abort
