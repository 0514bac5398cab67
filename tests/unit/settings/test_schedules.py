"""Schedules from what people write to what Redis keeps, and everything that is refused on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from supervisor.core.jobs.limits import limits_of
from supervisor.core.jobs.registry import Registry, job
from supervisor.core.model import CalendarInterval, Exclusion, ScheduleDef, When
from supervisor.core.schedules.templating import render
from supervisor.core.schedules.triggers import trigger_of
from supervisor.settings.document import Node, wrap
from supervisor.settings.schedules.definitions import validate_schedules
from tests.kit.tables import table

Problems = Callable[[str], list[str]]


def clean(path: str, count: int = 1) -> None:
    """Be a job with a required and an optional argument."""


def once(path: str = "") -> None:
    """Be a job that is delivered at most once."""


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Return a registry of its own with two jobs."""
    own = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", own)
    job("files.clean", timeout=100.0)(clean)
    job("files.once", delivery="at_most_once")(once)
    return own


def define(known: Registry, **fields: Any) -> ScheduleDef:
    """Return the definition of a schedule that must be right."""
    entry = {"job": "files.clean", "args": {"path": "/a"}} | fields
    found = validate_schedules({"a": entry}, known=known)
    assert found.problems == ()
    return found.definitions[0]


def refusals(known: Registry, **fields: Any) -> list[str]:
    """Return what is wrong with a schedule, without the place."""
    entry = {"job": "files.clean", "args": {"path": "/a"}} | fields
    found = validate_schedules({"a": entry}, known=known)
    return [str(problem).removeprefix("input: schedules.") for problem in found.problems]


# --- what is accepted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "key"), [({}, "acme"), ({"p": "other"}, "other"), ({"p": "{{ date }}"}, "1970-01-01")]
)
def test_a_default_that_a_limit_names_is_part_of_what_a_run_needs(
    known: Registry, args: dict[str, Any], key: str
) -> None:
    """The same job without arguments can be enqueued; as a schedule it never fired."""

    @job("partner.sync", concurrency=("{p}", 1))
    def sync(p: str = "acme", other: int = 1) -> None: ...

    template = define(known, job="partner.sync", args=args, every="1h").template
    assert template.args == {"p": "acme"} | args
    rendered = msgspec.structs.replace(
        template, args=render(template.args, schedule="a", nominal_ms=1, timezone="UTC", run="a@1")
    )
    assert limits_of(rendered).concurrency == f"partner.sync:{key}"


def test_intervals_of_the_calendar_reach_the_definition(known: Registry) -> None:
    """Beside other triggers too; weeks are days, and dates are counted from 1970."""
    of_entry = {"months": 3, "from": "1970-02-28", "time": "09:00:30", "short_month": "skip"}
    definition = define(
        known,
        cron="0 0 * * *",
        calendar_interval={"weeks": 2, "from": "1970-01-05"},
        when=[{"calendar_interval": of_entry, "timezone": "Asia/Tokyo"}],
    )

    assert definition.when == (
        When(calendar_interval=CalendarInterval(from_day=4, days=14)),
        When(
            calendar_interval=CalendarInterval(from_day=58, months=3, time_s=32_430, skips_short_months=True),
            timezone="Asia/Tokyo",
        ),
    )


def test_every_field_reaches_the_definition(known: Registry) -> None:
    """Each by the name it is written with, durations in milliseconds."""
    definition = define(
        known, every="1h", phase="5m", anchor="start_at", timezone="Europe/Berlin", dst_gap="shift", dst_overlap="both",
        start_at="2026-11-20T10:00", end_at="2027-11-20T10:00:00.5Z", max_runs=7, jitter="30s", jitter_mode="per_fire",
        overlap="buffer_all", max_running=2, buffer_limit=5, cancel_grace="10s", missed="all", catchup_window="7d",
        max_catchup=9, start_deadline="90s", paused=True, pause_reason="later", on_resume="catchup", on_change="run_now",
        pause_after_failures=3, run_on_create=True, retain_completed="1d", renamed_from="old", labels={"team": "x"},
        owner="me", description="hi", queue="q", priority="high", timeout="5s", retries=4,
    )  # fmt: skip
    expected = ScheduleDef(
        id="a", template=definition.template, every_ms=3_600_000, phase_ms=300_000, anchor="start_at",
        timezone="Europe/Berlin", dst_gap="shift", dst_overlap="both", start_at_ms=1_795_165_200_000,
        end_at_ms=1_826_704_800_500, max_runs=7, jitter_ms=30_000, jitter_mode="per_fire", overlap="buffer_all",
        max_running=2, buffer_limit=5, cancel_grace_ms=10_000, missed="all", catchup_window_ms=604_800_000, max_catchup=9,
        start_deadline_ms=90_000, paused=True, pause_reason="later", on_resume="catchup", on_change="run_now",
        pause_after_failures=3, run_on_create=True, retain_completed_ms=86_400_000, renamed_from="old",
        labels={"team": "x"}, owner="me", description="hi",
    )  # fmt: skip
    assert definition == expected
    template = definition.template
    assert (template.queue, template.priority, template.timeout_s, template.retry.attempts) == ("q", 0, 5.0, 5)


def test_what_is_left_out_has_the_defaults_of_the_definition(known: Registry) -> None:
    """One list of defaults, or two that agree."""
    definition = define(known, cron="30 2 * * *")
    assert definition == ScheduleDef(id="a", template=definition.template, cron="30 2 * * *")


def test_several_triggers_are_a_union(known: Registry) -> None:
    """Beside one another, in a list, or both."""
    definition = define(
        known, every="1h", cron="30 2 * * *", at="2027-01-01T00:00Z", after_completion="10m",
        when=[{"cron": "0 9 * * *", "timezone": "Asia/Tokyo"}, {"every": "2h", "phase": "1m"}, {"at": "2027-01-02T09:00"}],
        timezone="Europe/Berlin",
    )  # fmt: skip
    assert definition.every_ms == 3_600_000
    assert definition.when == (
        When(cron="30 2 * * *"), When(at_ms=1_798_761_600_000), When(after_completion_ms=600_000),
        When(cron="0 9 * * *", timezone="Asia/Tokyo"), When(every_ms=7_200_000, phase_ms=60_000), When(at_ms=1_798_876_800_000),
    )  # fmt: skip
    only = define(known, when=[{"every": "1h"}, {"cron": "0 9 * * *"}])
    assert (only.every_ms, only.cron, len(only.when)) == (None, None, 2)
    assert trigger_of(only).describe() == "every 1h; cron 0 9 * * * UTC"


def test_sugar_is_taken_out_of_expressions(known: Registry) -> None:
    """``@every`` is an interval, a prefix is the zone; what is stored has neither."""
    assert define(known, cron="@every 1h30m", phase="1m") == define(known, every="90m", phase="1m")
    prefixed = define(known, cron="CRON_TZ=Asia/Tokyo 0 9 * * *", start_at="2027-01-01T00:00")
    assert (prefixed.cron, prefixed.timezone, prefixed.start_at_ms) == ("0 9 * * *", "Asia/Tokyo", 1_798_729_200_000)
    listed = define(known, timezone="Europe/Berlin", when=[{"cron": "TZ=Asia/Tokyo 0 9 * * *"}, {"cron": "@every 5m"}])
    assert listed.when == (When(cron="0 9 * * *", timezone="Asia/Tokyo"), When(every_ms=300_000))


def test_exclusions_can_be_written_short(known: Registry) -> None:
    """Days, ranges of days that include both ends, instants, expressions."""
    definition = define(
        known, every="1h", timezone="Europe/Berlin",
        exclude=["2026-12-25", "2026-12-30/2027-01-01", "* 22-23 * * *", {"from": "2027-05-01T08:00", "until": "2027-05-01T09:00"},
                 {"date": "2026-03-29"}, {"cron": "* * * * SUN"}],
    )  # fmt: skip
    day = 86_400_000
    christmas = 1_798_153_200_000  # 2026-12-25T00:00+01:00
    assert definition.exclude == (
        Exclusion(from_ms=christmas, until_ms=christmas + day),
        Exclusion(from_ms=christmas + 5 * day, until_ms=christmas + 8 * day),
        Exclusion(cron="* 22-23 * * *"),
        Exclusion(from_ms=1_809_151_200_000, until_ms=1_809_154_800_001),
        Exclusion(from_ms=1_774_738_800_000, until_ms=1_774_738_800_000 + 23 * 3_600_000),
        Exclusion(cron="* * * * SUN"),
    )


def test_placeholders_are_checked_and_kept(known: Registry) -> None:
    """The signature is asked about what a run will get; what is stored still has the braces."""
    definition = define(known, every="1h", args={"path": "/x/{{ date }}", "count": "{{ hour }}"})
    assert definition.template.args == {"path": "/x/{{ date }}", "count": "{{ hour }}"}
    assert "unknown; did you mean nominal?" in refusals(known, every="1h", args={"path": "{{ nominl }}"})[0]
    assert "int" in refusals(known, every="1h", args={"path": "a", "count": "{{ date }}"})[0]


# --- what is refused ------------------------------------------------------------------------------------------


@table(
    ("fields", "message"),
    [
        ({}, "a: has none of every, cron, calendar_interval, at, after_completion, when and after; add one, e.g. every: 10m"),
        ({"every": "99ms"}, "a.every: must be at least 100ms, got '99ms'"),
        ({"cron": "@every 50ms"}, "a.cron: '@every 50ms' is shorter than 100ms; use @every 100ms or more"),
        ({"cron": "@every soon"}, "a.cron: @every: 'soon' is not a duration; write 250ms, 15s, 5m, 2h or 7d"),
        ({"cron": "@every 5m", "every": "5m"}, "a.cron: is an interval, as every is; remove one of them"),
        ({"cron": "@reboot"}, "set run_on_create: true for one run when the schedule is new"),
        ({"cron": "0 0 31 2 *"}, 'a.cron: cron "0 0 31 2 *": never matches'),
        ({"cron": "TZ=Asia/Tokyo 0 9 * * *", "timezone": "UTC"}, 'a.cron: cron "TZ=Asia/Tokyo 0 9 * * *": names a zone, and timezone is UTC'),
        ({"cron": "TZ=Asia/Tokio 0 9 * * *"}, "a.cron: timezone 'Asia/Tokio' is not in the time zone database; did you mean Asia/Tokyo?"),
        ({"cron": "0 9 * * *", "timezone": ""}, "a.timezone: timezone '' is not in the time zone database"),
        ({"cron": "0 9 * * *", "phase": "5m"}, "a.phase: has no effect without every; remove it"),
        ({"cron": "0 9 * * *", "anchor": "start_at"}, "a.anchor: is start_at, which is not set"),
        ({"cron": "0 9 * * *", "anchor": "start_at", "start_at": "2027-01-01T00:00Z"}, "a.anchor: has no effect without every"),
        ({"at": "2027-01-01"}, "a.at: '2027-01-01' is not a date and time; add a time, such as T00:00"),
        ({"at": "tomorrow"}, "a.at: 'tomorrow' is not a date and time; write 2027-01-01T09:00:00+01:00"),
        ({"at": "2027-02-29T00:00Z"}, "a.at: '2027-02-29T00:00Z' is not in the calendar"),
        ({"at": "2026-03-29T02:30", "timezone": "Europe/Berlin"}, "a.at: '2026-03-29T02:30' does not exist in Europe/Berlin, whose clocks skip it; write it with an offset"),
        ({"at": "2026-10-25T02:30", "timezone": "Europe/Berlin"}, "a.at: '2026-10-25T02:30' comes twice in Europe/Berlin"),
        ({"at": "2026-01-01T00:00Z", "start_at": "2026-01-01T00:01Z"}, "a.at: 2026-01-01T00:00Z lies outside start_at and end_at, so it is never due"),
        ({"every": "1h", "start_at": "2027-01-02T00:00Z", "end_at": "2027-01-01T00:00Z"}, "a.end_at: 2027-01-01T00:00Z lies before start_at, 2027-01-02T00:00Z; swap them"),
        ({"every": "1h", "start_at": "2027-01-01T00:10Z", "end_at": "2027-01-01T00:20Z"}, "a.end_at: leaves no due time; move start_at and end_at apart"),
        ({"every": "1h", "exclude": ["2026-12-32"]}, "a.exclude[0].date: '2026-12-32' is not a day; write 2026-12-25"),
        ({"every": "1h", "exclude": ["2026-12-26/2026-12-25"]}, "a.exclude[0].until: 2026-12-25 lies before from, 2026-12-26; swap them"),
        ({"every": "1h", "exclude": [{"from": "2026-12-26"}]}, "a.exclude[0]: has only one end; give both from and until"),
        ({"every": "1h", "exclude": [{"date": "2026-12-26", "cron": "* * * * *"}]}, "a.exclude[0]: must have exactly one of calendar, cron, date, and from with until"),
        ({"every": "1h", "exclude": ["99 * * * *"]}, 'a.exclude[0].cron: cron "99 * * * *": minute "99"'),
        ({"every": "1h", "exclude": ["@every 5m"]}, "a.exclude[0].cron: is an interval, which excludes nothing"),
        ({"every": "1h", "exclude": ["* * * * *"]}, "a.exclude: leaves no due time; exclude less"),
        ({"at": "2026-12-25T12:00Z", "exclude": ["2026-12-25"]}, "a.exclude: leaves no due time; exclude less"),
        ({"when": [{"every": "1h", "cron": "* * * * *"}]}, "a.when[0]: has every and cron; give each entry of the list exactly one"),
        ({"when": [{"every": "1h"}, {}]}, "a.when[1]: has none of every, cron, calendar_interval, at and after_completion"),
        ({"calendar_interval": {"weeks": 2, "days": 1, "from": "2026-11-23"}}, "a.calendar_interval: has days and weeks; give exactly one, such as weeks: 2"),
        ({"calendar_interval": {"from": "2026-11-23"}}, "a.calendar_interval: has none of days, weeks and months"),
        ({"calendar_interval": {"weeks": 2}}, "a.calendar_interval: has no first day; add one to count from, such as from: 2026-11-23"),
        ({"calendar_interval": {"weeks": 2, "from": "2026-02-30"}}, "a.calendar_interval.from: '2026-02-30' is not a day from 1970 to 9986"),
        ({"calendar_interval": {"weeks": 2, "from": "9999-12-31"}}, "a.calendar_interval.from: '9999-12-31' is not a day from 1970 to 9986"),
        ({"calendar_interval": {"weeks": 2, "from": "2026-11-23", "time": "9:00"}}, "a.calendar_interval.time: '9:00' is not a time of day; write 09:00"),
        ({"calendar_interval": {"days": 2, "from": "2026-11-23", "short_month": "skip"}}, "a.calendar_interval.short_month: has no effect without months; remove it"),
        ({"calendar_interval": {"days": 0, "from": "2026-11-23"}}, "a.calendar_interval.days: must be at least 1, got 0"),
        ({"when": [{"calendar_interval": {"days": 2, "from": "2026-11-23"}, "every": "1h"}]}, "a.when[0]: has every and calendar_interval; give each entry of the list exactly one"),
        ({"calendar_interval": {"days": 2, "from": "2026-11-23"}, "end_at": "2026-11-01T00:00Z"}, "a.end_at: leaves no due time"),
        ({"when": [{"every": "1h", "timezone": "UTC"}]}, "a.when[0].timezone: is for cron and calendar_interval only; remove it"),
        ({"when": [{"cron": "0 0 * * *", "timezone": "Nowhere/At"}]}, "a.when[0].timezone: timezone 'Nowhere/At' is not"),
        ({"every": "1h", "overlap": "skip", "buffer_limit": 4}, "a.buffer_limit: has no effect on overlap: skip; use overlap: buffer_all"),
        ({"every": "1h", "overlap": "buffer_one", "buffer_limit": 4}, "a.buffer_limit: has no effect on overlap: buffer_one"),
        ({"every": "1h", "missed": "some"}, "a.missed: must be latest, earliest, all or skip, got 'some'"),
        ({"every": "1h", "max_runs": 0}, "a.max_runs: must be at least 1, got 0"),
        ({"every": "1h", "max_running": True}, "a.max_running: must be a whole number, got true"),
        ({"every": "1h", "max_running": 1001}, "a.max_running: must be at most 1000, got 1001"),
        ({"every": "1h", "max_catchup": 10_001}, "a.max_catchup: must be at most 10000, got 10001"),
        ({"every": "1h", "jitter": 30}, "a.jitter: is not a duration, got 30; write 30s if seconds are meant"),
        ({"every": "1h", "catchup_window": "-1s"}, "a.catchup_window: is not a duration, got '-1s'"),
        ({"every": "1h", "catchup_window": "0s"}, "a.catchup_window: 0s is shorter than two lease durations (10s), which a hand-over may take; write 10s or more, or leave it out for no limit"),
        ({"every": "1h", "paused": "yes"}, "a.paused: must be true or false, got 'yes'"),
        ({"every": "1h", "labels": {"a": 1}}, "a.labels.a: must be text, got 1; quote it"),
        ({"every": "1h", "renamed_from": "a"}, "a.renamed_from: 'a' is this schedule itself"),
        ({"every": "P1M"}, "a.every: is not a duration, got 'P1M'; years and months have no fixed length; write days, such as 30d"),
        ({"every": "2 days"}, "write 2d"),
        ({"every": "1 week"}, "write 1w"),
        ({"every": "1h", "tz": "UTC"}, "a.tz: is not a setting; did you mean timezone?"),
        ({"every": "1h", "enabled": False}, "a.enabled: is not a setting; write paused: true"),
        ({"every": "1h", "enabled": True}, "a.enabled: is not a setting; remove it: a schedule is due unless it says paused"),
        ({"every": "1h", "suspend": True}, "a.suspend: is not a setting; write paused: true"),
        ({"every": "1h", "schedule": "0 9 * * *"}, "a.schedule: is not a setting; did you mean cron?"),
        ({"every": "1h", "interval": "1h"}, "a.interval: is not a setting; did you mean every?"),
        ({"every": "1h", "concurrencyPolicy": "Forbid"}, "a.concurrencyPolicy: is not a setting; did you mean overlap?"),
        ({"every": "1h", "max_instances": 1}, "a.max_instances: is not a setting; did you mean max_running?"),
        ({"every": "1h", "startingDeadlineSeconds": 9}, "a.startingDeadlineSeconds: is not a setting; did you mean start_deadline?"),
        ({"cron": "rate(5 minutes)"}, "is not a cron expression; that is EventBridge's; write every: 5m instead of cron"),
        ({"cron": "Mon..Fri *-*-* 09:00"}, "that is systemd's OnCalendar; write \"0 9 * * MON-FRI\""),
        ({"cron": "R/2027-01-01T00:00:00Z/PT1H"}, "that is ISO 8601's; write every: 1h with start_at instead of cron"),
        ({"cron": "RRULE:FREQ=DAILY;BYHOUR=9"}, "that is iCalendar's; write every: 1d, or a cron expression"),
        ({"cron": "0 9 * * *", "timezone": "Factory"}, "use an IANA name such as Europe/Berlin or UTC"),
        ({"cron": "0 9 * * *", "timezone": "localtime"}, "use an IANA name such as Europe/Berlin or UTC"),
        ({"every": "1h", "jiter": "1s"}, "a.jiter: is not a setting; did you mean jitter?"),
        ({"every": "1h", "job": "files.claen"}, "a.job: no job is called 'files.claen'; did you mean files.clean?"),
        ({"every": "1h", "args": {}}, "a.args: job files.clean"),
        ({"every": "1h", "labels": {f"l{n}": "x" * 1000 for n in range(64)}, "description": "x" * 9000}, "bytes as Redis keeps it, of 65536 allowed; shorten args, exclude, labels or the description"),
        ({"every": "1h", "job": "files.once", "retries": 1}, "a.retries: 1 cannot be: job files.once runs at most once"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused_with_its_path_value_and_remedy(
    fields: dict[str, Any], message: str, known: Registry
) -> None:
    """One problem, from files, from the command line and from the API alike: they all come through here."""
    (problem,) = refusals(known, **fields)
    assert message in problem


def test_a_wrong_entry_in_a_list_is_no_setting_of_another_name(known: Registry) -> None:
    """Lists are not merged, so their entries are judged by the model alone; the message is the same."""
    (problem,) = refusals(known, when=[{"evry": "1h"}])
    assert "a.when[0].evry: is not a setting" in problem


def test_fifty_mistakes_in_thousands_are_the_fifty_that_are_listed(known: Registry) -> None:
    """In their order, whatever kind each is, and the other entries are ready beside them."""
    entry = {"job": "files.clean", "cron": "H 3 * * *", "timezone": "Europe/Berlin", "args": {"path": "x"}}
    entries: dict[str, dict[str, Any]] = {f"s{n}": dict(entry) for n in range(2_500)}
    mistakes = [("cron", "99 * * * *"), ("every", "1ms"), ("job", "nope"), ("args", {}), ("end_at", "never")]
    wrong = [f"s{n}" for n in range(7, 2_500, 50)]
    for index, name in enumerate(wrong):
        key, value = mistakes[index % len(mistakes)]
        entries[name][key] = value
    done: list[int] = []
    found = validate_schedules(entries, known=known, where="plan.json", progress=done.append)
    assert [problem.path.split(".")[1] for problem in found.problems] == wrong
    assert [problem.path.split(".")[2] for problem in found.problems[:5]] == [key for key, _ in mistakes]
    assert {problem.where for problem in found.problems} == {"plan.json"}
    assert len(found.definitions) == 2_500 - 50
    assert done == [1000, 2000, 2500]


def test_problems_name_the_line_where_entries_know_theirs(known: Registry) -> None:
    """``apply -f`` hands over nodes; each line of an NDJSON file is one."""
    good = {"job": "files.clean", "every": "1h", "args": {"path": "x"}}
    found = validate_schedules(
        {"a": wrap(good, "plan.ndjson:1"), "b": Node({"job": Node("nope", "plan.yaml:7")}, "plan.yaml:6")}, known=known
    )
    assert [definition.id for definition in found.definitions] == ["a"]
    assert [str(problem).split(": ")[0] for problem in found.problems] == ["plan.yaml:6"]


@pytest.mark.parametrize("name", ["", "a b", "x" * 201, "ä", "a,b", "a@b"])
def test_an_id_that_no_key_could_hold_is_refused(name: str, known: Registry) -> None:
    """It is part of run ids and of keys."""
    (problem,) = validate_schedules({name: {"job": "files.clean", "every": "1h"}}, known=known).problems
    assert "must be 1 to 200 of letters, digits and . _ : / -" in str(problem)


def test_the_same_rules_hold_in_files(problems_of: Problems) -> None:
    """One way in: the messages are those of the command line, with the line of the file."""
    lines = problems_of(
        "schedules:\n"
        "  a:\n    job: x\n    cron: 0 9 * * *\n    start_at: 2027-01-02T00:00Z\n    end_at: 2027-01-01T00:00Z\n"
        "  b:\n    job: x\n    every: 1h\n    exclude: [2026-12-25, 2026-13-01]\n"
    )
    assert lines == [
        "tenure.yaml:6: schedules.a.end_at: 2027-01-01T00:00Z lies before start_at, 2027-01-02T00:00Z; swap them",
        "tenure.yaml:10: schedules.b.exclude[1].date: '2026-13-01' is not a day; write 2026-12-25",
    ]


def test_the_scheduler_has_settings_of_its_own(desk: Any) -> None:
    """How fast an outage is caught up, and whether a file without schedules empties the plan."""
    desk.add("scheduler: {catchup_rate: 50, allow_empty_static: true}\n")
    scheduler = desk.load().settings.scheduler
    assert (scheduler.catchup_rate, scheduler.allow_empty_static) == (50, True)


def test_ids_that_begin_alike_or_look_like_paths_are_told_apart(known: Registry) -> None:
    """A mistake in one must not hide the others, or be listed in another's place."""
    good = {"job": "files.clean", "every": "1h", "args": {"path": "x"}}
    names = ["a", "a.cron", "ab", "a/b", "a:b.c", "x.y", "x"]
    for wrong in names:
        found = validate_schedules(
            {name: good | ({"cron": "9"} if name == wrong else {}) for name in names}, known=known
        )
        assert [problem.remedy for problem in found.problems] == ['write "30 2 * * *" for 02:30']
        assert [definition.id for definition in found.definitions] == [name for name in names if name != wrong]
