"""Arguments with placeholders: what a run is told of the time at which it was due."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.calendars.moments import Moment, Span, format_moment
from supervisor.core.model import PAYLOAD_BYTES_MAX
from supervisor.core.schedules.templating import NAMES, TemplateError, check, literal, needs_rendering, render, sample
from tests.kit.tables import table

BERLIN_MS = round(datetime(2026, 10, 25, 1, 30, tzinfo=UTC).timestamp() * 1000)  # 02:30, the second time
ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu", "Pacific/Apia")
nominals = st.integers(-60_000_000_000_000, 250_000_000_000_000)


def filled(text: Any, *, nominal_ms: int = BERLIN_MS, timezone: str = "Europe/Berlin", run: str = "") -> Any:
    """Return what one text becomes."""
    assert check({"a": text}) == []
    return render({"a": text}, schedule="report", nominal_ms=nominal_ms, timezone=timezone, run=run)["a"]


@table(
    ("text", "value"),
    [
        ("{{ nominal }}", "2026-10-25T02:30:00+01:00"),
        ("{{nominal_utc}}", "2026-10-25T01:30:00Z"),
        ("{{ nominal_ms }}", BERLIN_MS),
        ("{{ date }}", "2026-10-25"),
        ("{{ time }}", "02:30:00"),
        ("{{ year }}", 2026),
        ("{{ month }}", 10),
        ("{{ day }}", 25),
        ("{{ hour }}", 2),
        ("{{ minute }}", 30),
        ("{{ second }}", 0),
        ("{{ weekday }}", 7),
        ("{{ schedule }}", "report"),
        ("{{ run }}", f"report@{BERLIN_MS}"),
        ("out/{{ date }}/{{ hour }}.csv", "out/2026-10-25/2.csv"),
        (" {{ hour }}", " 2"),
        ('{{ date | minus:"1d" }}', "2026-10-24"),
        ("{{ date | minus:'2w' }}", "2026-10-11"),
        ('{{ nominal | plus:"1d6h" }}', "2026-10-26T08:30:00+01:00"),
        ('{{ nominal | minus:"1h" }}', "2026-10-25T02:30:00+02:00"),
        ('{{ nominal | start:"hour" }}', "2026-10-25T02:00:00+01:00"),
        ('{{ nominal | start:"day" }}', "2026-10-25T00:00:00+02:00"),
        ('{{ date | start:"week" }}', "2026-10-19"),
        ('{{ date | start:"month" | minus:"1d" }}', "2026-09-30"),
        ('{{ date | start:"year" }}', "2026-01-01"),
        ("{{ hour | utc }}", 1),
        ('{{ nominal | strftime:"%Y%m%dT%H%M%z" }}', "20261025T0230+0100"),
        ('{{ nominal | strftime:"%G-W%V-%u q%q %j 100%%" }}', "2026-W43-7 q4 298 100%"),
    ],
)
def test_each_placeholder_is_filled_in_from_the_nominal_time(text: str, value: Any) -> None:
    """The zone is the schedule's; a text that is one placeholder keeps the type of its value."""
    assert filled(text) == value
    assert type(filled(text)) is type(value)


def test_placeholders_are_found_at_any_depth_and_nothing_else_is_touched() -> None:
    """Lists, mappings, numbers and keys come through as they are."""
    args = {"deep": [{"{{ hour }}": ["{{ hour }}", 1.5, None, True]}], "plain": "a } { b", "n": 3}
    assert needs_rendering(args)
    assert render(args, schedule="s", nominal_ms=BERLIN_MS, timezone="UTC") == {
        "deep": [{"{{ hour }}": [1, 1.5, None, True]}],
        "plain": "a } { b",
        "n": 3,
    }
    assert args["deep"] == [{"{{ hour }}": ["{{ hour }}", 1.5, None, True]}], "the definition is not changed"


def test_arguments_without_braces_need_no_rendering() -> None:
    """The question is asked once for each definition, and most schedules never pay for the feature."""
    assert not needs_rendering({"command": ["make", "report"], "env": {"A": "{}"}, "n": 1})
    assert needs_rendering({"format": r"\{{.Names}}"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"docker ps --format \{{.Names}}", "docker ps --format {{.Names}}"),
        (r"C:\logs\\{{ year }}", "C:\\logs\\2026"),
        (r"\\\{{ year }}", r"\{{ year }}"),
        ("}} closed without opening", "}} closed without opening"),
        (r"one \ two", r"one \ two"),
    ],
)
def test_braces_that_are_meant_as_they_are_can_be_written(text: str, value: str) -> None:
    """Templates of other programs go through arguments too."""
    assert filled(text) == value


@table(
    ("text", "message", "remedy"),
    [
        ("{{ nominl }}", "'nominl' in the placeholder at character 1 is unknown", "did you mean nominal?"),
        ("x {{ Hour }}", "'Hour' in the placeholder at character 3", "did you mean hour?"),
        ("{{ date", "at character 1 is not closed by }}", r"write \{{"),
        ("{{ date }", "at character 1 is not closed by }}", r"write \{{"),
        ("{{ .Names }}", "names nothing that is known here", r"write \{{"),
        ("{{}}", "names nothing", r"write \{{"),
        ("{{ date.year }}", "goes on with '.year '", r"write \{{"),
        ("{{ date __class__ }}", "goes on with '__class__ '", r"write \{{"),
        ("{{ 1 + 1 }}", "names nothing", r"write \{{"),
        ("{{ date | lower }}", "filter 'lower'", "known: minus, plus, start, strftime, utc"),
        ("{{ date | minu:'1d' }}", "filter 'minu'", "did you mean minus?"),
        ("{{ date | minus }}", "filter minus in the placeholder at character 1 got no argument", 'write minus:"1d"'),
        ("{{ date | minus:'1x' }}", "got '1x'", "units are ms s m h d w"),
        ("{{ date | minus:'40000d' }}", "got '40000d'", "at most a hundred years"),
        ("{{ date | start:'decade' }}", "got 'decade'", "minute, hour, day, week, month, year"),
        ("{{ date | utc:'x' }}", "filter utc", "without an argument"),
        ("{{ date | strftime }}", "got no argument", 'write strftime:"%Y%m%d"'),
        ("{{ date | strftime:'%B' }}", "got '%B'", "it knows %Y %m %d"),
        ("{{ date | strftime:'%' }}", "got '%'", "it knows %Y"),
        ("{{ date | strftime:'" + "x" * 65 + "' }}", "65 characters, the limit is 64", "strftime"),
        ("{{ date | strftime:'%Y' | utc }}", "strftime", "move the time first"),
        ("{{ run | utc }}", "'run' in the placeholder at character 1 takes no filter", "an id"),
        ("{{ date" + " | utc" * 9 + " }}", "more than 8 filters", ""),
        ("{{ date | minus:'1d }}", "filter minus in the placeholder at character 1 got no", 'write minus:"1d"'),
    ],
)
def test_what_cannot_be_filled_in_is_refused_with_its_place(text: str, message: str, remedy: str) -> None:
    """Found when the schedule is defined, because at three in the morning nobody reads the log."""
    (fault,) = check({"ok": "{{ date }}", "list": ["fine", {"key": text}]})
    assert fault.path == ("list", 1, "key")
    assert message in fault.message
    assert remedy in fault.remedy
    with pytest.raises(TemplateError, match="schedule report"):
        render({"a": text}, schedule="report", nominal_ms=0, timezone="UTC")


def test_every_fault_is_told_at_once() -> None:
    """A person mends a file once, not once for each mistake."""
    faults = check({"a": "{{ x1 }}", "b": ["{{ hour }}", "{{ x2 }}"], "c": {"d": "{{"}})
    assert [fault.path for fault in faults] == [("a",), ("b", 1), ("c", "d")]


def test_arguments_that_could_outgrow_a_run_are_refused_when_they_are_defined() -> None:
    """A placeholder of seven characters may become a run id of 255."""
    (fault,) = check({"a": "{{run}}" * 1000})
    assert str(PAYLOAD_BYTES_MAX) in fault.message
    assert check({"a": "{{run}}" * 200}) == []


@pytest.mark.parametrize(
    "text", ["\\" * 60_000, "{{" * 30_000, "{{ date | " * 6_000, "{{ date |" + " " * 60_000, r"\{{" * 20_000]
)
def test_hostile_arguments_take_no_time_to_judge(text: str) -> None:
    """Each is linear; a quadratic one would take minutes and run into the timeout."""
    assert isinstance(check({"a": text}), list)


@given(nominal_ms=nominals, timezone=st.sampled_from(ZONES))
def test_the_calendar_is_that_of_the_tz_database(nominal_ms: int, timezone: str) -> None:
    """Every name agrees with ``zoneinfo``, whatever the zone of the machine."""
    at = datetime.fromtimestamp(nominal_ms // 1000, ZoneInfo(timezone))
    args = {name: f"{{{{ {name} }}}}" for name in NAMES}
    got = render(args, schedule="s", nominal_ms=nominal_ms, timezone=timezone)
    fields = [got[name] for name in ("year", "month", "day", "hour", "minute", "second", "weekday")]
    assert fields == [at.year, at.month, at.day, at.hour, at.minute, at.second, at.isoweekday()]
    assert datetime.fromisoformat(got["nominal"]).timestamp() == nominal_ms / 1000
    assert datetime.fromisoformat(got["nominal_utc"]).timestamp() == nominal_ms / 1000


@given(nominal_ms=nominals, timezone=st.sampled_from(ZONES), days=st.integers(0, 800))
def test_a_step_of_days_keeps_the_time_of_day_unless_the_clock_skips_it(
    nominal_ms: int, timezone: str, days: int
) -> None:
    """A step to "yesterday" is a date, not 24 hours: they differ twice a year."""
    moment = Moment(nominal_ms, timezone)
    moved = moment.moved(Span(days, 0))
    before, after = moment.local().replace(tzinfo=None), moved.local().replace(tzinfo=None)
    skipped = after - before
    zoned = datetime.fromtimestamp(nominal_ms // 1000, ZoneInfo(timezone)).replace(tzinfo=None)
    assert (after.date() - zoned.date()).days in {days, days + 1}  # a day that a zone skipped is the next one
    assert skipped.seconds == 0 or skipped.seconds <= 3 * 3600


@given(
    nominal_ms=nominals,
    timezone=st.sampled_from(ZONES),
    unit=st.sampled_from(["minute", "hour", "day", "week", "month", "year"]),
)
def test_the_start_of_a_unit_is_not_later_and_its_own_start(nominal_ms: int, timezone: str, unit: str) -> None:
    """So a period named by its start is named the same by every run in it."""
    moment = Moment(nominal_ms, timezone)
    start = moment.start_of(unit)
    assert start.instant_ms <= moment.instant_ms
    assert start.start_of(unit) == start


@given(nominal_ms=nominals)
def test_letters_are_those_of_strftime_in_the_c_locale(nominal_ms: int) -> None:
    """People know them already. Years are padded to four digits, which ``%Y`` of the C library leaves open."""
    moment = Moment(nominal_ms, "Asia/Kathmandu")
    local = moment.local()
    for letter in "mdHMSfTyjuVz%":
        assert format_moment(moment, f"%{letter}") == local.strftime(f"%{letter}")
    assert format_moment(moment, "%Y %F %G") == f"{local.year:04d} {local.date()} {local.isocalendar().year:04d}"
    assert format_moment(moment, "%s") == str(nominal_ms // 1000)
    assert int(format_moment(moment, "%q")) == (local.month - 1) // 3 + 1


@given(
    args=st.recursive(
        st.text(st.sampled_from("{}\\ |:'\"adtehour%Y")) | st.integers(), lambda inner: st.lists(inner, max_size=3)
    )
)
def test_whatever_passes_the_check_is_rendered(args: Any) -> None:
    """The planner never meets an error that the definition could have shown."""
    if not check({"a": args}):
        done = render({"a": args}, schedule="s", nominal_ms=0, timezone="UTC")
        assert len(msgspec.json.encode(done)) <= PAYLOAD_BYTES_MAX


@pytest.mark.parametrize("nominal_ms", [-(10**17), 10**17])
def test_a_nominal_time_beyond_every_calendar_renders(nominal_ms: int) -> None:
    """It cannot stop the planner, whatever a clock says."""
    assert filled("{{ nominal | plus:'36600d' | minus:'36600d' }}", nominal_ms=nominal_ms)


def test_a_sample_has_the_types_that_runs_get() -> None:
    """A job that takes a number accepts ``{{ hour }}``, and its schedule can be checked before any run."""
    assert sample({"at": "{{ hour }}", "to": "{{ date }}"}, schedule="s", timezone="UTC") == {
        "at": 23,
        "to": "2030-09-25",
    }


def test_the_id_of_a_run_that_is_not_the_scheduled_one_can_be_given() -> None:
    """A run that was triggered by hand, or forced by a backfill, has another."""
    assert filled("{{ run }}", run="report!manual!7") == "report!manual!7"


@given(st.text(alphabet="{}\\a |\"'n", max_size=40))
def test_a_literal_reaches_the_job_as_it_was_written(text: str) -> None:
    """A command of another program may hold braces and backslashes that are none of ours."""
    assert filled(literal(text)) == text
