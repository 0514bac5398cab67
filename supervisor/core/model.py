"""The values that travel: envelopes, schedules, outcomes. Wire format v1 is their JSON.

Envelopes and definitions are written by one version and read by another during a
rolling update, so a field may be added with a default, and none may change meaning.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from supervisor.core.retry import Retry

PAYLOAD_BYTES_MAX = 64 * 1024
ENVELOPE_BYTES = 1024  # room for what a run of a schedule has beside its template: ids, times, cause, neighbours
FIRE_BATCH_MAX = 250
# Checked where JSON is read: whatever lies in Redis, these can be counted with.
Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=4e9)]
Word = Annotated[str, msgspec.Meta(pattern=r"^\S*\Z")]  # acknowledgements have it between spaces
PRIORITIES = {"high": 0, "normal": 1, "low": 2}
RunKey = tuple[str, str]
"""Queue and id of a run: an id names one run of its queue, and says nothing of other queues."""


class Kind(StrEnum):
    """Kind of a job, and of the pools that can run it."""

    ASYNC = "async"  # a coroutine function
    SYNC = "sync"  # a plain function, run in the main thread of its process


class Outcome(StrEnum):
    """Outcome of an attempt, as the worker reports it and history keeps it."""

    OK = "ok"
    RETRY = "retry"  # failed, another attempt is due later
    DEAD = "dead"  # given up, kept for inspection
    AGAIN = "again"  # asked to run again later: nothing charged, and its interruptions count up
    GIVEBACK = "giveback"  # not started: back to the head of the queue, nothing charged
    EXPIRED = "expired"  # not started in time: it ends, and nothing failed
    REPLACED = "replaced"  # asked to stop in favour of a newer run, of its schedule or with its concurrency key
    CANCELLED = "cancelled"  # a person asked for its end
    REJECTED = "rejected"  # a hook said no: nothing failed, and it is not tried again


class Release(StrEnum):
    """Reason for which runs go back to their queue without an acknowledgement by their worker."""

    UNSTARTED = "unstarted"  # fetched, never begun: nothing charged
    INTERRUPTED = "interrupted"  # a stop cut it off: no attempt charged
    VANISHED = "vanished"  # as INTERRUPTED, with its whole replica; dead once that happened six times in a row
    CRASHED = "crashed"  # it took its process down, or overran its hard deadline: a crash is charged
    SUSPECT = "suspect"  # one of several in a process that died: run alone next, nothing charged
    CRASHED_UNSTARTED = (
        "precrashed"  # as CRASHED: charged, although it never began: nobody else can have ended the process
    )
    SUSPECT_UNSTARTED = (
        "presuspect"  # as SUSPECT: it never began, and is one of several that can have ended the process
    )

    @property
    def reason(self) -> str:
        """The same in logs and metrics, where it does not matter whether the run had begun."""
        return "interrupted" if self is Release.VANISHED else self.value.removeprefix("pre")


class Template(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Template of the runs of a job, without their identity. Shared by schedules and producers."""

    job: str
    kind: Kind
    queue: str = "default"
    priority: int = 1  # 0 high, 1 normal, 2 low
    args: dict[str, Any] = {}
    retry: Retry = Retry()
    timeout_s: Seconds = 300.0  # hard: the process is killed
    soft_timeout_s: Seconds | None = None  # the job is asked to stop; None: see soft_after_s
    max_crashes: Whole = 3
    result_ttl_s: Seconds = 86_400.0
    at_most_once: bool = False
    start_deadline_s: Seconds | None = None  # from when it may start; not started by then it ends expired
    # Limits. Each key is a pattern over the arguments (``{tenant}``), resolved when the run is packed.
    unique: str = ""  # at most one unfinished run with this key; "*": all arguments make the key
    concurrency: str = ""  # at most ``concurrency_max`` runs with this key execute at once
    concurrency_max: int = 0  # 0: no limit
    concurrency_replaces: bool = False  # where all slots are taken, the oldest run gives way to a newer one
    rate: str = ""  # at most ``rate_count`` runs with this key start within ``rate_per_ms``
    rate_count: int = 0  # 0: no limit
    rate_per_ms: int = 0
    profile: str = ""  # whose hooks stand around it; empty: those of ``default``

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
    enqueued_ms: Whole = 0  # wall clock of the producer, for people
    schedule: Word | None = None
    nominal_ms: Whole | None = None  # when the schedule says it was due
    cause: str = ""  # empty: a scheduled or bare run; else initial, manual, backfill, buffered, after, child
    not_after_ms: Whole | None = None  # a worker must not start it later than this: it then ends expired
    parent: str = ""  # the run that spawned it
    maybe_duplicate: bool = False  # fired again after Redis lost what it had acknowledged
    traceparent: str = ""  # the trace that it belongs to, as core/jobs/trace_context.py has it
    previous_ms: Whole | None = None  # the due times around the nominal one when the run was made
    next_ms: Whole | None = None
    after: str = ""  # the run of another schedule whose end made it due


class CalendarInterval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every so many days or months of the calendar, at a local time. Exactly one of ``days`` and ``months``."""

    from_day: int  # the first day, counted from 1970-01-01
    days: int = 0
    months: int = 0  # on the date of the first day
    time_s: int = 0  # of the day, as the clocks show it
    skips_short_months: bool = False  # else their last day stands for a date that they do not have


class When(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One more trigger of a schedule: one of ``every_ms cron calendar_interval at_ms after_completion_ms``."""

    every_ms: int | None = None
    phase_ms: int = 0
    cron: str | None = None
    at_ms: int | None = None
    after_completion_ms: int | None = None
    timezone: str = ""  # of ``cron`` and ``calendar_interval``; empty: the schedule's
    calendar_interval: CalendarInterval | None = None  # only here: older versions refuse the entry


OWN_TRIGGER = ("every_ms", "phase_ms", "cron", "at_ms", "after_completion_ms")
"""Fields of ``When`` that a schedule has itself, too, for its first trigger."""


class After(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The schedule whose runs make another one due, at the same nominal time, by their end (docs/adr/0052)."""

    schedule: str
    outcome: str = "ok"  # ok | failed | any


class CalendarDays(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Days of a named calendar as they were when the schedule was written. Days count from 1970-01-01."""

    calendar: str = ""  # its name; of several, all; empty: days that the schedule itself names
    is_only: bool = False  # all other days are excluded, and not these
    weekdays: tuple[int, ...] = ()  # Monday is 0
    dates: tuple[tuple[int, int, str], ...] = ()  # first day, number of days, name
    annual: tuple[tuple[int, str], ...] = ()  # 100 * month + day, name


class Exclusion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Nominal times that are as if they did not exist: a cron's, those in [from_ms, until_ms), or those of days."""

    cron: str | None = None  # with ``days`` no expression, so that older versions refuse the entry
    from_ms: int | None = None
    until_ms: int | None = None
    days: CalendarDays | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A bounded question that the leader asks about each due time; which of the fields count depends on the hook."""

    hook: str
    timezone: str = ""  # empty: the schedule's
    exclude: tuple[Exclusion, ...] = ()
    days: tuple[int, ...] = ()  # Monday is 0
    count: int = 0
    per_ms: int = 0
    until_ms: int | None = None
    reason: str = ""


class ScheduleDef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as Redis keeps it: enough to fire without importing any job.

    Due at the union of its own trigger (``every_ms``, ``cron``, ``at_ms`` or ``after_completion_ms``)
    and those in ``when``; at least one there is. Or it follows another schedule (``after``), and has none. The loader
    refuses anything else. A version that does not know ``after`` finds no trigger, and leaves it alone.
    """

    v: int = 1
    id: str
    template: Template
    # Timing: a change of any of these starts the schedule anew from now (see store/wire/definition.py).
    every_ms: int | None = None
    phase_ms: int = 0
    cron: str | None = None
    at_ms: int | None = None
    after_completion_ms: int | None = None
    when: tuple[When, ...] = ()
    after: After | None = None
    anchor: str = "epoch"  # epoch | start_at | first_seen | first_seen_hour: where the grids of ``every`` begin
    timezone: str = "UTC"
    dst_gap: str = "run"  # run | skip | shift
    dst_overlap: str = "first"  # first | last | both
    exclude: tuple[Exclusion, ...] = ()
    on_excluded: str = "skip"  # skip | next | previous: to which day a due time on an excluded day moves
    start_at_ms: int | None = None  # inclusive, as end_at_ms, on the nominal time
    end_at_ms: int | None = None
    # Jitter moves the fire, never the nominal time.
    jitter_ms: int = 0
    jitter_mode: str = "fixed"  # fixed | per_fire
    # Policies: used from the next decision.
    max_runs: int | None = None  # counts enqueued scheduled runs
    overlap: str = "skip"  # skip | allow | buffer_one | buffer_all | cancel_other | terminate_other
    max_running: int = 1
    buffer_limit: int | None = None  # None: 1 for buffer_one, 1000 for buffer_all
    cancel_grace_ms: int = 30_000
    missed: str = "latest"  # latest | earliest | all | skip
    catchup_window_ms: int | None = None
    max_catchup: int = 1000
    start_deadline_ms: int | None = None
    paused: bool = False
    pause_reason: str = ""
    on_resume: str = "skip"  # skip | catchup
    on_change: str = "wait"  # wait | run_now: what a change of the timing does
    pause_after_failures: int = 0  # 0: never
    run_on_create: bool = False
    finish_within_ms: int | None = None  # a run must have ended ok so long after its nominal time
    expect_success_every_ms: int | None = None  # so long after a success the next one must have come
    retain_completed_ms: int = 604_800_000
    renamed_from: str = ""
    checks: tuple[Check, ...] = ()  # what may keep a due time from being fired
    # For people.
    declared_by: str = ""  # module:qualname of the function whose code declares it; empty: a configuration does
    labels: dict[str, str] = {}
    owner: str = ""
    description: str = ""


ENTROPY_BYTES = 10  # for each id


def fresh_run_ids(wall_ms: int, entropy: bytes) -> list[str]:
    """Return a UUIDv7 (RFC 9562, 5.7) for each ten bytes of ``entropy``, which is random.

    They sort by time, and 74 random bits distinguish runs of one millisecond. ``wall_ms`` is the producer's clock.
    """
    assert len(entropy) % ENTROPY_BYTES == 0
    at = f"{wall_ms & (1 << 48) - 1:012x}"
    head = f"{at[:8]}-{at[8:]}-7"
    drawn = entropy.hex()
    # Of the 80 bits, two give way to the variant; the digit 8, 9, a or b carries the two left of its four.
    return [
        f"{head}{drawn[i : i + 3]}-{'89ab'[int(drawn[i + 3], 16) & 3]}{drawn[i + 4 : i + 7]}-{drawn[i + 7 : i + 19]}"
        for i in range(0, len(drawn), 2 * ENTROPY_BYTES)
    ]


def scheduled_run_id(schedule: str, nominal_ms: int) -> str:
    """Return the identity of the run that ``schedule`` owes for ``nominal_ms``: the same on every replica."""
    return f"{schedule}@{nominal_ms}"
