"""One schedule, and the calendars that it may name, as people write them. Rules between fields are in rules.py."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, GetJsonSchemaHandler, StringConstraints, model_validator
from pydantic_core import CoreSchema

from supervisor.settings.base import SCHEDULE_ID, Name, QueueName, Seconds, Section

_DAY_S = 86_400.0
_LONG_S = 3660 * _DAY_S  # ten years
_RANGE = re.compile(r"(\d{4}-\d\d-\d\d[^/]*)/(\d{4}-\d\d-\d\d[^/]*)", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_NAME = re.compile(r"[A-Za-z][^\s*/,]*", re.ASCII)  # an expression has several fields, or begins with @

Text = Annotated[str, StringConstraints(max_length=1000)]
LongText = Annotated[str, StringConstraints(max_length=10_000)]
OldId = Annotated[str, StringConstraints(pattern=SCHEDULE_ID)]
DATES_MAX = 2000
CALENDAR_NAME = r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$"
CalendarName = Annotated[str, StringConstraints(pattern=CALENDAR_NAME)]
_DateText = Annotated[str, StringConstraints(max_length=100)]


class NamedCalendarSettings(Section):
    """A set of days: those of a file, of a list, and days of the week, together."""

    ics: str | None = Field(default=None, min_length=1, max_length=4096)
    """iCalendar file with all-day events, such as feiertage.ics; a path counts from the file that names it."""

    dates: tuple[_DateText, ...] = ()
    """Days such as 2026-12-25, 2026-12-24/2026-12-31, or 12-25 for every year, each with a name if wanted."""

    weekdays: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = Field(default=(), max_length=7)
    """Days of every week, such as [sat, sun]."""


class CalendarSettings(Section):
    """Every so many days, weeks or months at a local time, counted from a first day. Exactly one of the three."""

    days: int | None = Field(default=None, ge=1, le=3660)
    """Interval in days."""

    weeks: int | None = Field(default=None, ge=1, le=520)
    """Interval in weeks; the day of the week is that of ``from``."""

    months: int | None = Field(default=None, ge=1, le=120)
    """Interval in months; the day of the month is that of ``from``."""

    time: Text = "00:00"
    """Time of day, such as 09:00 or 09:00:30."""

    from_: Text | None = Field(default=None, alias="from")
    """First day, such as 2026-11-23. The interval is counted from it."""

    short_month: Literal["last", "skip"] = "last"
    """A month without the day of ``from``: its ``last`` day is taken, or ``skip`` it."""


class WhenSettings(Section):
    """One of several triggers. Exactly one of every, cron, calendar_interval, at and after_completion."""

    every_s: Seconds | None = Field(default=None, ge=0.1, le=_LONG_S)
    """Interval on a grid."""

    phase_s: Seconds = Field(default=0.0, ge=0, le=_LONG_S)
    """Shifts that grid."""

    cron: Text | None = None
    """Five fields, or six with seconds in front."""

    calendar_interval: CalendarSettings | None = None
    """Days, weeks or months of the calendar."""

    timezone: Text | None = None
    """IANA zone of this ``cron`` or ``calendar_interval``; default: the schedule's."""

    at: Text | None = None
    """One instant."""

    after_completion_s: Seconds | None = Field(default=None, ge=0.1, le=_LONG_S)
    """Delay from the end of a run to the next."""


class ExcludeSettings(Section):
    """Times at which the schedule is not due: exactly one of calendar, cron, date, and from with until.

    A text is short for one of them: a name, ``2026-12-25``, ``2026-12-24/2027-01-01``, or an expression.
    """

    calendar: CalendarName | None = None
    """All days of a calendar under ``calendars``, in the schedule's zone."""

    cron: Text | None = None
    """Minutes (with six fields: seconds) of the schedule's zone that match are excluded."""

    date: Text | None = None
    """A day in the schedule's zone, such as 2026-12-25."""

    from_: Text | None = Field(default=None, alias="from")
    """First day or instant of a range."""

    until: Text | None = None
    """Last day or instant of the range, included."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, handler(core_schema)]}

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        text = value.strip()
        if match := _RANGE.fullmatch(text):
            return {"from": match[1], "until": match[2]}
        if _NAME.fullmatch(text):
            return {"calendar": text}
        return {"date": text} if _DATE.fullmatch(text) else {"cron": value}


class AfterSettings(Section):
    """Another schedule, and the end of its run that makes this one due at the same nominal time."""

    schedule: OldId
    """Id of the other schedule."""

    outcome: Literal["ok", "failed", "any"] = "ok"
    """``failed``: given up, expired or rejected. With children, theirs counts too."""


class ScheduleSettings(Section):
    """One schedule: a job, when it is due, and the handling of irregularities.

    At least one of every, cron, calendar_interval, at, after_completion and when; with several it is due
    when one of them is. Or after, alone.
    """

    job: str
    """Name of a job that a module listed under ``jobs`` registers."""

    profile: Name | None = None
    """Policies and hooks, of those under ``profiles``; default: the job's."""

    every_s: Seconds | None = Field(default=None, ge=0.1, le=_LONG_S)
    """Interval. Anchored to 1970-01-01T00:00Z, so it neither drifts nor restarts its phase."""

    phase_s: Seconds = Field(default=0.0, ge=0, le=_LONG_S)
    """Shifts the grid of ``every``: 1h with phase 5m is five past each hour."""

    anchor: Literal["epoch", "start_at", "first_seen", "first_seen_hour"] = "epoch"
    """Where the grid of ``every`` begins. ``first_seen``: when the cluster first saw this schedule, which Redis keeps;
    ``first_seen_hour``: at the full hour before that."""

    cron: Text | None = None
    """Five fields: minute hour day-of-month month day-of-week; or six, with seconds in front. See docs/schedules.md."""

    calendar_interval: CalendarSettings | None = None
    """Every so many days, weeks or months at a local time, such as {weeks: 2, time: "09:00", from: 2026-11-23}."""

    at: Text | None = None
    """One instant, such as 2027-01-01T09:00:00+01:00; without an offset in the schedule's zone."""

    after_completion_s: Seconds | None = Field(default=None, ge=0.1, le=_LONG_S)
    """Delay from the end of a run to the next one."""

    when: tuple[WhenSettings, ...] = Field(default=(), max_length=100)
    """More triggers, each a mapping with one of every, cron, calendar_interval, at and after_completion."""

    after: AfterSettings | None = None
    """Due at each nominal time of another schedule, once its run for that time has ended, such as {schedule: load}."""

    timezone: Text | None = None
    """IANA zone of ``cron`` and ``calendar_interval``, of dates without an offset and of templates; default: UTC."""

    dst_gap: Literal["run", "skip", "shift"] = "run"
    """A fixed time that a change of the clock skips: ``run`` as it changes, ``skip``, or ``shift`` by as much."""

    dst_overlap: Literal["first", "last", "both"] = "first"
    """A fixed time that comes twice: on which pass to run."""

    exclude: tuple[ExcludeSettings, ...] = Field(default=(), max_length=1000)
    """Times at which it is not due: calendars by name, dates, ranges such as 2026-12-24/2027-01-01, expressions."""

    only: tuple[CalendarName, ...] = Field(default=(), max_length=100)
    """Calendars on whose days alone it is due; on a day of any of them, if several."""

    on_excluded: Literal["skip", "next", "previous"] = "skip"
    """A due time on a day that ``exclude`` or ``only`` leaves out: ``skip`` it, or move it to the ``next`` or
    ``previous`` day that is not left out, at the same time of day."""

    start_at: Text | None = None
    """Not due before this instant."""

    end_at: Text | None = None
    """Not due after this instant."""

    max_runs: int | None = Field(default=None, ge=1, le=10**9)
    """Completed after this many scheduled runs."""

    jitter_s: Seconds = Field(default=0.0, ge=0, le=7 * _DAY_S)
    """Fire up to this much later, by a part drawn from the id once and for ever."""

    jitter_mode: Literal["fixed", "per_fire"] = "fixed"
    """``fixed``: always by the same part; ``per_fire``: by another for each due time."""

    overlap: Literal["skip", "allow", "buffer_one", "buffer_all", "cancel_other", "terminate_other"] | None = None
    """What a due run does while an earlier one of the same schedule is unfinished; default: the profile's, ``skip``."""

    max_running: int = Field(default=1, ge=1, le=1000)
    """How many unfinished runs it takes for ``overlap`` to act; each fire and end goes through the list of them."""

    buffer_limit: int | None = Field(default=None, ge=1, le=100_000)
    """How many runs ``overlap: buffer_all`` lets wait; default: 1000. Further ones are dropped and counted."""

    cancel_grace_s: Seconds = Field(default=30.0, ge=0, le=3600)
    """How long ``overlap: cancel_other`` waits for the run it asked to stop before it is killed."""

    missed: Literal["latest", "earliest", "all", "skip"] | None = None
    """Which of several due times that passed while nobody led are run; default: the profile's, ``latest``."""

    catchup_window_s: Seconds | None = Field(default=None, ge=0, le=_LONG_S)
    """What is later than this is not run any more; at least two lease durations. Default: without limit."""

    max_catchup: int = Field(default=1000, ge=1, le=10_000)
    """At most this many at once with ``missed: all``, the newest."""

    start_deadline_s: Seconds | None = Field(default=None, ge=0.1, le=_LONG_S)
    """A worker does not start a run later than this after its fire, but ends it expired; default: the profile's."""

    paused: bool = False
    """Defined, but not due until somebody resumes it."""

    pause_reason: Text = ""
    """For people; shown beside a paused schedule."""

    on_resume: Literal["skip", "catchup"] = "skip"
    """Whether the time of a pause is forgotten, or caught up as an outage would be."""

    on_change: Literal["wait", "run_now"] = "wait"
    """What a change of the timing does: wait for the first due time of the new one, or run at once too."""

    pause_after_failures: int = Field(default=0, ge=0, le=1_000_000)
    """Pause after this many failed runs in a row; 0: never."""

    finish_within_s: Seconds | None = Field(default=None, ge=0.1, le=_LONG_S)
    """A run that has not ended ok this long after its nominal time is reported as late, once."""

    expect_success_every_s: Seconds | None = Field(default=None, ge=1, le=_LONG_S)
    """Reported as late when no run has ended ok for this long, such as 25h; a pause does not count."""

    run_on_create: bool = False
    """One extra run when the cluster first sees this id; never at a restart."""

    retain_completed_s: Seconds = Field(default=7 * _DAY_S, ge=0, le=_LONG_S)
    """How long a dynamic schedule that has no due time left is kept."""

    renamed_from: OldId | None = None
    """Id that this schedule had before: its progress is carried over."""

    queue: QueueName | None = None
    """Queue; default: the job's."""

    priority: Literal["high", "normal", "low"] | None = None
    """Priority; default: the job's."""

    args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the job, by name. They lie in Redis with every run, so let a job read its secrets itself."""

    timeout_s: Seconds | None = Field(default=None, gt=0, le=_LONG_S)
    """Hard timeout of a run; default: the job's."""

    retries: int | None = Field(default=None, ge=0, le=99)
    """How often a failed run is tried again; default: the job's."""

    labels: dict[str, Text] = Field(default_factory=dict, max_length=64)
    """For filters and dashboards."""

    owner: Text = ""
    """Who to ask."""

    description: LongText = ""
    """For people; shown by ``tenure schedule list``."""


class SchedulerSettings(Section):
    """Planning by the leader. Must be equal on all replicas."""

    catchup_rate: int = Field(default=1000, ge=1, le=100_000)
    """How many late runs a second are enqueued after an outage; runs that are on time go first."""

    allow_empty_static: bool = False
    """Let a configuration without schedules remove those that an earlier one declared."""
