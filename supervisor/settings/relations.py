"""What must hold between settings, beyond the range of each.

Every rule is a function from settings to the ways they break it; a violation names the
settings that take part, so that the loader can say where each was written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from supervisor.core.cron import CronError, compile_cron
from supervisor.core.zones import UnknownZoneError, zone
from supervisor.settings.durations import format_duration
from supervisor.settings.masking import EMBEDDED, MASK
from supervisor.settings.models import Path, RedisSettings, ScheduleSettings, Settings

_SCHEMES = ("redis", "rediss", "unix")
_HOST = re.compile(r"[A-Za-z0-9._:%-]+\Z")
_EPSILON = 1e-9  # durations are whole milliseconds; their sums as floats are not exact


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule. The first path is the one a person is sent to, unless only others were written."""

    paths: tuple[Path, ...]
    message: str
    remedy: str = ""


def violations(settings: Settings) -> Iterator[Violation]:
    """Yield every broken rule."""
    yield from _election(settings)
    yield from _redis(settings.redis)
    yield from _queues(settings)
    yield from _pools(settings)
    yield from _jobs(settings)
    for name, schedule in settings.schedules.items():
        yield from _schedule(("schedules", name), schedule)


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


def _ceil_ms(seconds: float) -> float:
    return math.ceil(seconds * 1000 - _EPSILON) / 1000


def _redis(redis: RedisSettings) -> Iterator[Violation]:
    url = redis.url.get_secret_value()
    for name in ("username", "password", "tls_ca_file", "tls_cert_file", "tls_key_file"):
        if url == EMBEDDED and getattr(redis, name) is not None:
            yield Violation((("redis", name),), "is not used by the embedded server", "remove it, or set redis.url")
    if redis.password is not None and redis.password.get_secret_value() == MASK:
        yield Violation((("redis", "password"),), *_MASKED)
    if (redis.tls_cert_file is None) != (redis.tls_key_file is None):
        yield Violation(
            (("redis", "tls_cert_file"), ("redis", "tls_key_file")),
            "a client certificate needs both tls_cert_file and tls_key_file",
            "set the other one too",
        )
    if url == EMBEDDED:
        return
    if MASK in url:
        yield Violation((("redis", "url"),), *_MASKED)
    elif fault := _url_fault(url):
        yield Violation((("redis", "url"),), *fault)
    elif not url.startswith("rediss://"):
        for name in ("tls_ca_file", "tls_cert_file", "tls_key_file"):
            if getattr(redis, name) is not None:
                yield Violation((("redis", name), ("redis", "url")), "is used by rediss:// only", "use rediss://")


_MASKED = ("is the mask that stands for a secret in printed settings", "put the secret back, or use ${file:…}")


def _url_fault(url: str) -> tuple[str, str] | None:
    """Return what is wrong with a URL and the remedy, without ever quoting what may be its password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is not a URL", "percent-encode special characters of the password, e.g. %2F for /"
    if parts.scheme not in _SCHEMES or not url[len(parts.scheme) :].startswith("://"):
        return "must be embedded, or start with redis://, rediss:// or unix://", "e.g. redis://redis.example:6379/0"
    if parts.fragment or "#" in url:
        return "holds a #", "percent-encode special characters of the password: %23 for #"
    if parts.scheme == "unix":
        if parts.path in {"", "/"}:
            return "names no socket", "e.g. unix:///run/redis/redis.sock"
        return _query_fault(parts.query)
    if not parts.hostname or not _HOST.match(parts.hostname) or port == 0:
        return "names no host", "e.g. redis://redis.example:6379/0; percent-encode special characters of the password"
    if not re.fullmatch(r"(/[0-9]{0,5})?", parts.path):
        return "must end in /N, the number of a database", "e.g. redis://redis.example:6379/0"
    return _query_fault(parts.query)


def _query_fault(query: str) -> tuple[str, str] | None:
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name != "db" or not value.isdecimal():
            return "takes nothing but ?db=N after its path", "everything else is a setting under redis:"
    return None


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


def _jobs(settings: Settings) -> Iterator[Violation]:
    for index, module in enumerate(settings.jobs):
        if module in settings.jobs[:index]:
            yield Violation((("jobs", index),), f"{module!r} is listed twice", "remove one")


def _schedule(path: Path, schedule: ScheduleSettings) -> Iterator[Violation]:
    every, cron, timezone = ((*path, "every"), (*path, "cron"), (*path, "timezone"))
    if schedule.every_s is None and schedule.cron is None:
        yield Violation((path, every, cron), "has neither every nor cron", "add one, e.g. every: 10m")
    if schedule.every_s is not None and schedule.cron is not None:
        yield Violation((cron, every), "cannot stand beside every", "remove one of them")
    try:
        zone(schedule.timezone)
    except UnknownZoneError as error:
        yield Violation((timezone,), *_split(str(error)))
        return
    if schedule.every_s is not None and schedule.timezone != "UTC":
        yield Violation((timezone,), "has no effect on every, which counts from 1970-01-01T00:00Z", "use cron")
    if schedule.cron is not None:
        try:
            compile_cron(schedule.cron, schedule.timezone)
        except CronError as error:
            yield Violation((cron,), *_split(str(error)))


def _split(message: str) -> tuple[str, str]:
    text, _, remedy = message.rpartition("; ")
    return (text, remedy) if text else (message, "")
