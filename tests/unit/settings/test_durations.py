"""Durations: what people write, and what is refused because readers would disagree about it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.durations import format_duration, parse_duration
from supervisor.settings.sections.models import ElectionSettings
from tests.kit.tables import table


@table(
    ("text", "seconds"),
    [
        ("250ms", 0.25), ("15s", 15), ("5m", 300), ("2h", 7200), ("7d", 604_800), ("1h30m", 5400), ("1.5s", 1.5),
        ("0.001s", 0.001), ("0", 0), ("0s", 0), (0, 0), (0.0, 0), ("1d2h3m4s5ms", 93_784.005), ("1w", 604_800), ("2w1d", 1_296_000),
        ("PT5M", 300), ("P1D", 86_400), ("P2W", 1_209_600), ("P1DT2H3M4.5S", 93_784.5), ("PT0.25S", 0.25), ("PT90M", 5400),
    ],
)  # fmt: skip
def test_a_number_with_a_unit_is_a_duration(text: object, seconds: float) -> None:
    """One grammar for every duration, sums included."""
    assert parse_duration(text) == seconds


@table(
    ("value", "remedy"),
    [
        (5, "write 5s"), (2.5, "write 2.5s"), ("5", "write 5s"), ("5 s", "write 5s"), ("5S", "write 5s"), ("-5s", "write 250ms"),
        ("5sec", "write 5s"), ("", "write 250ms"), (None, "write 250ms"), (True, "write 250ms"), (False, "write 250ms"),
        ("1h 30m", "write 1h30m"), ("4416811340191221ms", "up to"), ("0.5ms", "whole number of milliseconds"), ("9999999999999d", "up to 2\\*\\*51"),
        ("\u0665s", "write 250ms"), (["5s"], "write 250ms"), ("1e3s", "write 250ms"),
        ("2 weeks", "write 2w"), ("pt5m", "write PT5M"), ("P", "write 250ms"), ("PT", "write 250ms"), ("P1DT", "write 250ms"),
        ("P1M", "no fixed length"), ("P1Y2M", "no fixed length"), ("5M", "write 5m"), ("-PT5M", "write 250ms"), ("PT5M30", "write 250ms"),
        ("P1H", "write 250ms"), ("PT0.0001S", "whole number of milliseconds"), ("P9999999999999D", "up to 2\\*\\*51"), ("5s\n", "write 5s"), (float("inf"), "unit"),
    ],
)  # fmt: skip
def test_what_is_no_duration_says_what_to_write(value: object, remedy: str) -> None:
    """A bare number could be seconds or milliseconds; a guess would be wrong by a factor of a thousand."""
    with pytest.raises(ValueError, match=remedy):
        parse_duration(value)


@given(st.integers(0, 2**51))
def test_a_printed_duration_reads_back_exactly(milliseconds: int) -> None:
    """What `config show` prints must configure the same thing."""
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == seconds


def test_code_writes_seconds_as_numbers() -> None:
    """Unit is in the field's name there, so a number is not ambiguous."""
    assert ElectionSettings(lease_duration_s=9).lease_duration_s == 9.0
    assert ElectionSettings.model_validate({"lease_duration": "9s"}).lease_duration_s == 9.0
