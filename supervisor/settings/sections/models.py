"""Every setting, with its default and its range. Frozen once built.

Field names end in their unit; the key that people write has no unit, because the value
carries one: ``lease_duration_s`` is ``lease_duration: 5s``. Relations between settings
are in rules/cross_rules.py; the docstring under a field is its documentation everywhere.

Guarantees
    Neither ``repr`` nor a dump shows a password, or a value that came from ``${file:…}``
    or ``${env:…}``. Only the attributes themselves hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, PrivateAttr, SecretStr, SerializerFunctionWrapHandler, field_serializer, model_serializer

from supervisor.core.election.lease import DataLoss
from supervisor.core.features import FAST_CRASH_DETECTION, is_enabled
from supervisor.settings.base import ModuleName, Name, Origins, Path, QueueName, ScheduleId, Seconds, Section
from supervisor.settings.masking import EMBEDDED, MASK, mask_redis_url, mask_references
from supervisor.settings.schedules.settings import (
    CalendarName,
    NamedCalendarSettings,
    SchedulerSettings,
    ScheduleSettings,
)
from supervisor.settings.sections.cloudforet import CloudforetSettings
from supervisor.settings.sections.pipeline import Profiles, Webhooks, default_profiles
from supervisor.settings.sections.plugins import PLUGINS_MAX, PluginSettings
from supervisor.settings.sections.queues import QueueSettings
from supervisor.settings.sections.shell import JobDestinationSettings, JobReferenceSettings, ShellSettings
from supervisor.settings.sections.telemetry import EventSettings, LogSettings, MetricsSettings
from supervisor.settings.sections.web import CommandSettings, WebSettings

CONCURRENCY_MAX = 200
PREFETCH_MAX = 64


class Durability(StrEnum):
    """Acknowledgement required before the lease, a fire or an enqueue counts."""

    NONE = "none"
    REPLICA = "replica"


class RedisSettings(Section):
    """Address of Redis, and options of its connections."""

    url: SecretStr = SecretStr(EMBEDDED)
    """``embedded``; redis://, rediss:// or unix://; redis+sentinel://a:26379,b:26379/master/db or
    redis+cluster://a:6379,b:6379 (rediss+… with TLS). A secret, because it may hold a password."""

    username: str | None = None
    """ACL user; overrides the one in the URL."""

    password: SecretStr | None = None
    """Password; overrides the one in the URL. Use ${file:/run/secrets/redis}, which is read again for each connection,
    or ${env:NAME}."""

    sentinel_username: str | None = None
    """ACL user at the sentinels, if they ask for one."""

    sentinel_password: SecretStr | None = None
    """Password at the sentinels, if they ask for one. It is not that of the master."""

    connect_timeout_s: Seconds = Field(default=2.0, ge=0.05, le=30)
    """How long to wait for a connection."""

    command_timeout_s: Seconds = Field(default=2.0, ge=0.05, le=30)
    """How long to wait for a reply. The election has its own, shorter one."""

    tls_ca_file: str | None = None
    """CA certificates for rediss:// and rediss+…://; default: those of the system."""

    tls_cert_file: str | None = None
    """Client certificate for rediss://."""

    tls_key_file: str | None = None
    """Key of the client certificate."""

    fsync: Literal["always", "everysec"] = "always"
    """Embedded server only: ``always`` loses nothing, ``everysec`` up to one second when the machine dies."""

    memory_mib_max: int = Field(default=1024, ge=16, le=1_048_576)
    """Embedded server only: MiB that it may hold. Then enqueues and fires are refused until runs end or are purged, and
    nothing is dropped."""

    durability: Durability = Durability.NONE
    """``replica``: grants and renewals of the lease, fires and enqueues count once a replica has them (WAIT 1)."""

    durability_timeout_s: Seconds = Field(default=0.1, ge=0.001, le=10)
    """How long to wait for that replica; then the call is made again. Below election.renew_timeout."""

    allow_eviction: bool = False
    """Start although maxmemory-policy may evict keys. Runs can then vanish."""

    @field_serializer("url")
    def _mask_url(self, url: SecretStr) -> str:
        return mask_redis_url(url.get_secret_value())


class ElectionSettings(Section):
    """Election of one scheduler among the replicas.

    Must hold: ``renew_period + 2 * renew_timeout + margin <= lease_duration`` and
    ``renew_period <= lease_duration / 3``, with margin = max(100 ms, 10 % of lease_duration).
    """

    lease_duration_s: Seconds = Field(default=5.0, ge=1, le=300)
    """How long a dead leader blocks the others. Shorter: faster take-over after a crash."""

    renew_period_s: Seconds = Field(default=1.0, gt=0, le=100)
    """Time between two renewals. Each is one Redis round trip."""

    renew_timeout_s: Seconds = Field(default=0.75, gt=0, le=30)
    """How long one renewal may take before it is tried again; at most renew_period."""

    priority: int = Field(default=0, ge=-1000, le=1000)
    """Of replicas that could follow a leader that hands over, the one with the highest goes first."""

    participate: bool = True
    """``false``: this replica only works. It never leads, and shows as no candidate."""

    presence: bool | None = None
    """Notice the death of a leader's process by the end of its connection, long before its lease ends. Unset: as
    with the feature FastCrashDetection, which is off by default."""

    presence_poll_s: Seconds = Field(default=0.5, ge=0.1, le=60)
    """Time between two looks of a standby at whether the leader's connection is there."""

    on_data_loss: DataLoss = DataLoss.RESUME
    """When Redis lost data: ``resume`` from what is left, or ``hold`` all fires until an operator allows them."""

    @property
    def margin_s(self) -> float:
        """Time before its expiry in Redis at which a holder stops trusting its lease."""
        return max(0.1, 0.1 * self.lease_duration_s)


class WorkerKind(StrEnum):
    """Kind of jobs that a pool runs."""

    ASYNC = "async"
    SYNC = "sync"


class PoolSettings(Section):
    """One pool of worker processes."""

    kind: WorkerKind
    """``async`` runs coroutine jobs, many at once; ``sync`` runs plain functions, one at a time."""

    processes: int = Field(default=1, ge=1, le=64)
    """How many processes."""

    concurrency: int = Field(default=50, ge=1, le=CONCURRENCY_MAX)
    """Async pools: how many runs at once in each process. Sync pools ignore it."""

    queues: tuple[QueueName, ...] = Field(default=("default",), min_length=1, max_length=32)
    """Which queues it takes runs from."""

    max_share: dict[QueueName, float] = Field(default_factory=dict, max_length=32)
    """Async pools: the largest part of ``concurrency`` that runs of one queue may hold, above 0 and at most 1."""

    prefetch: int = Field(default=16, ge=1, le=PREFETCH_MAX)
    """Sync pools: how many runs a process may hold while its jobs take less than 5 ms; 1: never more than one."""

    recycle_runs: int | None = Field(default=None, ge=1)
    """Replace a process after about so many runs, its successor first. Unset: never."""

    recycle_growth_mib: int | None = Field(default=None, ge=1)
    """Replace a process that grew by this much since its first run. Unset: never."""

    recycle_age_s: Seconds | None = Field(default=None, ge=1)
    """Replace a process about so long after its start. Unset: never."""


class SupervisionSettings(Section):
    """Start, supervision and stop of child processes."""

    grace_s: Seconds = Field(default=20.0, ge=0, le=3600)
    """How long running jobs may go on after the first SIGTERM. The tree is gone at most 3.5 s later."""

    boot_timeout_s: Seconds = Field(default=30.0, ge=1, le=600)
    """How long a child may take from fork to ready."""

    hang_timeout_s: Seconds = Field(default=15.0, ge=1, le=600)
    """How long the web and worker loops may go without a beat outside a job's deadline."""

    backoff_max_s: Seconds = Field(default=30.0, ge=0.1, le=600)
    """Longest pause before a child that keeps dying is started again."""

    stop_timeout_s: Seconds | None = Field(default=None, ge=1)
    """How long what started the tree waits before it kills it: ``terminationGracePeriodSeconds``, docker's
    stop timeout. Set it beside those, and a grace that does not fit is refused. Unset: not checked."""


class Settings(Section):
    """The whole configuration."""

    version: int = Field(default=1, ge=1, le=1)
    """Version of this format."""

    cluster: Name = "default"
    """Replicas with the same cluster and Redis elect one scheduler together."""

    replica: Name | None = None
    """Name of this replica in logs and in the election; default: the host's name."""

    data_dir: str = Field(default=".tenure", min_length=1)
    """Directory for the embedded server's data; made if absent."""

    redis: RedisSettings = RedisSettings()
    """Address of Redis, and options of its connections."""

    election: ElectionSettings = ElectionSettings()
    """Election of one scheduler among the replicas."""

    workers: dict[Name, PoolSettings] = Field(
        default_factory=lambda: {
            "io": PoolSettings(kind=WorkerKind.ASYNC),
            "cpu": PoolSettings(kind=WorkerKind.SYNC, processes=2, queues=("default", "shell")),
        },
        max_length=32,
    )
    """Worker pools by name. Naming any pool in a file replaces these two; ``{}``: this replica runs no jobs."""

    workers_strict: bool = False
    """Refuse a configuration whose pools do not take the runs of each of its jobs and schedules. False: a warning."""

    jobs: tuple[ModuleName, ...] = Field(default=(), max_length=1000)
    """Modules to import at start; their ``@job`` functions become runnable."""

    plugins: dict[Name, PluginSettings] = Field(default_factory=dict, max_length=PLUGINS_MAX)
    """Plugins by name, run by the jobs ``plugin.run`` and ``plugin.plan``. See docs/plugins.md."""

    profiles: Profiles = Field(default_factory=default_profiles)
    """Policies and hooks by name; a job or a schedule picks one by ``profile``. See docs/pipeline.md."""

    webhooks: Webhooks = Field(default_factory=dict)
    """Hooks that are asked over HTTP, by name."""

    calendars: dict[CalendarName, NamedCalendarSettings] = Field(default_factory=dict, max_length=100)
    """Sets of days by name, which schedules exclude or are due on alone. See docs/schedules.md."""

    schedules: dict[ScheduleId, ScheduleSettings] = Field(default_factory=dict, max_length=100_000)
    """Schedules by id."""

    scheduler: SchedulerSettings = SchedulerSettings()
    """How the leader plans. Must be equal on all replicas."""

    queues: QueueSettings = QueueSettings()
    """What queues keep, and how worker sessions are judged. Must be equal on all replicas."""

    supervision: SupervisionSettings = SupervisionSettings()
    """Start, supervision and stop of child processes."""

    web: WebSettings = WebSettings()
    """The HTTP endpoint: health, metrics, status, events, the API."""

    commands: CommandSettings = CommandSettings()
    """What agents obey: `tenure stop`, `reload`, `worker …`, `leader resign`. See docs/redis-acl.md."""

    shell: ShellSettings = ShellSettings()
    """What commands of ``shell.command`` are started with."""

    job_references: JobReferenceSettings = JobReferenceSettings()
    """References in arguments of jobs (``env:NAME``, ``file:/path``), which a worker resolves."""

    job_destinations: JobDestinationSettings = JobDestinationSettings()
    """Where the HTTP jobs that ship (``http.request``, ``identity.*``) may connect to, beside public addresses."""

    events: EventSettings = EventSettings()
    """Events: leader changes, failures, refusals and stops. See docs/events.md."""

    log: LogSettings = LogSettings()
    """What the log looks like."""

    cloudforet: CloudforetSettings = CloudforetSettings()
    """Services that came from Cloudforet: packages of their classes, token, queues."""

    features: dict[Name, bool] = Field(default_factory=dict, max_length=100)
    """Features to switch on or off by name, such as ``{FastCrashDetection: true}``; AllAlpha and AllBeta set all of
    a stage. ``tenure run --help`` lists them."""

    metrics: MetricsSettings = MetricsSettings()
    """Which metrics there are, and how many series they may have."""

    _references: dict[Path, str] = PrivateAttr(default_factory=dict)
    _deprecated: int = PrivateAttr(default=0)
    _origins: Origins = PrivateAttr(default_factory=Origins)

    @property
    def references(self) -> Mapping[Path, str]:
        """The settings whose value came from ``${file:…}`` or ``${env:…}``: path to the text as written."""
        return dict(self._references)

    @property
    def deprecated(self) -> int:
        """Number of flags that gave these settings under an old name."""
        return self._deprecated

    @property
    def origins(self) -> Origins:
        """Origins of the settings: files, variables, flags."""
        return self._origins

    @property
    def has_presence(self) -> bool:
        """True if leaders show that they live by a connection, and standbys look at it."""
        presence = self.election.presence
        return is_enabled(FAST_CRASH_DETECTION, self.features) if presence is None else presence

    def with_references(
        self, references: Mapping[Path, str], *, deprecated: int = 0, origins: Origins | None = None
    ) -> Settings:
        """Return these settings, knowing which of their values must never be shown, and where they were written."""
        copy = self.model_copy()
        copy._origins = origins or Origins()  # noqa: SLF001 - as below
        copy._deprecated = deprecated  # noqa: SLF001 - as below
        copy._references = dict(references)  # noqa: SLF001 - a copy of our own class
        return copy

    @model_serializer(mode="wrap")
    def _mask(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Mask every dump, so that nobody has to remember to."""
        data: dict[str, Any] = handler(self)
        for plugin in data.get("plugins", {}).values():
            if "command" in plugin:
                plugin["command"] = [*plugin["command"][:1], *[MASK] * len(plugin["command"][1:])]
        return mask_references(data, self._references)
