"""Named calendars in a configuration: files of days, lists, days of the week, and their use by schedules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.core.calendars.days import date_of
from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.lints import calendar_notes, sentences
from supervisor.settings.loader import Loaded, UnusableError, load
from supervisor.settings.schedules.calendars import ICS_BYTES_MAX, ending_notes, ends_of
from supervisor.settings.schedules.definitions import definition_of, faults_of_definition, validate_schedules
from supervisor.store.queues.jobs import AnyJob
from supervisor.store.wire.definition import pack_definition, timing_digest, unpack_definition
from tests.unit.core.test_calendar_days import TEMPLATE, ms
from tests.unit.core.test_icalendar import file_of

CHRISTMAS = file_of(
    "DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY\nSUMMARY:Christmas Day",
    "DTSTART;VALUE=DATE:20261228\nDTEND;VALUE=DATE:20270101\nSUMMARY:Closed",
)
SCHEDULES = """
schedules:
  report: {job: files.clean, cron: "0 9 * * *", timezone: Europe/Berlin, exclude: [de, weekends], on_excluded: next}
  plain: {job: files.clean, cron: "0 9 * * *", only: [workdays]}
"""
CALENDARS = """
calendars:
  de: {ics: days/de.ics, dates: [2026-11-18 Repentance Day, 01-01]}
  weekends: {weekdays: [sat, sun]}
  workdays: {weekdays: [mon, tue, wed, thu, fri]}
"""

Write = Callable[[str], Loaded]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that loads a configuration beside ``days/de.ics``."""
    (tmp_path / "days").mkdir()
    (tmp_path / "days" / "de.ics").write_bytes(CHRISTMAS.encode())

    def loaded(text: str) -> Loaded:
        file = tmp_path / "tenure.yaml"
        file.write_text(text)
        return load(files=[file], environ={}, flags={})

    return loaded


def definitions(loaded: Loaded) -> dict[str, ScheduleDef]:
    settings = loaded.settings
    return {
        name: definition_of(name, schedule, TEMPLATE, settings.profiles, settings.calendars)
        for name, schedule in settings.schedules.items()
    }


def refusal(write: Write, text: str) -> str:
    with pytest.raises(UnusableError) as caught:
        write(text)
    (problem,) = caught.value.problems
    return str(problem)


def test_a_file_of_days_counts_from_the_file_that_names_it(write: Write, tmp_path: Path) -> None:
    """Its days become dates of the configuration, each with the line it comes from: nobody reads the file again."""
    loaded = write(CALENDARS + SCHEDULES)
    calendar = loaded.settings.calendars["de"]
    assert calendar.ics is None
    assert calendar.dates == (
        "2026-11-18 Repentance Day", "01-01", "12-25 Christmas Day", "2026-12-28/2026-12-31 Closed",
    )  # fmt: skip
    assert loaded.origins["calendars.de.dates[2]"] == f"{tmp_path}/days/de.ics:4"


def test_a_schedule_keeps_the_days_of_its_calendars(write: Write) -> None:
    """As they were when it was declared: a leader with another file fires by what is in Redis."""
    found = definitions(write(CALENDARS + SCHEDULES))["report"]
    again = unpack_definition(pack_definition(found))
    assert again == found
    first, weekends = found.exclude
    assert first.days is not None
    assert [(str(date_of(day)), length, name) for day, length, name in first.days.dates] == [
        ("2026-11-18", 1, "Repentance Day"), ("2026-12-28", 4, "Closed"),
    ]  # fmt: skip
    assert first.days.annual == ((101, ""), (1225, "Christmas Day"))
    assert weekends.days is not None
    assert weekends.days.weekdays == (5, 6)


def test_older_versions_refuse_a_schedule_with_calendars(write: Write) -> None:
    """They do not know days, and find an expression in their place that none of them reads: no run on a holiday."""
    for definition in definitions(write(CALENDARS + SCHEDULES)).values():
        assert all(item.cron == "days of a calendar" for item in definition.exclude)


def test_another_day_is_another_timing_and_no_calendar_is_the_timing_of_before(write: Write) -> None:
    """So a changed file plans anew, and an update of the version moves no watermark."""
    one = definitions(write(CALENDARS + SCHEDULES))["report"]
    other = definitions(write(CALENDARS.replace("01-01", "01-02") + SCHEDULES))["report"]
    moved = definitions(write(CALENDARS + SCHEDULES.replace("next", "previous")))["report"]
    assert len({timing_digest(each) for each in (one, other, moved)}) == 3
    plain = ScheduleDef(id="s", template=TEMPLATE, every_ms=1000)
    assert timing_digest(plain) == "56f136ffb3d8d7f9"


def test_explain_says_why_a_due_time_is_left_out_and_when_a_calendar_ends(write: Write) -> None:
    """By the name that the file gives the day."""
    text = "calendars: {de: {dates: [2026-12-25 Christmas Day]}, weekends: {weekdays: [sat, sun]}}"
    found = definitions(write(text + SCHEDULES.replace("only: [workdays]", "jitter: 1s")))["report"]
    assert sentences(found)[-3:] == [
        "Not on days of calendar de.", "Not on days of calendar weekends.", "A due time on another day moves to the next one that is not left out.",
    ]  # fmt: skip
    assert calendar_notes(found, now_ms=ms("2026-12-01T00:00Z")) == [
        "2026-12-05 is excluded by calendar weekends: Saturday",
        "2026-12-06 is excluded by calendar weekends: Sunday",
        "2026-12-25 is excluded by calendar de: Christmas Day",
        "calendar de has no entries after 2026-12-25; add later ones",
    ]


def test_dynamic_schedules_name_the_calendars_of_the_configuration(write: Write) -> None:
    """As a schedule in a file does; they keep the days that it has then."""
    loaded = write(CALENDARS + SCHEDULES)
    entry = {"job": "files.clean", "cron": "0 9 * * *", "exclude": ["de"], "only": ["workdays"]}
    found = validate_schedules({"a": entry}, known=AnyJob(), calendars=loaded.settings.calendars)
    assert not found.problems
    assert [item.days.calendar for item in found.definitions[0].exclude if item.days] == ["de", "workdays"]
    (problem, _) = validate_schedules({"a": entry}, known=AnyJob()).problems
    assert "no calendar is called 'de'" in problem.message


def test_the_end_of_a_calendar_is_told_before_it_comes(write: Write) -> None:
    """Two months ahead, and to monitoring as a time; not of one that recurs."""
    text = "calendars: {de: {dates: [2026-12-25]}, every: {dates: [12-25], weekdays: [sun]}}"
    calendars = write(text).settings.calendars
    assert ending_notes(calendars, now_ms=ms("2026-10-01T00:00Z")) == []
    assert ending_notes(calendars, now_ms=ms("2026-11-01T00:00Z")) == [
        "calendar de has no entries after 2026-12-25; add later ones"
    ]
    assert list(ends_of(calendars)) == [("de", ms("2026-12-26T00:00Z") / 1000)]


@pytest.mark.parametrize(
    ("calendar", "message"),
    [
        ("{}", "calendars.de: has no days; give one of ics, dates and weekdays"),
        ("{dates: [25.12.2026]}", "'25.12.2026' is not a day; write 2026-12-25, 2026-12-24/2026-12-31, or 12-25 for"),
        ("{dates: [2026-02-30]}", "'2026-02-30' is not in the calendar"),
        ("{dates: [2026-12-31/2026-12-24]}", "names -6 days; give from 1 to 366"),
        ("{weekdays: [sun, sonntag]}", "calendars.de.weekdays[1]"),
        ("{ics: none.ics}", "none.ics cannot be read: No such file or directory; a path counts from the file"),
        ("{ics: days}", "days cannot be read: no regular file"),
        ("{ics: large.ics}", "large.ics is larger than 1024 KiB"),
        ("{ics: latin.ics}", "latin.ics is not UTF-8"),
        ("{ics: empty.ics}", "empty.ics:1: calendars.de.ics"),
    ],
)
def test_a_calendar_that_cannot_be_read_is_refused_with_its_place(
    calendar: str, message: str, write: Write, tmp_path: Path
) -> None:
    """One problem: neither a second one for its days, nor one for each schedule that uses it."""
    (tmp_path / "large.ics").write_bytes(b" " * (ICS_BYTES_MAX + 1))
    (tmp_path / "latin.ics").write_bytes(b"BEGIN:VCALENDAR\nX:\xe4\n")
    (tmp_path / "empty.ics").write_bytes(b"")
    used = "\nschedules: {a: {job: files.clean, every: 1d, exclude: [de]}}"
    assert message in refusal(write, f"calendars: {{de: {calendar}}}{used}")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            "exclude: [fr]",
            "schedules.a.exclude[0]: no calendar is called 'fr'; define it under calendars, such as fr: {weekdays: [sat, sun]}; known: de",
        ),
        ("only: [d]", "schedules.a.only[0]: no calendar is called 'd'; did you mean de?"),
        ("only: de", "schedules.a.only: must be a list, got text; write [de]"),
        ("on_excluded: next", "schedules.a.on_excluded: has no effect without exclude or only; remove it"),
        ("exclude: [de, '* * * * SAT'], on_excluded: next", "schedules.a.exclude[1]: is no whole day"),
        ("exclude: [2026-12-24T10:00/2026-12-25], on_excluded: next", "schedules.a.exclude[0]: is no whole day"),
        ("exclude: [{calendar: de, date: 2026-12-25}]", "must have exactly one of calendar, cron, date"),
    ],
)
def test_a_wrong_use_of_calendars_is_refused_with_its_remedy(fields: str, message: str, write: Write) -> None:
    """Where the schedule says it."""
    text = f"calendars: {{de: {{dates: [12-25]}}}}\nschedules: {{a: {{job: files.clean, every: 1d, {fields}}}}}"
    assert message in refusal(write, text)


def test_days_that_a_schedule_names_itself_move_its_due_times_too(write: Write) -> None:
    """A date and a range of dates are days, whether or not a calendar has them."""
    text = 'schedules: {a: {job: files.clean, cron: "0 9 25 * *", on_excluded: previous, exclude: ['
    found = definitions(write(f"{text}2026-12-25, 2026-12-23/2026-12-24]}}}}"))["a"]
    assert not faults_of_definition(found)
    days = [item.days.dates[0][1] for item in found.exclude if item.days is not None]
    assert days == [1, 2]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("every: 30m, exclude: [de], on_excluded: next", "due more than 24 times a day"),
        ("every: 1d, only: [past]", "leaves no due time"),
    ],
)
def test_a_schedule_that_makes_no_sense_with_its_calendars_is_refused(fields: str, message: str, write: Write) -> None:
    """Too many due times to move, or days that are over."""
    text = (
        f"calendars: {{de: {{dates: [12-25]}}, past: {{dates: [2001-01-01]}}}}\nschedules: {{a: {{job: j, {fields}}}}}"
    )
    (fault,) = faults_of_definition(definitions(write(text))["a"])
    assert message in fault.message
