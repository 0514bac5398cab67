"""The producer of this process: chosen by the program, or made from its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

from supervisor.core.errors import EXIT_CONFIG, TenureError
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.producer.producer import Producer


class NoRedisError(TenureError):
    """No address of Redis is configured."""

    exit_code = EXIT_CONFIG

    def __init__(self) -> None:
        super().__init__(
            "no Redis is configured for this program: set TENURE_REDIS__URL, or call tenure.connect(url); "
            "for a tree with `redis.url: embedded` that is unix:// and the absolute path of the socket in its data_dir"
        )


def settings_from_environment(environment: Mapping[str, str]) -> RedisSettings:
    """Return the connection that ``TENURE_REDIS__…`` variables describe.

    Raises:
        NoRedisError: no URL, or ``embedded``, which only the tree that runs the server can resolve.
    """
    prefix = "TENURE_REDIS__"
    names = {field.alias or name for name, field in RedisSettings.model_fields.items()}
    given = {key.removeprefix(prefix).lower(): value for key, value in environment.items() if key.startswith(prefix)}
    if given.get("url", "embedded") == "embedded":
        raise NoRedisError
    return RedisSettings.model_validate({key: value for key, value in given.items() if key in names})


_default: Producer | None = None


def connect(url: str | None = None, *, cluster: str = "default") -> Producer:
    """Return the producer that ``enqueue`` of this process uses; ``url`` is its destination from now on.

    Without one it is the one in use: in a job, the worker's; else that of TENURE_REDIS__URL and TENURE_CLUSTER.
    Opens nothing yet.

    Raises:
        NoRedisError: no address of Redis is configured.
    """
    if url is not None:
        use(Producer(RedisSettings.model_validate({"url": url}), cluster=cluster))
    return current()


def use(producer: Producer | None) -> None:
    """Make ``producer`` the one that this process enqueues with."""
    global _default  # noqa: PLW0603 - one per process, as the environment is
    _default = producer


def current() -> Producer:
    """Return the producer of this process, made from the environment when nobody chose one.

    Raises:
        NoRedisError: no address of Redis is configured.
    """
    if _default is None:
        settings = settings_from_environment(os.environ)
        use(Producer(settings, cluster=os.environ.get("TENURE_CLUSTER", "default")))
    assert _default is not None
    return _default
