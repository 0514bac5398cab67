"""Named calendars as people write them: sets of days for ``exclude`` and ``only`` of schedules."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from supervisor.settings.base import Section

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
