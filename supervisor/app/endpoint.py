"""Address of the cluster's Redis by the settings: a URL, or the socket of the embedded server."""

from __future__ import annotations

from pathlib import Path

from supervisor.embedded.valkey import EmbeddedServer
from supervisor.settings.sections.models import Settings

EMBEDDED = "embedded"


def embedded_server(settings: Settings) -> EmbeddedServer | None:
    """Return the embedded server, or None when the settings name a Redis of their own.

    Raises:
        CannotCreateError: the socket's path is too long.
    """
    if settings.redis.url.get_secret_value() != EMBEDDED:
        return None
    redis = settings.redis
    return EmbeddedServer(Path(settings.data_dir), fsync=redis.fsync, memory_mib_max=redis.memory_mib_max)


def resolve_redis_url(settings: Settings) -> str:
    """Return where Redis is, with the embedded server's socket in place of ``embedded``."""
    server = embedded_server(settings)
    return settings.redis.url.get_secret_value() if server is None else server.url
