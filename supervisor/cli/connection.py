"""Connection of a command to the cluster: settings, keys, and one client with clear errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from supervisor.core.errors import StoreUnavailableError
from supervisor.settings.sections.models import Settings
from supervisor.store.client.sync_client import Store
from supervisor.store.keys import Keys


@dataclass(frozen=True, slots=True)
class Connection:
    """A client and everything that can be asked through it."""

    settings: Settings
    store: Store
    keys: Keys

    def open_store(self) -> Store:
        """Return another client of the same cluster, for a producer, which closes what it opens."""
        from supervisor.app.endpoint import resolve_redis_url

        settings = self.settings
        return Store.connect(resolve_redis_url(settings), settings=settings.redis, name=f"{settings.cluster}:cli")


@contextmanager
def connected(settings: Settings) -> Iterator[Connection]:
    """Connect to the cluster of ``settings``.

    Raises:
        StoreUnavailableError: nobody answers; for the embedded server the message is that no tree runs here.
    """
    from supervisor.app.endpoint import embedded_server, resolve_redis_url

    if embedded_server(settings) is not None and not embedded_server_is_up(settings):
        raise StoreUnavailableError(
            f"no tree runs on data_dir {settings.data_dir}: the embedded server does not answer; start one with "
            f"`tenure run`, or point to the running one by --config, TENURE_DATA_DIR or TENURE_REDIS__URL"
        )
    store = Store.connect(resolve_redis_url(settings), settings=settings.redis, name=f"{settings.cluster}:cli")
    try:
        yield Connection(settings, store, Keys(settings.cluster))
    finally:
        store.close()


def embedded_server_is_up(settings: Settings) -> bool:
    """Return whether the embedded server of the data directory answers."""
    from supervisor.app.endpoint import embedded_server

    server = embedded_server(settings)
    try:
        return server is not None and server.is_ready()
    except OSError:
        return False
