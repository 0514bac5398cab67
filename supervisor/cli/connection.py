"""Connection of a command to the cluster: settings, keys, one client with clear errors, and operations driven by it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from supervisor.cli.options import LoadSettings, config_options
from supervisor.cli.output import moment, say
from supervisor.core.effects import drive
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.core.suggestions import SUGGESTIONS_MAX, suggestion
from supervisor.operations import Computing, Delay, Effect, Keys, Request, schedules
from supervisor.operations.schedules import UnknownScheduleError
from supervisor.settings.sections.models import Settings
from supervisor.store.client.sync_client import Store

P = ParamSpec("P")
T = TypeVar("T")
TRIES = 5


@dataclass(frozen=True, slots=True)
class Connection:
    """A client and everything that can be asked through it."""

    settings: Settings
    store: Store
    keys: Keys

    def ask(self, operation: Request[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Return the result of ``operation`` on this cluster, each of its calls repeated when its reply was lost.

        Raises:
            UnknownScheduleError: there is no such schedule; names the nearest.
        """
        try:
            return drive(operation(self.keys, *args, **options), self.run)
        except UnknownScheduleError as error:
            message = self.unknown_message(error.schedule, removed_ms=error.removed_ms)
            raise UnknownScheduleError(error.schedule, removed_ms=error.removed_ms, message=message) from None

    def ask_each_queue(self, operation: Request[..., T], *args: Any, **options: Any) -> tuple[T, bool]:
        """Return the result of ``operation`` on queues, and whether each could be read; people are told of others."""
        refused: list[str] = []

        def tell(name: str, error: StoreRefusedError) -> None:
            refused.append(name)
            say(f"queue {name}: {error}", err=True)

        return self.ask(operation, *args, tell_refused=tell, **options), not refused

    def ask_once(self, operation: Request[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Return the result of ``operation`` on this cluster; a lost reply ends it."""
        return drive(operation(self.keys, *args, **options), self._perform)

    def run(self, effect: Effect, *, timeout_s: float | None = None) -> Any:
        """Perform an effect that may be performed again: a reply that was lost is no reason to give up."""
        for tries_left in reversed(range(TRIES)):
            try:
                return self._perform(effect, timeout_s)
            except StoreUnavailableError:
                if not tries_left:
                    raise
                moment_of_patience()
        raise AssertionError("unreachable")

    def _perform(self, effect: Effect, timeout_s: float | None = None) -> Any:
        if isinstance(effect, Delay):
            return moment_of_patience(effect.seconds)
        if isinstance(effect, Computing):
            return list(effect.items)
        return self.store.run(effect, timeout_s=timeout_s)

    def unknown_message(self, schedule: str, *, removed_ms: int | None = None) -> str:
        """Return that there is no ``schedule``, and which might be meant."""
        if removed_ms is not None:
            return f"schedule {schedule!r} was removed at {moment(removed_ms)}; adding it again restores its counters"
        names = [record.id for record in self.ask(schedules.browse)]
        hint = suggestion(schedule, names, "`tenure schedule list` shows all", count=SUGGESTIONS_MAX)
        return f"no schedule is called {schedule!r}; {hint}"

    @property
    def configured_queues(self) -> set[str]:
        """The queues of the pools that are configured here."""
        return {queue for pool in self.settings.workers.values() for queue in pool.queues}

    def open_store(self) -> Store:
        """Return another client of the same cluster, for a producer, which closes what it opens."""
        return _open(self.settings)


def moment_of_patience(seconds: float = 0.2) -> None:
    """Delay, by default for a fifth of a second."""
    time.sleep(seconds)  # noqa: TID251 - a person waits, and nothing would announce what is waited for


@contextmanager
def connected(settings: Settings) -> Iterator[Connection]:
    """Connect to the cluster of ``settings``.

    Raises:
        StoreUnavailableError: nobody answers; for the embedded server the message is that no tree runs here.
    """
    if is_embedded_down(settings):
        raise StoreUnavailableError(
            f"no tree runs on data_dir {settings.data_dir}: the embedded server does not answer; start one with "
            f"`tenure run`, or point to the running one by --config, TENURE_DATA_DIR or TENURE_REDIS__URL"
        )
    store = _open(settings)
    try:
        yield Connection(settings, store, Keys(settings.cluster))
    finally:
        store.close()


def _open(settings: Settings) -> Store:
    from supervisor.app.endpoint import resolve_redis_url

    return Store.connect(resolve_redis_url(settings), settings=settings.redis, name=f"{settings.cluster}:cli")


def is_embedded_down(settings: Settings) -> bool:
    """Return whether the server is the embedded one of the data directory, and does not answer."""
    from supervisor.app.endpoint import embedded_server

    server = embedded_server(settings)
    try:
        return server is not None and not server.is_ready(settings.redis.connect_timeout_s)
    except OSError:
        return True


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of ``config_options``, and pass a ``connection`` to the cluster of that configuration."""

    @config_options
    @wraps(function)
    def command(*, load_settings: LoadSettings, **options: Any) -> Any:
        with connected(load_settings().settings) as connection:
            return function(connection=connection, **options)

    return command
