"""Every setting, with its default and its range. Frozen once built.

Field names end in their unit; the key that people write has no unit, because the value
carries one: ``lease_duration_s`` is ``lease_duration: 5s``. Relations between settings
are in relations.py; the docstring under a field is its documentation everywhere.

Guarantees
    Neither ``repr`` nor a dump shows a password, or a value that came from ``${file:…}``
    or ``${env:…}``. Only the attributes themselves hold them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    SerializerFunctionWrapHandler,
    StringConstraints,
    field_serializer,
    model_serializer,
)

from supervisor.settings.durations import Seconds
from supervisor.settings.masking import EMBEDDED, MASK, mask_redis_url, mask_references

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
SCHEDULE_ID = r"^[A-Za-z0-9._:/-]{1,200}$"
MODULE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"

QueueName = Annotated[str, StringConstraints(pattern=NAME)]
PoolName = Annotated[str, StringConstraints(pattern=NAME)]
ScheduleId = Annotated[str, StringConstraints(pattern=SCHEDULE_ID)]
ModuleName = Annotated[str, StringConstraints(pattern=MODULE)]

Path = tuple[str | int, ...]
"""Where a setting is in the tree: ``("workers", "io", "queues", 0)``."""


def _key(field: str) -> str:
    return field.removesuffix("_s")


class _Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=_key, populate_by_name=True, use_attribute_docstrings=True
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # Values may be secrets: `tenure config show` prints them masked.
        for name in sorted(self.model_fields_set):
            yield name, ...


class Fsync(StrEnum):
    """When the embedded server writes to disk."""

    ALWAYS = "always"
    EVERYSEC = "everysec"


class RedisSettings(_Section):
    """Where Redis is, and how to speak to it."""

    url: SecretStr = SecretStr(EMBEDDED)
    """``embedded``, or redis://, rediss:// or unix://. A secret, because it may hold a password."""

    username: str | None = None
    """ACL user; overrides the one in the URL."""

    password: SecretStr | None = None
    """Password; overrides the one in the URL. Use ${file:/run/secrets/redis} or ${env:NAME}."""

    connect_timeout_s: Seconds = Field(default=2.0, ge=0.05, le=30)
    """How long to wait for a connection."""

    command_timeout_s: Seconds = Field(default=2.0, ge=0.05, le=30)
    """How long to wait for a reply. The election has its own, shorter one."""

    tls_ca_file: str | None = None
    """CA certificates for rediss://; default: those of the system."""

    tls_cert_file: str | None = None
    """Client certificate for rediss://."""

    tls_key_file: str | None = None
    """Key of the client certificate."""

    fsync: Fsync = Fsync.ALWAYS
    """Embedded server only: ``always`` loses nothing, ``everysec`` up to one second when the machine dies."""

    allow_eviction: bool = False
    """Start although maxmemory-policy may evict keys. Runs can then vanish."""

    @field_serializer("url")
    def _mask_url(self, url: SecretStr) -> str:
        return mask_redis_url(url.get_secret_value())

    @field_serializer("password")
    def _mask_password(self, password: SecretStr | None) -> str | None:
        return None if password is None else MASK


class ElectionSettings(_Section):
    """How the replicas elect one scheduler.

    Must hold: ``renew_period + 2 * renew_timeout + margin <= lease_duration`` and
    ``renew_period <= lease_duration / 3``, with margin = max(100 ms, 10 % of lease_duration).
    """

    lease_duration_s: Seconds = Field(default=5.0, ge=1, le=300)
    """How long a dead leader blocks the others. Shorter: faster take-over after a crash."""

    renew_period_s: Seconds = Field(default=1.0, gt=0, le=100)
    """Time between two renewals. Each is one Redis round trip."""

    renew_timeout_s: Seconds = Field(default=0.75, gt=0, le=30)
    """How long one renewal may take before it is tried again; at most renew_period."""

    @property
    def margin_s(self) -> float:
        """How long before its expiry in Redis a holder stops trusting its lease."""
        return max(0.1, 0.1 * self.lease_duration_s)


class WorkerKind(StrEnum):
    """Which jobs a pool runs."""

    ASYNC = "async"
    SYNC = "sync"


class PoolSettings(_Section):
    """One pool of worker processes."""

    kind: WorkerKind
    """``async`` runs coroutine jobs, many at once; ``sync`` runs plain functions, one at a time."""

    processes: int = Field(default=1, ge=1, le=64)
    """How many processes."""

    concurrency: int = Field(default=50, ge=1, le=200)
    """Async pools: how many runs at once in each process. Sync pools ignore it."""

    queues: tuple[QueueName, ...] = Field(default=("default",), min_length=1, max_length=32)
    """Which queues it takes runs from."""


class ScheduleSettings(_Section):
    """One schedule. Exactly one of ``every`` and ``cron``."""

    job: str
    """Name of a job that a module listed under ``jobs`` registers."""

    every_s: Seconds | None = Field(default=None, ge=0.1)
    """Interval. Anchored to 1970-01-01T00:00Z, so it neither drifts nor restarts its phase."""

    cron: str | None = None
    """Five fields: minute hour day-of-month month day-of-week."""

    timezone: str = "UTC"
    """IANA zone that ``cron`` is read in."""

    missed: Literal["latest"] = "latest"
    """What to do about due times that passed while nobody led: run the latest one."""

    overlap: Literal["skip", "allow"] = "skip"
    """Whether a due run is skipped while an earlier one of the same schedule is unfinished."""

    queue: QueueName | None = None
    """Queue; default: the job's."""

    priority: Literal["high", "normal", "low"] | None = None
    """Priority; default: the job's."""

    args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the job, by name. They lie in Redis with every run, so let a job read its secrets itself."""

    timeout_s: Seconds | None = Field(default=None, gt=0)
    """Hard timeout of a run; default: the job's."""

    description: str = ""
    """For people; shown by ``tenure schedule list``."""


class QueueSettings(_Section):
    """What queues keep, and how worker sessions are judged. Must be equal on all replicas."""

    session_lease_s: Seconds = Field(default=15.0, ge=1, le=600)
    """How long a worker process of a vanished replica keeps its runs."""

    beat_period_s: Seconds = Field(default=3.0, ge=0.2, le=60)
    """Time between two session beats; at most a third of session_lease."""

    history: int = Field(default=10_000, ge=0, le=1_000_000)
    """How many finished runs each queue remembers."""

    dead: int = Field(default=10_000, ge=1, le=1_000_000)
    """How many dead runs each queue keeps."""


class SupervisionSettings(_Section):
    """How children are started, watched and stopped."""

    grace_s: Seconds = Field(default=20.0, ge=0, le=3600)
    """How long running jobs may go on after the first SIGTERM. The tree is gone at most 3.5 s later."""

    boot_timeout_s: Seconds = Field(default=30.0, ge=1, le=600)
    """How long a child may take from fork to ready."""

    hang_timeout_s: Seconds = Field(default=15.0, ge=1, le=600)
    """How long the web and worker loops may go without a beat outside a job's deadline."""

    backoff_max_s: Seconds = Field(default=30.0, ge=0.1, le=600)
    """Longest pause before a child that keeps dying is started again."""


class WebSettings(_Section):
    """The HTTP endpoint: health, metrics, status."""

    host: str = "127.0.0.1"
    """Address to bind. ``0.0.0.0`` in a container."""

    port: int = Field(default=8080, ge=0, le=65535)
    """Port to bind; 0 lets the kernel choose, and the log says which."""


class LogSettings(_Section):
    """What the log looks like."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is written."""

    format: Literal["auto", "json", "console"] = "auto"
    """``auto``: readable on a terminal, JSON lines otherwise."""


class Settings(_Section):
    """The whole configuration."""

    version: int = Field(default=1, ge=1, le=1)
    """Version of this format."""

    cluster: str = Field(default="default", pattern=NAME)
    """Replicas with the same cluster and Redis elect one scheduler together."""

    replica: str | None = Field(default=None, pattern=NAME)
    """Name of this replica in logs and in the election; default: the host's name."""

    data_dir: str = Field(default=".tenure", min_length=1)
    """Directory for the embedded server's data; made if absent."""

    redis: RedisSettings = RedisSettings()
    """Where Redis is, and how to speak to it."""

    election: ElectionSettings = ElectionSettings()
    """How the replicas elect one scheduler."""

    workers: dict[PoolName, PoolSettings] = Field(
        default_factory=lambda: {
            "io": PoolSettings(kind=WorkerKind.ASYNC),
            "cpu": PoolSettings(kind=WorkerKind.SYNC, processes=2, queues=("default", "shell")),
        },
        max_length=32,
    )
    """Worker pools by name. Naming any pool in a file replaces these two; ``{}``: this replica runs no jobs."""

    jobs: tuple[ModuleName, ...] = Field(default=(), max_length=1000)
    """Modules to import at start; their ``@job`` functions become runnable."""

    schedules: dict[ScheduleId, ScheduleSettings] = Field(default_factory=dict, max_length=10_000)
    """Schedules by id."""

    queues: QueueSettings = QueueSettings()
    """What queues keep, and how worker sessions are judged. Must be equal on all replicas."""

    supervision: SupervisionSettings = SupervisionSettings()
    """How children are started, watched and stopped."""

    web: WebSettings = WebSettings()
    """The HTTP endpoint: health, metrics, status."""

    log: LogSettings = LogSettings()
    """What the log looks like."""

    _references: dict[Path, str] = PrivateAttr(default_factory=dict)

    @property
    def references(self) -> Mapping[Path, str]:
        """The settings whose value came from ``${file:…}`` or ``${env:…}``: path to the text as written."""
        return dict(self._references)

    def with_references(self, references: Mapping[Path, str]) -> Settings:
        """Return these settings, knowing which of their values must never be shown."""
        copy = self.model_copy()
        copy._references = dict(references)  # noqa: SLF001 - a copy of our own class
        return copy

    @model_serializer(mode="wrap")
    def _mask(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Mask every dump, so that nobody has to remember to."""
        data: dict[str, Any] = handler(self)
        return mask_references(data, self._references)
