"""Rules between settings, beyond the range of each.

Every rule is a function from settings to the ways they break it; a violation names the
settings that take part, so that the loader can name the place of each.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from pydantic import SecretStr

from supervisor.core import features
from supervisor.core.durations import format_duration
from supervisor.core.network import is_loopback
from supervisor.core.signing import WEBHOOK_SECRET_CHARS_MIN
from supervisor.core.supervision.shutdown import BOUND_AFTER_GRACE_NS
from supervisor.core.units import SECOND_NS
from supervisor.settings.base import Path, Section, Violation
from supervisor.settings.masking import EMBEDDED, MASK
from supervisor.settings.schedules.calendars import calendar_faults, faults_of_calendars
from supervisor.settings.schedules.checks import faults_of_checks
from supervisor.settings.schedules.rules import faults_of_set
from supervisor.settings.sections.cloudforet import Bridge
from supervisor.settings.sections.models import Durability, RedisSettings, Settings
from supervisor.settings.sections.pipeline import WebhookSettings
from supervisor.settings.sections.plugins import broken_rules
from supervisor.settings.sections.redis_url import RedisUrlError, Topology, parse_redis_url
from supervisor.settings.sections.shell import broken_destinations
from supervisor.settings.sections.web import faults_of_commands

READABLE = (
    "would be readable on the way to another machine",
    "write https://, or have requests signed by a secret instead, which is never sent",
)
MASKED = ("is the mask of a secret in printed settings", "put the secret back, or use ${file:…}")
_CREDENTIAL = re.compile(r"(?i)auth|cookie|token|key|secret|pass|credential")
_TLS = ("tls_ca_file", "tls_cert_file", "tls_key_file")
_EPSILON = 1e-9  # durations are whole milliseconds; their sums as floats are not exact


def violations(settings: Settings) -> Iterator[Violation]:
    """Yield every broken rule."""
    own = (_election, _redis, _queues, _supervision, _bridges, _packages, _features, _pipeline)
    for rule in own:
        yield from rule(settings)
    yield from faults_of_set(settings.schedules, lease_s=settings.election.lease_duration_s)
    yield from faults_of_calendars(settings.calendars)
    for name, schedule in settings.schedules.items():
        yield from calendar_faults(("schedules", name), schedule, settings.calendars)
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
    remedy = f"at most {format_duration(math.floor(election.lease_duration_s * 1000 / 3) / 1000)}"
    yield from _too_long("election", election, period, lease, part=3, remedy=remedy)
    remedy = "shorten it: a renewal must end before the next is due"
    yield from _too_long("election", election, timeout, period, part=1, remedy=remedy)
    if settings.has_presence:
        remedy = "shorten it, or set election.presence: false: the end of the lease would come first"
        yield from _too_long("election", election, "presence_poll", lease, part=2, remedy=remedy)


_PARTS = {1: "", 2: "half of ", 3: "a third of "}


def _too_long(name: str, section: Section, key: str, other: str, *, part: int, remedy: str) -> Iterator[Violation]:
    """Yield that a duration is longer than a part of another one in its section."""
    value_s, whole_s = getattr(section, f"{key}_s"), getattr(section, f"{other}_s")
    if value_s > whole_s / part + _EPSILON:
        message = f"{format_duration(value_s)} is more than {_PARTS[part]}{other} ({format_duration(whole_s)})"
        yield Violation(((name, key), (name, other)), message, remedy)


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
            yield Violation((("redis", name),), *MASKED)
    yield from _half(("redis",), redis, "tls_cert_file", "tls_key_file")
    if url == EMBEDDED:
        yield from _durability(settings, "the embedded server has no replica")
    elif MASK in url:
        yield Violation((("redis", "url"),), *MASKED)
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
        paths = (("redis", "durability_timeout"), ("election", "renew_timeout"))
        limit = format_duration(election.renew_timeout_s)
        message = f"{format_duration(redis.durability_timeout_s)} is not below election.renew_timeout ({limit})"
        yield Violation(paths, message, "shorten it: the grant of a lease waits for the replica within renew_timeout")


def _queues(settings: Settings) -> Iterator[Violation]:
    remedy = "a worker must be able to miss two beats and keep its runs; shorten it"
    yield from _too_long("queues", settings.queues, "beat_period", "session_lease", part=3, remedy=remedy)
    for name, pool in settings.workers.items():
        yield from _twice(("workers", name, "queues"), pool.queues)
    yield from _twice(("jobs",), settings.jobs)


def _twice(path: Path, entries: Sequence[str]) -> Iterator[Violation]:
    for index, entry in enumerate(entries):
        if entry in entries[:index]:
            yield Violation(((*path, index),), f"{entry!r} is listed twice", "remove one")


def _half(path: Path, section: Section, cert: str, key: str) -> Iterator[Violation]:
    """Yield that a client certificate stands without its key, or the other way round."""
    if (getattr(section, cert) is None) != (getattr(section, key) is None):
        message = f"a client certificate needs both {cert} and {key}"
        yield Violation(((*path, cert), (*path, key)), message, "set the other one too")


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
        yield Violation((("features", *fault.path),), fault.message, fault.remedy)


JOBS_MODULE = "supervisor.compat.cloudforet.jobs"
_NO_SERVICE = sys.stdlib_module_names | {"supervisor", "tenure", "jobs"}
_NO_SERVICE |= {"pip", "setuptools", "pkg_resources", "wheel", "uv"}


def _packages(settings: Settings) -> Iterator[Violation]:
    """Yield packages that are no service's: those of Python or its tools are not there to be called."""
    for index, package in enumerate(settings.cloudforet.packages):
        if package.partition(".")[0] in _NO_SERVICE:
            yield Violation(
                (("cloudforet", "packages", index),),
                f"{package} is no package of a service, and a run may call what lies in these packages",
                "name the service's own package, e.g. spaceone.identity; in Cloudforet's files: packages: [NAME]",
            )


def _bridges(settings: Settings) -> Iterator[Violation]:
    """Yield why a bridge could not work."""
    is_cluster = "+cluster://" in settings.redis.url.get_secret_value()
    lists: dict[str, str] = {}
    for name, queue in settings.cloudforet.queues.items():
        if queue.bridge is Bridge.NONE:
            continue
        path = ("cloudforet", "queues", name, "bridge")
        if is_cluster:
            yield Violation(
                (path, ("redis", "url")),
                f"{queue.bridge.value} is impossible in a Redis Cluster: their list and our keys have other slots",
                "use a Redis of its own for the migration, or remove the bridge",
            )
        if JOBS_MODULE not in settings.jobs:
            yield Violation((path,), f"{queue.bridge.value} needs the jobs of {JOBS_MODULE}", "list it under jobs")
        channel = settings.cloudforet.channel_of(name)
        if channel in lists:
            yield Violation((path,), f"has the list {channel!r} of queue {lists[channel]}", "give each its own channel")
        lists[channel] = name
        if channel.startswith("{tenure:"):
            yield Violation((path,), f"has the list {channel!r}, which is a key of ours", "name SpaceONE's list")


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")  # a token of RFC 9110
_HEADER_VALUE = re.compile(r"[^\0\r\n]{1,4096}\Z")


def _pipeline(settings: Settings) -> Iterator[Violation]:
    """Yield every broken rule of profiles and webhooks."""
    for name, profile in settings.profiles.items():
        path: Path = ("profiles", name)
        if profile.retry.base_s > profile.retry.cap_s:
            yield Violation(((*path, "retry", "base"), (*path, "retry", "cap")), "is more than cap", "shorten it")
        hooks = profile.hooks
        for index, entry in enumerate(hooks.enabled):
            if entry.endswith("*"):
                yield Violation(((*path, "hooks", "enabled", index),), "enables no hook by its name", "list each one")
        yield from _twice((*path, "hooks", "enabled"), hooks.enabled)
        yield from faults_of_checks((*path, "hooks"), hooks)
    for name, webhook in settings.webhooks.items():
        yield from _webhook(("webhooks", name), webhook)


def _webhook(path: Path, webhook: WebhookSettings) -> Iterator[Violation]:
    url = webhook.url.get_secret_value()
    fault = _fault_of_url(url)
    if fault:
        yield Violation(((*path, "url"),), fault, "write http:// or https:// with a host; secrets go into headers")
    is_readable = not fault and is_readable_on_the_way(url)
    if wrong := secret_fault(webhook.secret):
        yield Violation(((*path, "secret"),), *wrong)
    for name, value in webhook.headers.items():
        place: Path = (*path, "headers", name)
        if not _HEADER_NAME.match(name):
            yield Violation((place,), "cannot be the name of a header", "use letters, digits and -")
        elif value.get_secret_value() == MASK:
            yield Violation((place,), *MASKED)
        elif not _HEADER_VALUE.match(value.get_secret_value()):
            yield Violation((place,), "holds no value that a header can have", "write 1 to 4096 characters on one line")
        elif is_readable and is_credential(name):
            yield Violation((place, (*path, "url")), *READABLE)
    yield from _half(path, webhook, "cert_file", "key_file")
    is_tls = url.startswith("https://")
    for key in ("ca_file", "cert_file"):
        if getattr(webhook, key) is not None and not is_tls:
            yield Violation(((*path, key), (*path, "url")), "is used by https:// only", "use https://")


def _fault_of_url(url: str) -> str:
    """Return the fault of ``url``, which is not quoted: a part that does not belong into it may be a secret."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "is no URL"
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return "is no http URL"
    if MASK in url:
        return "holds the mask of a secret in printed settings"
    return "holds a user or password" if parts.username is not None or parts.password is not None else ""


def is_credential(header: str) -> bool:
    """Return whether a header of this name is meant to prove who sends it."""
    return _CREDENTIAL.search(header) is not None


def is_readable_on_the_way(url: str) -> bool:
    """Return whether data sent to ``url`` leave this machine without TLS."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def secret_fault(secret: SecretStr | None) -> tuple[str, str] | None:
    """Return the fault of a secret that signs, and the remedy; None without one."""
    if secret is None:
        return None
    if secret.get_secret_value() == MASK:
        return MASKED
    if len(secret.get_secret_value()) < WEBHOOK_SECRET_CHARS_MIN:
        return f"has fewer than {WEBHOOK_SECRET_CHARS_MIN} characters", "make it random: openssl rand -hex 32"
    return None
