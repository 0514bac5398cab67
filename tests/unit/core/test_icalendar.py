"""All-day events of iCalendar files as days."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.calendars.icalendar import EVENTS_MAX, YEAR_MAX, IcsError, read_ics
from tests.kit.tables import table


def file_of(*events: str) -> str:
    """Return a calendar with these events, each the lines between BEGIN and END, with the line ends of the RFC."""
    body = "".join(f"BEGIN:VEVENT\n{event}\nEND:VEVENT\n" for event in events)
    return f"BEGIN:VCALENDAR\nVERSION:2.0\n{body}END:VCALENDAR\n".replace("\n", "\r\n")


def starts(*lines: str) -> list[str]:
    (found,) = {each.name for each in read_ics(file_of("\n".join(lines)))} or {""}
    assert found == ""
    return [each.first.isoformat() for each in read_ics(file_of("\n".join(lines)))]


def test_an_event_is_its_days_and_its_summary() -> None:
    """Folded lines are put together, escapes are resolved, the day of DTEND is not one of them."""
    text = file_of(
        "DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261227\nSUMMARY;LANGUAGE=de:Weih\n nachten\\, frei",
        'DTSTART;X-A="a:b;c":20270101\nSUMMARY:Neujahr\nBEGIN:VALARM\nTRIGGER:-PT15M\nSUMMARY:no\nEND:VALARM',
        "DTSTART;TZID=Europe/Berlin:20270201T000000\nDTEND;TZID=Europe/Berlin:20270202T000000",
        "DTSTART:20270301\nDURATION:P2W\nSTATUS:CONFIRMED",
        "DTSTART:20270401\nSTATUS:CANCELLED",
    )
    assert [(str(each.first), each.length, each.name) for each in read_ics(text)] == [
        ("2026-12-24", 3, "Weihnachten, frei"), ("2027-01-01", 1, "Neujahr"), ("2027-02-01", 1, ""),
        ("2027-03-01", 14, ""),
    ]  # fmt: skip
    assert [each.line for each in read_ics(text)][:2] == [4, 10]


def test_the_same_date_each_year_has_no_end() -> None:
    """However the rule says it."""
    for rule in ("FREQ=YEARLY", "FREQ=YEARLY;INTERVAL=1;WKST=MO", "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=25"):
        (found,) = read_ics(file_of(f"DTSTART:20201225\nRRULE:{rule}"))
        assert found.is_annual, rule


def test_an_event_that_began_before_1970_recurs() -> None:
    """Calendars begin Thanksgiving in 1863. Years in which no schedule can be due are left out, those behind too."""
    rule = "RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH"
    assert starts("DTSTART:18631126", rule) == starts("DTSTART:19701126", rule)
    assert starts("DTSTART:19681225", "RRULE:FREQ=YEARLY;COUNT=3") == ["1970-12-25"]
    assert starts("DTSTART:20261225\nDURATION:P2W", "RDATE:19001225,99991225") == ["2026-12-25"]


def test_yearly_rules_are_written_out() -> None:
    """With an end, an interval, exceptions, additions, a weekday of a month."""
    assert starts("DTSTART:20240229", "RRULE:FREQ=YEARLY;COUNT=2") == ["2024-02-29", "2028-02-29"]
    assert starts("DTSTART:20250101", "RRULE:FREQ=YEARLY;INTERVAL=2;UNTIL=20290101T000000Z") == [
        "2025-01-01", "2027-01-01", "2029-01-01",
    ]  # fmt: skip
    assert starts(
        "DTSTART:20250101", "RRULE:FREQ=YEARLY;COUNT=3", "EXDATE;VALUE=DATE:20260101,20260102", "RDATE:20260103"
    ) == ["2025-01-01", "2027-01-01", "2026-01-03"]
    thanksgiving = starts("DTSTART:20251127", "RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH")
    assert thanksgiving[:3] == ["2025-11-27", "2026-11-26", "2027-11-25"]
    assert thanksgiving[-1].startswith(str(YEAR_MAX))
    assert starts("DTSTART:20250526", "RRULE:FREQ=YEARLY;BYMONTH=5;BYDAY=-1MO;COUNT=2") == ["2025-05-26", "2026-05-25"]
    each_month = starts("DTSTART:20251015", "RRULE:FREQ=YEARLY;BYMONTHDAY=15")
    assert each_month[:4] == ["2025-10-15", "2025-11-15", "2025-12-15", "2026-01-15"]


@given(
    first=st.dates(date(2000, 1, 1), date(2030, 12, 31)),
    number=st.sampled_from([1, 2, 3, 4, 5, -1, -2]),
    weekday=st.integers(0, 6),
    months=st.sets(st.integers(1, 12), min_size=1, max_size=3),
    interval=st.integers(1, 4),
    count=st.integers(1, 8),
)
def test_a_weekday_of_a_month_is_that_of_a_walk(
    *, first: date, number: int, weekday: int, months: set[int], interval: int, count: int
) -> None:
    """Every day is looked at: its weekday, how many like it came before or come after, its year."""
    week, day = timedelta(days=7), first
    expected = []
    while len(expected) < count and day.year <= YEAR_MAX:
        if day.weekday() == weekday and day.month in months and (day.year - first.year) % interval == 0:
            before, behind = day - (abs(number) - 1) * week, day + (abs(number) - 1) * week
            near, far = (before, before - week) if number > 0 else (behind, behind + week)
            if near.month == day.month and far.month != day.month:
                expected.append(day)
        day += timedelta(days=1)
    name = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")[weekday]
    by = f"BYMONTH={','.join(map(str, months))};BYDAY={number}{name}"
    rule = f"RRULE:FREQ=YEARLY;INTERVAL={interval};COUNT={count};{by}"
    found = {each.first for each in read_ics(file_of(f"DTSTART:{first:%Y%m%d}\n{rule}"))}
    assert found == {first, *expected}


@table(
    ("text", "line", "message"),
    [
        ("", 1, "has no event since 1970"),
        ("PK\x03\x04", 1, "is not an iCalendar file"),
        ("<!DOCTYPE html>", 1, "is not an iCalendar file"),
        ("BEGIN:VCARD\nEND:VCARD", 1, "is not an iCalendar file"),
        ("BEGIN:VCALENDAR\nEND:VCALENDAR", 1, "has no event since 1970"),
        ("BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20260101", 2, "breaks off within VEVENT"),
        ("BEGIN:VCALENDAR\nEND:VEVENT", 2, "ends VEVENT, which is not open"),
        (file_of("SUMMARY:x"), 5, "without DTSTART"),
        (file_of("DTSTART:20261225T090000"), 4, "with a time of day, 20261225T090000"),
        (file_of("DTSTART:20261340"), 5, "month must be in 1..12"),
        (file_of("DTSTART:20261225\nDTEND:20261225"), 5, "of 0 days"),
        (file_of("DTSTART:20261225\nDURATION:PT1H"), 5, "of PT1H"),
        (file_of("DTSTART:20261225\nRECURRENCE-ID:20261225"), 5, "changes one date"),
        (file_of("STATUS:CANCELLED\nDTSTART:20261225\nRECURRENCE-ID:20261225"), 6, "changes one date"),
        (file_of("DTSTART:20261225\nRRULE:FREQ=YEARLY\nEXRULE:FREQ=YEARLY;INTERVAL=4"), 6, "leaves out dates by a rule"),
        (file_of("DTSTART:20261225\nRRULE:FREQ=SECONDLY"), 5, "FREQ=SECONDLY, of which only yearly ones are read"),
        (file_of("DTSTART:20261225\nRRULE:FREQ=YEARLY;BYSETPOS=1"), 5, "BYSETPOS"),
        (file_of("DTSTART:20261225\nRRULE:FREQ=YEARLY;BYMONTH=5;BYDAY=MO"), 5, "BYDAY=MO"),
        (file_of("DTSTART:20261225\nRRULE:FREQ=YEARLY;BYDAY=1MO"), 5, "not the month alone"),
        (file_of("DTSTART:20261225\nRRULE:FREQ=YEARLY;COUNT=many"), 6, "cannot be read"),
        (file_of("DTSTART:20261225\nRRULE:FREQ=YEARLY\nRRULE:FREQ=YEARLY"), 6, "with two rules"),
        (file_of("DTSTART:00010101\nRRULE:FREQ=YEARLY;BYMONTHDAY=" + "40," * 250_000 + "40"), 5, "more than 10000 days"),
        (file_of(*["DTSTART:20261225"] * (EVENTS_MAX + 1)), 3 + 3 * EVENTS_MAX + 2, "more than 2000 days"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    """A day that is missed without a word is a run on a holiday."""
    with pytest.raises(IcsError, match=message) as caught:
        read_ics(text)
    assert caught.value.line == line


@given(st.lists(st.sampled_from([
    "BEGIN:VCALENDAR", "END:VCALENDAR", "BEGIN:VEVENT", "END:VEVENT", "DTSTART:20260101", "DTSTART:20260101T1",
    "RRULE:FREQ=YEARLY;COUNT=3", "RRULE:FREQ=YEARLY;INTERVAL=0", "RRULE:;=", "DTEND:99999999", "SUMMARY:a\\", " x", ":", "\x00",
]), max_size=12))  # fmt: skip
def test_whatever_a_file_holds_it_is_read_or_refused(lines: list[str]) -> None:
    """Never another error."""
    with suppress(IcsError):
        read_ics("\n".join(lines))
