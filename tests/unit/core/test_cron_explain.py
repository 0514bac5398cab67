"""Expressions in words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.cron.expression import CronError, compile_cron
from tests.kit.tables import table

FIXED = " A time that a change of the clock skips runs as the gap ends; one that comes twice runs on the first pass."


@table(
    ("expression", "timezone", "words"),
    [
        ("30 2 1 * 1", "Europe/Berlin", f"At 02:30, on day 1 of the month or on Monday, in Europe/Berlin.{FIXED}"),
        ("*/15 9-17 * * 1-5", "Europe/Berlin", "Every 15 minutes during hours 9 to 17, on Monday to Friday, in Europe/Berlin. It follows real time when the clock changes."),
        ("@hourly", "UTC", "At minute 0 of every hour, in UTC."),
        ("* * * * *", "UTC", "Every minute, in UTC."),
        ("*/10 * * * * *", "UTC", "Every 10 seconds, in UTC."),
        ("0,30 5 2 * * MON-FRI", "UTC", "At 02:05:00 and 02:05:30, on Monday to Friday, in UTC."),
        ("30 2,14 */2 JAN-MAR 5", "UTC", "At 02:30 and 14:30, on every 2nd day of the month if it is also on Friday, in January to March, in UTC."),
        ("0 0 L,15W */2 *", "UTC", "At 00:00, on the last day and the weekday (Monday to Friday) nearest to day 15 of the month, in every 2nd month, in UTC."),
        ("0 0 * * 5#2,1L", "UTC", "At 00:00, on the second Friday of the month and the last Monday of the month, in UTC."),
        ("0 */6 LW,L-2 * ?", "UTC", "At minute 0 of every 6th hour, on the last weekday (Monday to Friday) and the last day but 2 of the month, in UTC."),
        ("* 5 10 * * *", "Etc/UTC", "Every second at minute 5 during hour 10, in Etc/UTC."),
        ("5-10/2,30 * * * *", "UTC", "At every 2nd minute from 5 to 10 and 30 of every hour, in UTC."),
        ("0/15 * * * *", "UTC", "Every 15 minutes of every hour, in UTC."),
        ("5/20 22-6 * December friday-MON", "UTC", "Every 20 minutes from 5 during hours 22 to 6, on Friday to Monday, in December, in UTC."),
        ("0 1,2,3,4,5,6,7 1,15 * *", "UTC", "At minute 0 during hours 1, 2, 3, 4, 5, 6 and 7, on days 1 and 15 of the month, in UTC."),
    ],
)  # fmt: skip
def test_an_expression_says_in_words_when_it_is_due(expression: str, timezone: str, words: str) -> None:
    """Fields, the rule for days, and what a change of the clock does where there are such changes."""
    assert compile_cron(expression, timezone).explain() == words


def test_the_policies_are_said_too() -> None:
    """Whoever set one wants to read it back."""
    words = compile_cron("30 2 * * *", "Europe/Berlin", dst_gap="shift", dst_overlap="both").explain()
    assert "runs later by the length of the gap; one that comes twice runs on both passes" in words


fields = st.sampled_from(
    [
        "*",
        "?",
        "0",
        "5,10",
        "*/2",
        "1-5",
        "1-5/2",
        "H",
        "H/3",
        "L",
        "L-3",
        "15W",
        "LW",
        "MON",
        "JAN-MAR",
        "2#1",
        "5L",
        "*,3",
    ]
)


@given(st.lists(fields, min_size=5, max_size=6).map(" ".join))
def test_whatever_compiles_can_be_explained(expression: str) -> None:
    """One line, ending in a full stop."""
    try:
        cron = compile_cron(expression, "Europe/Berlin", seed="x")
    except CronError:
        return
    assert cron.explain().isprintable()
    assert cron.explain().endswith(".")
