"""What is refused, and whether the message helps: field, value, position, remedy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.cron.expression import CronError, compile_cron
from supervisor.core.errors import EXIT_CONFIG
from tests.kit.tables import table

REFUSED = [
    ("61 * * * *", 'minute "61" at character 1: 61 is not within 0-59; use 0-59'),
    ("0 24 * * *", 'hour "24" at character 3: 24 is not within 0-23'),
    ("0 0 0 * *", 'day-of-month "0" at character 5: 0 is not within 1-31'),
    ("0 0 * 13 *", 'month "13" at character 7'),
    ("0 0 * * 8", 'day-of-week "8" at character 9: 8 is not within 0-7'),
    ("0 0 1,2,32 * *", 'day-of-month "32" at character 9'),
    ("0 22-6/10 * * *", "the step 10 is larger than the range, which has 9 values"),
    ("0 0 * * Frida", "Frida is not a name; did you mean FRI?"),
    ("0 0 * * THUR-SAT", "THUR is not a name; did you mean THU?"),
    ("0 0 * Janua *", "did you mean JAN?"),
    ("0 monday * * *", "monday is not a number"),
    ("*/70 * * * *", "the step 70 is larger than the range, which has 60 values"),
    ("0-10/12 * * * *", "the step 12 is larger than the range, which has 11 values"),
    ("*/0 * * * *", "a step of 0 never moves"),
    ("50/11 * * * *", "the step 11 is larger than the range, which has 10 values"),
    ("¹ * * * *", "only the digits 0-9 are read"),
    ("٣ * * * *", "only the digits 0-9 are read"),
    ("0 0 * * MOM", "MOM is not a name; did you mean MON?"),
    ("0 0 * * XYZ", "use SUN to SAT or a number"),
    ("L * * * *", 'minute "L" at character 1: L (the last day) is for day-of-month only; use 0-59'),
    ("0 0 * * L", "L needs a day of the week; write 5L for the last Friday of the month"),
    ("0 0 L-31 * *", "31 days before the last are not within 1-30"),
    ("0 0 L-0 * *", "0 days before the last are not within 1-30"),
    ("0 0 32W * *", "32 is not within 1-31"),
    ("0 0 L-3W * *", "has no meaning in this field; write L, L-2"),
    ("0 0 1-15W * *", "has no meaning in this field"),
    ("0 0 15W/2 * *", "has no meaning in this field"),
    ("0 0 31W 2 *", "never matches: no day-of-month '31W' exists in month '2'"),
    ("0 0 L-29 2 *", "never matches"),
    ("0 0 1#2 * *", "has no meaning in this field"),
    (
        "0 5L * * *",
        'hour "5L" at character 3: has no meaning in this field; L, W, # and ? belong in the fields of days',
    ),
    ("0 0 * * 1#6", "no month has a weekday number 6; use #1 to #5, or L"),
    ("0 0 * * 1#0", "no month has a weekday number 0"),
    ("0 0 * * 8#1", "8 is not within 0-7"),
    ("0 0 * * MOM#1", "MOM is not a name; did you mean MON?"),
    ("0 0 * * MON-FRI#2", "has no meaning in this field; write 5#2"),
    ("0 0 * * 5L-2", "has no meaning in this field"),
    ("? * * * *", "has no meaning in this field"),
    ("0 0 ?/2 * *", "has no meaning in this field"),
    ("60 * * * * *", 'second "60" at character 1: 60 is not within 0-59'),
    ("*/61 * * * * *", 'second "*/61" at character 1: the step 61 is larger than the range'),
    (
        "0 0 0 1 1 * 2027",
        "7 fields, five are needed: minute hour day-of-month month day-of-week; or six, with seconds in front; there is no field of the year: remove it, and use start_at and end_at",
    ),
    ("0 9 1 1 * 2027", "the first of six fields is that of seconds; there is no field of the year"),
    ("0 9 1 1 ? 2027-2030", "remove it, and use start_at and end_at"),
    ("0 9 ? * MON-FRI *", "the first of six fields is that of seconds"),
    ("5~20 * * * *", 'minute "5~20" at character 1: a random value is another on each replica; write H(5-20)'),
    ("0 ~ * * *", "write H, drawn from the id once"),
    ("H * * * *", "H is drawn from the id of a schedule; use numbers here"),
    ("mon * * * *", "mon is not a number"),
    ("-5 * * * *", "negative numbers have no meaning here"),
    ("*-5 * * * *", "not a value, range or step"),
    ("1.5 * * * *", "not a value, range or step"),
    ("0 0 1,,2 * *", 'day-of-month "" at character 7: an empty element; remove the comma'),
    ("", "0 fields, five are needed"),
    ("9", "1 field, five are needed"),
    ("* * * *", "4 fields, five are needed: minute hour day-of-month month day-of-week"),
    ("0 0\n* * *", "is no plain space"),
    ("0\u00a00 * * *", "at character 2 is no plain space"),
    ("@reboot", "set run_on_create: true"),
    ("@every 5m", "use every: 5m instead of cron"),
    ("@dayly", "did you mean @daily?"),
    ("@nonsense", "use one of @yearly"),
    ("CRON_TZ=Europe/Berln 0 0 * * *", "did you mean Europe/Berlin?"),
    ("TZ= 0 0 * * *", "use an IANA name"),
    ("0 0 31 2 *", "never matches: no day-of-month '31' exists in month '2'"),
    ("0 0 31 4,6,9,11 *", "never matches"),
    ("0 0 30 2 */3", "never matches: no day-of-month '30' and day-of-week '*/3' exists in month '2'"),
    ("9" * 900 + " * * * *", "is not within 0-59"),
    ("*/" + "9" * 900 + " * * * *", "is larger than the range"),
    ("cron(0 10 * * ? *)", "EventBridge's; write its first five fields"),
    ("cron(0 10 ? * MON-FRI *)", "EventBridge's; write its first five fields"),
    ("*" * 2000, "2000 characters; at most 1000 are read"),
]


@table(("expression", "message"), REFUSED)
def test_a_wrong_expression_is_refused_with_the_remedy(expression: str, message: str) -> None:
    """Somebody has to correct it, and sees this line only."""
    with pytest.raises(CronError) as caught:
        compile_cron(expression)
    text = str(caught.value)
    assert message in text
    assert text.isprintable(), "one line, whatever was given"
    assert len(text) < 500
    assert caught.value.exit_code == EXIT_CONFIG


@table(
    ("timezone", "remedy"),
    [("Europe/Berln", "did you mean Europe/Berlin?"), ("berlin", "did you mean Europe/Berlin?"),
     ("america/new york", "did you mean America/New_York?"), ("America", "that is a region; name a place in it"),
     ("", "use an IANA name"), ("../UTC", "not in the time zone database"), ("/etc/localtime", "not in the time zone database"),
     ("localtime", "not in the time zone database"), ("right/UTC", "not in the time zone database"),
     ("UTC\0", "not in the time zone database"), ("zone.tab", "not in the time zone database")],
)  # fmt: skip
def test_an_unknown_zone_is_refused_and_never_becomes_utc(timezone: str, remedy: str) -> None:
    """A schedule in the wrong zone is wrong every day, silently."""
    with pytest.raises(CronError, match="timezone") as caught:
        compile_cron("0 0 * * *", timezone)
    assert remedy in str(caught.value)


@given(st.text(alphabet="0123456789*/,-@LW#?H()MONFEB \t\n\u0663", max_size=30))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    """No input ends in another exception, and what compiles fires."""
    try:
        cron = compile_cron(text, seed="a")
    except CronError:
        return
    assert cron.next(0) is not None
    assert compile_cron(cron.expression).expression == cron.expression
