"""The values that travel: envelopes, schedules, outcomes. Wire format v1 is their JSON.

Envelopes and definitions are written by one version and read by another during a
rolling update, so a field may be added with a default, and none may change meaning.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from supervisor.core.retry import Retry

PAYLOAD_BYTES_MAX = 64 * 1024
FIRE_BATCH_MAX = 250
PRIORITIES = {"high": 0, "normal": 1, "low": 2}


class Kind(StrEnum):
    """Which pool can run a job."""

    ASYNC = "async"  # a coroutine function
    SYNC = "sync"  # a plain function, run in the main thread of its process


class Outcome(StrEnum):
    """How an attempt ended, as the worker reports it and history keeps it."""

    OK = "ok"
    RETRY = "retry"  # failed, another attempt is due later
    DEAD = "dead"  # given up, kept for inspection
    GIVEBACK = "giveback"  # not started: back to the head of the queue, nothing charged


class Release(StrEnum):
    """Why runs go back to their queue without an acknowledgement by their worker."""

    UNSTARTED = "unstarted"  # fetched, never begun: nothing charged
    INTERRUPTED = "interrupted"  # a stop or the loss of a node cut it off: no attempt charged
    CRASHED = "crashed"  # it took its process down, or overran its hard deadline: a crash is charged
    SUSPECT = "suspect"  # one of several in a process that died: run alone next, nothing charged


class Template(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run of a job needs, apart from its identity. Shared by schedules and producers."""

    job: str
    kind: Kind
    queue: str = "default"
    priority: int = 1  # 0 high, 1 normal, 2 low
    args: dict[str, Any] = {}
    retry: Retry = Retry()
    timeout_s: float = 300.0  # hard: the process is killed
    soft_timeout_s: float | None = None  # the job is asked to stop; None: see soft_after_s
    max_crashes: int = 3
    result_ttl_s: float = 86_400.0
    at_most_once: bool = False

    @property
    def soft_after_s(self) -> float:
        """Seconds after which the job is asked to stop, never later than ``timeout_s``.

        By default at 90 % of ``timeout_s`` and at least one second before it, so that there is
        time to clean up; for timeouts under two seconds, at half of it.
        """
        if self.soft_timeout_s is not None:
            return min(self.soft_timeout_s, self.timeout_s)
        return min(0.9 * self.timeout_s, max(self.timeout_s - 1.0, 0.5 * self.timeout_s))


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run, as it lies in the queue. Immutable: counters live beside it."""

    v: int = 1
    id: str
    template: Template
    enqueued_ms: int = 0  # wall clock of the producer, for people
    schedule: str | None = None
    nominal_ms: int | None = None  # when the schedule says it was due


class ScheduleDef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as Redis keeps it: enough to fire without importing any job.

    Exactly one of ``every_ms`` and ``cron`` is set; the loader refuses anything else.
    """

    v: int = 1
    id: str
    template: Template
    every_ms: int | None = None
    phase_ms: int = 0
    cron: str | None = None
    timezone: str = "UTC"
    missed: str = "latest"
    overlap: str = "skip"  # skip | allow
    max_running: int = 1
    description: str = ""


def scheduled_run_id(schedule: str, nominal_ms: int) -> str:
    """Return the identity of the run that ``schedule`` owes for ``nominal_ms``: the same on every replica."""
    return f"{schedule}@{nominal_ms}"


def fresh_run_id(wall_ms: int, entropy: bytes) -> str:
    """Return a UUIDv7 (RFC 9562, 5.7): sorts by time, and 74 random bits tell runs of one millisecond apart.

    Args:
        wall_ms: the producer's wall clock, milliseconds since 1970.
        entropy: ten random bytes, handed in because the core draws nothing.
    """
    assert len(entropy) == 10
    bits = int.from_bytes(entropy, "big")
    value = (wall_ms & (1 << 48) - 1) << 80 | 0x7 << 76 | (bits >> 62 & 0xFFF) << 64 | 0b10 << 62 | bits & (1 << 62) - 1
    return str(UUID(int=value))
