"""Rules between settings, beyond the range of each.

Every rule is a function from settings to the ways they break it; a violation names the
settings that take part, so that the loader can name the place of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from supervisor.core import features
from supervisor.core.supervision.shutdown import BOUND_AFTER_GRACE_NS
from supervisor.core.units import SECOND_NS
from supervisor.settings.masking import EMBEDDED, MASK
from supervisor.settings.rules.cloudforet_rules import bridge_violations, package_violations
from supervisor.settings.rules.pipeline_rules import faults_of_pipeline
from supervisor.settings.schedules.rules import faults_of_set
from supervisor.settings.sections.commands import faults_of_commands
from supervisor.settings.sections.durations import format_duration
from supervisor.settings.sections.job_references import broken_destinations
from supervisor.settings.sections.models import Durability, RedisSettings, Settings
from supervisor.settings.sections.plugins import broken_rules
from supervisor.settings.sections.redis_url import RedisUrlError, Topology, parse_redis_url
from supervisor.settings.sections.violation import Violation

_TLS = ("tls_ca_file", "tls_cert_file", "tls_key_file")
_EPSILON = 1e-9  # durations are whole milliseconds; their sums as floats are not exact


def violations(settings: Settings) -> Iterator[Violation]:
    """Yield every broken rule."""
    yield from _election(settings)
    yield from _redis(settings)
    yield from _queues(settings)
    yield from _pools(settings)
    yield from _supervision(settings)
    yield from _jobs(settings)
    yield from bridge_violations(settings)
    yield from package_violations(settings)
    yield from _features(settings)
    yield from faults_of_pipeline(settings)
    yield from faults_of_set(settings.schedules, lease_s=settings.election.lease_duration_s)
    yield from broken_rules(settings.plugins)
    yield from faults_of_commands(settings.commands)
    yield from broken_destinations(settings.job_destinations)


def _election(settings: Settings) -> Iterator[Violation]:
    election = settings.election
    lease, period, timeout = ("lease_duration", "renew_period", "renew_timeout")
    needed = election.renew_period_s + 2 * election.renew_timeout_s + election.margin_s
    if needed > election.lease_duration_s + _EPSILON:
        yield Violation(
            (("election", lease), ("election", period), ("election", timeout)),
            f"{format_duration(election.lease_duration_s)} is too short: renew_period + 2 * renew_timeout + margin "
            f"(max of 100ms and a tenth of lease_duration) is {format_duration(_ceil_ms(needed))}",
            "a leader must be able to miss one renewal; lengthen lease_duration or shorten the others",
        )
    if election.renew_period_s > election.lease_duration_s / 3 + _EPSILON:
        yield Violation(
            (("election", period), ("election", lease)),
            f"{format_duration(election.renew_period_s)} is more than a third of lease_duration "
            f"({format_duration(election.lease_duration_s)})",
            f"at most {format_duration(math.floor(election.lease_duration_s * 1000 / 3) / 1000)}",
        )
    if election.renew_timeout_s > election.renew_period_s + _EPSILON:
        yield Violation(
            (("election", timeout), ("election", period)),
            f"{format_duration(election.renew_timeout_s)} is more than renew_period "
            f"({format_duration(election.renew_period_s)})",
            "shorten it: a renewal must end before the next is due",
        )
    if settings.has_presence and 2 * election.presence_poll_s > election.lease_duration_s + _EPSILON:
        yield Violation(
            (("election", "presence_poll"), ("election", lease)),
            f"{format_duration(election.presence_poll_s)} is more than half of lease_duration "
            f"({format_duration(election.lease_duration_s)})",
            "shorten it, or set election.presence: false: the end of the lease would come first",
        )


def _ceil_ms(seconds: float) -> float:
    return math.ceil(seconds * 1000 - _EPSILON) / 1000


def _redis(settings: Settings) -> Iterator[Violation]:
    redis = settings.redis
    url = redis.url.get_secret_value()
    for name in ("username", "password", "sentinel_username", "sentinel_password", *_TLS):
        if url == EMBEDDED and getattr(redis, name) is not None:
            yield Violation((("redis", name),), "is not used by the embedded server", "remove it, or set redis.url")
    for name, secret in (("password", redis.password), ("sentinel_password", redis.sentinel_password)):
        if secret is not None and secret.get_secret_value() == MASK:
            yield Violation((("redis", name),), *_MASKED)
    if (redis.tls_cert_file is None) != (redis.tls_key_file is None):
        yield Violation(
            (("redis", "tls_cert_file"), ("redis", "tls_key_file")),
            "a client certificate needs both tls_cert_file and tls_key_file",
            "set the other one too",
        )
    if url == EMBEDDED:
        yield from _durability(settings, "the embedded server has no replica")
    elif MASK in url:
        yield Violation((("redis", "url"),), *_MASKED)
    else:
        yield from _url(redis, url)
        yield from _durability(settings)


def _url(redis: RedisSettings, url: str) -> Iterator[Violation]:
    try:
        parsed = parse_redis_url(url)
    except RedisUrlError as error:
        yield Violation((("redis", "url"),), error.fault, error.remedy)
        return
    for name in _TLS if not parsed.is_tls else ():
        if getattr(redis, name) is not None:
            yield Violation((("redis", name), ("redis", "url")), "is used by rediss:// only", "use rediss://")
    for name in ("sentinel_username", "sentinel_password") if parsed.topology is not Topology.SENTINEL else ():
        if getattr(redis, name) is not None:
            yield Violation(
                (("redis", name), ("redis", "url")),
                "is used with sentinels only",
                "remove it, or use redis+sentinel://",
            )


def _durability(settings: Settings, obstacle: str = "") -> Iterator[Violation]:
    redis, election = settings.redis, settings.election
    if redis.durability is Durability.NONE:
        return
    if obstacle:
        yield Violation((("redis", "durability"), ("redis", "url")), obstacle, "set redis.url, or durability: none")
    if redis.durability_timeout_s >= election.renew_timeout_s:
        yield Violation(
            (("redis", "durability_timeout"), ("election", "renew_timeout")),
            f"{format_duration(redis.durability_timeout_s)} is not below election.renew_timeout "
            f"({format_duration(election.renew_timeout_s)})",
            "shorten it: the grant of a lease waits for the replica within renew_timeout",
        )


_MASKED = ("is the mask of a secret in printed settings", "put the secret back, or use ${file:…}")


def _queues(settings: Settings) -> Iterator[Violation]:
    queues = settings.queues
    if queues.beat_period_s > queues.session_lease_s / 3 + _EPSILON:
        yield Violation(
            (("queues", "beat_period"), ("queues", "session_lease")),
            f"{format_duration(queues.beat_period_s)} is more than a third of session_lease "
            f"({format_duration(queues.session_lease_s)})",
            "a worker must be able to miss two beats and keep its runs; shorten it",
        )


def _pools(settings: Settings) -> Iterator[Violation]:
    for name, pool in settings.workers.items():
        for index, queue in enumerate(pool.queues):
            if queue in pool.queues[:index]:
                path = ("workers", name, "queues", index)
                yield Violation((path,), f"{queue!r} is listed twice", "remove one")


def _supervision(settings: Settings) -> Iterator[Violation]:
    supervision = settings.supervision
    if supervision.stop_timeout_s is None:
        return
    needed_s = supervision.grace_s + BOUND_AFTER_GRACE_NS / SECOND_NS
    if needed_s > supervision.stop_timeout_s + _EPSILON:
        yield Violation(
            (("supervision", "stop_timeout"), ("supervision", "grace")),
            f"{format_duration(supervision.stop_timeout_s)} is too short: a stop takes up to grace + "
            f"{format_duration(BOUND_AFTER_GRACE_NS / SECOND_NS)}, which is {format_duration(needed_s)}",
            "jobs would be killed in the middle; shorten grace, or let the tree be waited for longer",
        )


def _features(settings: Settings) -> Iterator[Violation]:
    for fault in features.faults(settings.features):
        yield Violation((("features", fault.name),), fault.message, fault.remedy)


def _jobs(settings: Settings) -> Iterator[Violation]:
    for index, module in enumerate(settings.jobs):
        if module in settings.jobs[:index]:
            yield Violation((("jobs", index),), f"{module!r} is listed twice", "remove one")
