"""Instants and days as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.settings.schedules.instants import is_date, parse_day, parse_instant
from tests.kit.tables import table


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@table(
    ("text", "timezone", "expected"),
    [
        ("2027-01-01T09:00", "UTC", "2027-01-01T09:00+00:00"), ("2027-01-01 09:00:30", "Europe/Berlin", "2027-01-01T08:00:30+00:00"),
        ("2027-07-01T09:00", "Europe/Berlin", "2027-07-01T07:00+00:00"), ("2027-01-01T09:00Z", "Europe/Berlin", "2027-01-01T09:00+00:00"),
        ("2027-01-01T09:00:00.250+05:30", "UTC", "2027-01-01T03:30:00.250+00:00"), ("2027-01-01T09:00-0800", "UTC", "2027-01-01T17:00+00:00"),
        (" 2026-10-25T02:30+01:00 ", "Europe/Berlin", "2026-10-25T01:30+00:00"), ("2026-03-29T03:00", "Europe/Berlin", "2026-03-29T01:00+00:00"),
    ],
)  # fmt: skip
def test_an_instant_is_read_with_its_offset_or_in_the_zone(text: str, timezone: str, expected: str) -> None:
    """ISO 8601, with a space or a T."""
    assert parse_instant(text, timezone) == ms(expected)


@table(
    ("text", "message"),
    [
        ("2027-01-01", "add a time"), ("", "is not a date and time"), ("1767225600", "is not a date and time"), ("2027-1-1T9:00", "is not a date"),
        ("2027-13-01T00:00Z", "not in the calendar"), ("2027-01-01T24:30Z", "not in the calendar"), ("2027-01-01T00:00+25:00", "not in the calendar"),
        ("٢٠٢٧-01-01T00:00Z", "is not a date and time"), ("0001-01-01T00:00Z", "out of range"), ("9999-12-31T00:00", "out of range"),
        ("2027-01-01T00:00:00.1234Z", "is not a date and time"), ("2027-01-01T00:00Z/2027-01-02T00:00Z", "is not a date and time"),
    ],
)  # fmt: skip
def test_what_is_no_instant_is_refused(text: str, message: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError, match=message):
        parse_instant(text, "Europe/Berlin")


def test_a_local_time_that_does_not_exist_or_comes_twice_needs_an_offset() -> None:
    """Half of the readers would guess otherwise."""
    with pytest.raises(ValueError, match="does not exist in Europe/Berlin"):
        parse_instant("2026-03-29T02:30", "Europe/Berlin")
    with pytest.raises(ValueError, match="comes twice in Australia/Lord_Howe"):
        parse_instant("2026-04-05T01:45", "Australia/Lord_Howe")


@given(
    at=st.integers(1_500_000_000, 2_000_000_000),
    timezone=st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]),
)
def test_what_a_clock_shows_is_read_back_as_that_instant(at: int, timezone: str) -> None:
    """Unless it shows the same twice."""
    local = datetime.fromtimestamp(at, ZoneInfo(timezone))
    text = local.replace(tzinfo=None).isoformat()
    if local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
        with pytest.raises(ValueError, match="comes twice"):
            parse_instant(text, timezone)
    else:
        assert parse_instant(text, timezone) == at * 1000
    assert parse_instant(local.isoformat(), "UTC") == at * 1000


def test_a_day_lasts_from_midnight_to_midnight_of_the_zone() -> None:
    """23, 24, 24.5 or 25 hours; from the end of the gap where midnight does not exist; none that was left out."""
    hours = {
        ("2026-03-29", "Europe/Berlin"): 23, ("2026-10-25", "Europe/Berlin"): 25, ("2026-06-01", "Europe/Berlin"): 24,
        ("2026-04-05", "Australia/Lord_Howe"): 24.5, ("2011-12-30", "Pacific/Apia"): 0, ("2026-11-01", "America/Havana"): 25,
        ("2018-11-04", "America/Sao_Paulo"): 23,
    }  # fmt: skip
    for (text, timezone), expected in hours.items():
        begin, end = parse_day(text, timezone)
        assert end - begin == expected * 3_600_000, text
    begin, _ = parse_day("2018-11-04", "America/Sao_Paulo")
    assert datetime.fromtimestamp(begin / 1000, UTC) == datetime(2018, 11, 4, 3, tzinfo=UTC)
    assert parse_day("2026-06-01", "UTC")[1] - ms("2026-06-01T00:00+00:00") == timedelta(days=1) // timedelta(
        milliseconds=1
    )


def test_only_a_day_is_a_day() -> None:
    """A time of day is left to ``parse_instant``."""
    assert is_date(" 2026-12-25 ")
    for text in ("2026-12-25T00:00", "2026-12", "25.12.2026"):
        assert not is_date(text)
        with pytest.raises(ValueError, match="is not a day; write 2026-12-25"):
            parse_day(text, "UTC")
    with pytest.raises(ValueError, match="is not a day"):
        parse_day("2026-02-30", "UTC")
