"""The producer of this process, chosen by the program or made from its environment, and enqueueing with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack
from urllib.parse import quote

from supervisor.core.errors import EXIT_CONFIG, ConfigError, Problem, TenureError
from supervisor.core.jobs import registry as jobs
from supervisor.settings.sections.redis_url import EMBEDDED_SOCKET
from supervisor.store.client.redis_options import SECRET_OPTIONS, PlainRedisOptions, RedisOptions
from supervisor.store.producer import substitute
from supervisor.store.producer.bulk import Totals
from supervisor.store.producer.destination import Destination
from supervisor.store.producer.options import Args, EnqueueOptions, JobRef, ManyOptions
from supervisor.store.producer.producer import Producer

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_PREFIX = "TENURE_REDIS__"
_OURS = {"", "cluster", "data_dir", "redis"}


class NoRedisError(TenureError):
    """No address of Redis is configured."""

    exit_code = EXIT_CONFIG

    def __init__(self) -> None:
        super().__init__(
            'no Redis is configured for this program: call tenure.connect(config="tenure.yaml") with the replicas\' '
            "configuration, or set TENURE_CONFIG to it, or TENURE_REDIS__URL and TENURE_CLUSTER"
        )


def settings_from_environment(environment: Mapping[str, str]) -> RedisOptions:
    """Return the connection that ``TENURE_REDIS__…`` variables describe.

    Raises:
        NoRedisError: no URL, or ``embedded``, which only the tree that runs the server can resolve.
        ConfigError: a value is of no use; it names the variable.
    """
    given = {key.removeprefix(_PREFIX).lower(): value for key, value in environment.items() if key.startswith(_PREFIX)}
    if given.get("url", "embedded") == "embedded":
        raise NoRedisError
    return _options(given, _PREFIX)


def _options(given: Mapping[str, str], prefix: str = "") -> RedisOptions:
    """Return the options in ``given``; the settings' model judges what plain options do not cover, and names faults.

    Raises:
        ConfigError: values are of no use; each is named, with ``prefix``, as it was given.
    """
    if (found := PlainRedisOptions.parse(given)) is not None:
        return found
    from pydantic import ValidationError  # noqa: PLC0415 - as in _configured

    from supervisor.settings.sections.models import RedisSettings  # noqa: PLC0415

    names = {field.alias or name for name, field in RedisSettings.model_fields.items()}
    try:
        return RedisSettings.model_validate({key: value for key, value in given.items() if key in names})
    except ValidationError as error:
        raise ConfigError([_problem(details, prefix) for details in error.errors(include_url=False)]) from None


def _problem(details: ErrorDetails, prefix: str) -> Problem:
    """Return one fault of a variable, with its value where that is no secret."""
    key, message = (
        str(details["loc"][0]),
        details["msg"].removeprefix("Value error, ").replace("Input should", "should"),
    )
    seen = "" if key in SECRET_OPTIONS or repr(details["input"]) in message else f", got {details['input']!r}"
    return Problem(f"{prefix}{key.upper() if prefix else key}", f"redis.{key}", f"{message}{seen}")


_default: Producer | None = None


def connect(
    url: str | None = None, *, cluster: str | None = None, config: str | Path | Sequence[str | Path] | None = None
) -> Producer:
    """Return the producer that ``enqueue`` of this process uses, from now on that of ``config`` or ``url`` if given.

    Without either it is the one in use: in a job, the worker's; else that of ``TENURE_CONFIG``, or of
    ``TENURE_REDIS__URL`` and ``TENURE_CLUSTER``. Opens no connection yet.

    Args:
        url: of Redis; ``redis://``, ``rediss://`` or ``unix://``.
        cluster: beside ``url``, name of the cluster; default: ``TENURE_CLUSTER``, or ``default``.
        config: the replicas' configuration: a file, a directory, or several; variables go over it as they do there.

    Raises:
        NoRedisError: no address of Redis is configured.
        ConfigError: the configuration does not say how to reach Redis.
        ValueError: ``config`` beside ``url`` or ``cluster``, or ``cluster`` without ``url``.
    """
    if config is not None and (url is not None or cluster is not None):
        raise ValueError("connect takes config, which names Redis and the cluster, or url and cluster; not both")
    if substitute.producer is not None:
        return substitute.producer
    if config is not None:
        use(_configured([Path(config)] if isinstance(config, str | Path) else [Path(each) for each in config]))
    elif url is not None:
        use(_plain(_options({"url": url}), cluster))
    elif cluster is not None:
        raise ValueError("connect takes cluster beside url; without a url, set TENURE_REDIS__URL and TENURE_CLUSTER")
    return current()


def _plain(settings: RedisOptions, cluster: str | None = None) -> Producer:
    name = cluster or os.environ.get("TENURE_CLUSTER", "default")
    return Producer(settings, cluster=name, destination=Destination(name, is_configured=False))


def _configured(files: Sequence[Path]) -> Producer:
    """Return the producer of a configuration, by whose profiles jobs of this program go from now on.

    Problems elsewhere in it are not the application's.
    """
    # Most producers have no configuration, and these cost more than all else that one loads.
    from pydantic import SecretStr  # noqa: PLC0415

    from supervisor.settings.loader import UnusableError, load  # noqa: PLC0415
    from supervisor.settings.schedules.profiles import policies_of  # noqa: PLC0415

    try:
        settings = load(files=files, environ=os.environ, flags={}).settings
    except UnusableError as error:
        if error.partial is None or any(each.path.split(".")[0] in _OURS for each in error.problems):
            raise
        settings = error.partial.settings
    jobs.registry.use(policies_of(settings.profiles))
    redis = settings.redis
    if redis.url.get_secret_value() == "embedded":
        socket = Path(settings.data_dir).absolute() / EMBEDDED_SOCKET
        redis = redis.model_copy(update={"url": SecretStr(f"unix://{quote(str(socket))}")})
    destination = Destination(settings.cluster, is_configured=True)
    return Producer(redis, cluster=settings.cluster, limits=settings.queues, destination=destination)


def use(producer: Producer | None) -> None:
    """Make ``producer`` the one that this process enqueues with."""
    global _default  # noqa: PLW0603 - one per process, as the environment is
    _default = producer


def current() -> Producer:
    """Return the producer of this process, made from the environment when nobody chose one.

    Raises:
        NoRedisError: no address of Redis is configured.
    """
    if substitute.producer is not None:
        return substitute.producer
    if _default is None:
        files = [Path(name) for name in os.environ.get("TENURE_CONFIG", "").split(os.pathsep) if name]
        use(_configured(files) if files else _plain(settings_from_environment(os.environ)))
    assert _default is not None
    return _default


def enqueue(job: JobRef, args: Args | None = None, **options: Unpack[EnqueueOptions]) -> str:
    """Enqueue one run of ``job`` and return its id.

    Where the job is ``unique`` and an unfinished run holds the key, nothing is enqueued, and the id is that run's.

    Args:
        job: the job's name, or the function that ``@job`` registered.
        args: its arguments by name; JSON values, with all else at most 64 KiB.
        **options: ``queue``, ``priority``, ``delay``, ``at``, ``run_id``, ``traceparent``; see ``EnqueueOptions``.

    Raises:
        NoRedisError: no address of Redis is configured.
        UnknownJobError: neither this program nor any replica knows the job.
        ArgumentsError: the arguments do not fit the job.
        PayloadTooLargeError: the run would be larger than 64 KiB.
        QueueFullError: as many runs wait in its queue as ``queues.length_max`` allows.
        RunIdTakenError: the ``run_id`` is that of another job's run, or of a schedule's, or has other arguments.
        StoreUnavailableError: Redis did not answer; whether it enqueued is not known. Calling again
            with a ``run_id`` of your own cannot enqueue it twice while the run is unfinished or dead.
    """
    return current().enqueue(job, args, **options)


async def enqueue_async(job: JobRef, args: Args | None = None, **options: Unpack[EnqueueOptions]) -> str:
    """Enqueue one run as ``enqueue`` does, without blocking the event loop."""
    return await current().enqueue_async(job, args, **options)


def enqueue_many(job: JobRef, many: Iterable[Args], **options: Unpack[ManyOptions]) -> Totals:
    """Enqueue a run of ``job`` for each of ``many``, in their order, in batches; return the counts by result.

    Raises:
        PartlyEnqueuedError: it stopped before the end, at the place it names; its cause is the reason.
    """
    return current().enqueue_many(job, many, **options)
