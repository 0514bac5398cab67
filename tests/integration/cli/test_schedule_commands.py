"""``tenure schedule list|show|next|preview|explain|trigger|pause|resume|backfill|delete``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.core.schedules.triggers import trigger_of
from supervisor.store.schedules.definitions import Change, Definitions
from tests.integration.cli.conftest import HOUR_MS, START_MS, ClusterWithJobs, queued
from tests.kit.builders import schedule

pytestmark = [pytest.mark.server]


def listed(desk: ClusterWithJobs, *arguments: str) -> list[str]:
    return [row["schedule"] for row in desk.tenure("list", "-o", "json", *arguments).json()]


def test_list_filters_by_label_prefix_kind_and_pause(applied: ClusterWithJobs) -> None:
    """And shows an override."""
    assert listed(applied) == ["hourly", "nightly", "reports/daily"]
    assert listed(applied, "--label", "team=reports") == ["hourly", "reports/daily"]
    assert listed(applied, "--prefix", "reports/") == ["reports/daily"]
    assert listed(applied, "--kind", "static") == []
    assert listed(applied, "--paused") == []
    applied.tenure("pause", "nightly", "--reason", "moving", "--for", "2h")
    (row,) = applied.tenure("list", "--paused", "-o", "json").json()
    assert (row["schedule"], row["kind"], row["paused"]["reason"], row["next"]) == (
        "nightly",
        "dynamic",
        "moving",
        None,
    )
    table = applied.tenure("list").out
    assert "paused: moving, ends in 1h 59m" in table
    assert "Mail of the night" in table


def test_a_table_shows_control_characters_and_does_not_send_them(applied: ClusterWithJobs) -> None:
    """A description comes from whoever may apply schedules, and must not steer the terminal of who lists them."""
    text = 'red: {job: report.make, every: 1h, description: "a\\e[31mred\\a ü"}\n'
    assert applied.tenure("apply", "-f", applied.write("red.yaml", text)).code == 0
    table = applied.tenure("list", "--prefix", "red").out
    assert "a\\x1b[31mred\\x07 ü" in table
    assert "\x1b" not in table


def test_show_tells_why_runs_were_skipped_and_missed(applied: ClusterWithJobs) -> None:
    """In words, newest first, with counters, unfinished runs and what waits."""
    hours = [START_MS + n * HOUR_MS for n in range(10)]
    lines = [
        f"F{hours[9]} 0 1 12 1",
        f"S{hours[6]} {2 * HOUR_MS} 3 12 1",
        f"Mp{hours[1]} {5 * HOUR_MS} 4 12 1",
        f"F{hours[0]} {HOUR_MS} 2 12 1",
        f"Ml0 {START_MS - HOUR_MS} 0 12 0",
    ]
    applied.decided("hourly", mark_ms=hours[9], state="3 3 4 0 0 0 0 0 0 0 0 1\n" + "\n".join(lines))
    applied.world.raw.hset(applied.world.keys.schedule_live, "hourly", f"reports hourly@{hours[9]}")
    applied.world.raw.rpush(applied.world.keys.schedule_buffer("hourly"), hours[8])
    shown = applied.tenure("show", "hourly", "-o", "json").json()

    assert shown["decisions"][1:3] == [
        "skipped 3 runs from 2026-11-01T06:00:00.000Z to 2026-11-01T08:00:00.000Z because an earlier one was running (decided 2026-11-01T08:00:00.012Z)",
        "missed 4 runs after 2026-11-01T01:00:00.000Z until 2026-11-01T06:00:00.000Z: several were due at once, and the missed policy runs fewer (decided 2026-11-01T06:00:00.012Z)",
    ]
    lost = "not known until 2026-10-31T23:00:00.000Z: Redis lost its data (found 2026-10-31T23:00:00.012Z)"
    assert shown["decisions"][-1] == lost
    assert shown["counters"] == {"fired": 3, "skipped": 3, "missed": 4}
    assert shown["live_runs"] == [f"hourly@{hours[9]}"]
    assert shown["buffered"] == ["2026-11-01T08:00:00.000Z"]
    assert len(shown["next"]) == 5
    assert shown["definition"]["template"]["job"] == "report.make"
    assert "skipped 3 runs" in applied.tenure("show", "hourly").out


def test_next_is_what_then_fires_across_a_change_of_the_clock(applied: ClusterWithJobs) -> None:
    """``next`` asks the trigger that the leader asks; the local time shows the change."""
    rows = applied.tenure("next", "nightly", "--count", "3", "--from", "2027-03-27T00:00Z", "-o", "json").json()

    definition = applied.world.stored()["nightly"].definition
    fires = list(trigger_of(definition).nominals(rows[0]["nominal_ms"] - 1, 1 << 60, 3))
    assert [row["nominal_ms"] for row in rows] == fires
    assert [row["local"][:16] for row in rows] == ["2027-03-27T02:30", "2027-03-28T03:00", "2027-03-29T02:30"]


def test_next_shows_the_fire_apart_from_the_nominal_time_where_there_is_jitter(applied: ClusterWithJobs) -> None:
    """Identity and moment are two things."""
    (row,) = applied.tenure("next", "reports/daily", "-n", "1", "-o", "json").json()
    assert row["nominal"] < row["fire"]


def test_next_knows_max_runs_and_what_is_over(applied: ClusterWithJobs) -> None:
    """It lists what will fire: what is left of ``max_runs``, and nothing of a schedule that is completed."""
    text = "few: {job: report.make, every: 1h, max_runs: 3}\nafter: {job: report.make, after_completion: 10m}\n"
    applied.tenure("apply", "-f", applied.write("few.yaml", text))
    applied.decided("few", mark_ms=START_MS, state="1 0 0 0 0 0 0 0 0 0 0 0")
    assert len(applied.tenure("next", "few", "-o", "json").json()) == 2
    assert len(applied.tenure("next", "few", "--from", "2026-11-01", "-o", "json").json()) == 5

    applied.decided("few", mark_ms=START_MS, state=f"3 0 0 0 0 0 0 0 0 0 {START_MS} 0")
    assert applied.tenure("next", "few").out == "few is never due again\n"
    shown = applied.tenure("show", "few", "-o", "json").json()
    assert (shown["status"], "next" in shown) == ("completed", False)
    assert applied.tenure("next", "after").out == "after is due 10m after a run of it has ended\n"


def test_preview_of_something_unsaved_uses_the_same_code(applied: ClusterWithJobs) -> None:
    """An expression, an interval, a file; mistakes are those of a configuration."""
    arguments = ("--from", "2027-03-27T00:00Z", "-n", "3", "-o", "json")
    saved = applied.tenure("next", "nightly", *arguments).json()
    unsaved = applied.tenure("preview", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin", *arguments).json()
    filed = applied.tenure("preview", "-f", "s.yaml", "nightly", *arguments).json()
    every = applied.tenure("preview", "--every", "90m", "--from", "2026-11-01", "-n", "2", "-o", "json").json()

    assert [row["nominal"] for row in saved] == [row["nominal"] for row in unsaved] == [row["nominal"] for row in filed]
    assert [row["nominal"] for row in every] == ["2026-11-01T01:30:00.000Z", "2026-11-01T03:00:00.000Z"]
    wrong = applied.tenure("preview", "--cron", "61 * * * *")
    assert (wrong.code, "61 is not within 0-59" in wrong.err) == (78, True)
    assert applied.tenure("preview").code == 2


def test_explain_says_it_in_words_and_what_to_watch_out_for(applied: ClusterWithJobs) -> None:
    """The rule of two day fields, the gap of the clock with its date, and how many others are due in that second."""
    spoken = applied.tenure("explain", "0 3 1 * MON").out
    assert "on day 1 of the month or on Monday" in spoken
    assert "day-of-month 1 OR day-of-week MON" in spoken
    gap = applied.tenure("explain", "nightly").out
    assert "falls into a gap of the clock on" in gap
    assert "dst_gap run, so it runs as the gap ends" in gap
    applied.decided("hourly", mark_ms=START_MS)
    applied.decided("nightly", mark_ms=START_MS)
    assert "1 other schedule is due in the same second" in applied.tenure("explain", "hourly").out


def test_a_pause_until_an_instant_that_has_passed_is_a_mistake_of_usage(applied: ClusterWithJobs) -> None:
    """It says so with the instant, and pauses nothing."""
    result = applied.tenure("pause", "hourly", "--until", "2020-01-01T00:00Z")
    assert (result.code, "--until 2020-01-01T00:00:00.000Z has passed" in result.err) == (2, True)
    assert listed(applied, "--paused") == []


def test_a_pause_needs_no_reload_and_names_who_asked(applied: ClusterWithJobs) -> None:
    """Static or dynamic; by label after a question."""
    result = applied.tenure("pause", "hourly", "nobody", "--reason", "why not")
    assert result.code == 1
    assert "no schedule is called 'nobody'" in result.err
    record = applied.show("hourly").record
    assert record is not None
    assert record.pause is not None
    assert record.pause.reason == "why not"
    assert "@" in record.pause.by
    assert applied.tenure("pause", "--label", "team=reports", stdin="n\n").code == 1
    assert listed(applied, "--paused") == ["hourly"]
    assert applied.tenure("pause", "--label", "team=reports", "--yes").code == 0
    assert listed(applied, "--paused") == ["hourly", "reports/daily"]
    assert applied.tenure("resume", "--all", "--yes").code == 0
    assert listed(applied, "--paused") == []
    for wrong in (["pause"], ["pause", "a", "--all"], ["pause", "a", "--for", "1h", "--until", "2027-01-01"]):
        assert applied.tenure(*wrong).code == 2


def test_a_pause_of_a_selection_makes_none_shorter_and_says_so(applied: ClusterWithJobs) -> None:
    """Somebody stopped one for good. Whoever names it may still do so."""
    assert applied.tenure("pause", "hourly").code == 0
    result = applied.tenure("pause", "--all", "--for", "1h", "--yes", "-o", "json")
    ends = {row["schedule"]: (row["result"], row["until"] is None) for row in result.json()}
    assert ends == {"hourly": ("kept", True), "nightly": ("paused", False), "reports/daily": ("paused", False)}
    assert "1 of 3 were paused for longer, and still are" in result.err
    named = applied.tenure("pause", "hourly", "--for", "1h", "-o", "json")
    assert ([row["result"] for row in named.json()], named.err) == (["paused"], "")


def test_resuming_a_selection_tells_whose_pauses_end(applied: ClusterWithJobs) -> None:
    """After a maintenance of one's own it also ends those of definitions, plugins and other people, for good."""
    keys, raw = applied.world.keys, applied.world.raw
    told = "3 paused: 1 by definitions, 1 by plugins, 1 by others"
    for name, author in {"nightly": "definition", "hourly": "plugin crm", "reports/daily": "kim@desk"}.items():
        raw.hset(keys.schedule_paused, name, json.dumps({"reason": "", "by": author, "at_ms": 1}))

    asked = applied.tenure("resume", "--all", stdin="n\n")
    assert asked.code == 1
    assert f"Resume 3 schedules ({told})?" in asked.err
    assert len(listed(applied, "--paused")) == 3

    raw.hdel(keys.schedule_paused, "nightly")
    assert applied.tenure("pause", "nightly").code == 0
    some = applied.tenure("resume", "--label", "team=reports", stdin="n\n")
    assert "Resume 2 schedules (2 paused: 1 by plugins, 1 by others)?" in some.err

    raw.hset(keys.schedule_paused, "hourly", json.dumps({"by": "tenure", "at_ms": 1}))
    done = applied.tenure("resume", "--all", "--yes")
    assert "note: of 3 schedules 3 paused: 1 by you, 1 by failures in a row, 1 by others" in done.err
    assert "Resume 3 schedules (none is paused)?" in applied.tenure("resume", "--all", stdin="n\n").err


def test_a_trigger_prints_the_run_and_a_key_makes_it_the_same_run(applied: ClusterWithJobs) -> None:
    """Placeholders are filled in from the moment it is asked for; arguments may be replaced."""
    first = applied.tenure("trigger", "hourly")
    assert first.out.startswith("hourly!manual!")
    keyed = [applied.tenure("trigger", "hourly", "--key", "rerun") for _ in range(2)]
    assert [each.out for each in keyed] == ["hourly!manual!rerun\n"] * 2
    assert "used within the last 24 h" in keyed[1].err
    assert queued(applied) == sorted([first.out.strip(), "hourly!manual!rerun"])

    run = applied.tenure("trigger", "nightly", "to=lee", "--key", "k").out.strip()
    view = applied.world.run(applied.world.queues.show(run, ["default"]))
    assert view.envelope.template.args["to"] == "lee"
    assert view.envelope.template.args["day"][:2] == "20"
    assert applied.tenure("trigger", "nightly", "tow=lee").code == 1
    assert applied.tenure("trigger", "nightly", "--key", "a b").code == 1


def test_a_trigger_tells_scripts_what_became_of_it(applied: ClusterWithJobs) -> None:
    """The run, and whether it is a new one."""
    asked = ("trigger", "hourly", "--key", "k", "-o", "json")
    results = [applied.tenure(*asked).json() for _ in range(2)]
    assert [each["result"] for each in results] == ["triggered", "duplicate"]
    assert {each["run"] for each in results} == {"hourly!manual!k"}


def test_a_reason_that_would_be_cut_is_refused(applied: ClusterWithJobs) -> None:
    """Half a reason may say the opposite."""
    refused = applied.tenure("pause", "hourly", "--reason", "x" * 501)
    assert (refused.code, "at most 500" in refused.err) == (2, True)
    assert listed(applied, "--paused") == []
    assert applied.tenure("pause", "hourly", "--reason", "x" * 500).code == 0


def test_a_trigger_that_heeds_overlap_says_no_by_its_exit_code(applied: ClusterWithJobs) -> None:
    """3: asked, and the answer is no."""
    assert applied.tenure("trigger", "hourly", "--overlap", "skip").code == 0
    again = applied.tenure("trigger", "hourly", "--overlap", "skip")
    assert (again.code, again.out) == (3, "")
    assert "an earlier run of hourly is unfinished" in again.err


def test_list_shows_no_next_where_there_is_none(applied: ClusterWithJobs) -> None:
    """A completed schedule keeps its place in the plan until it is removed, one under way until somebody looks again."""
    text = "few: {job: report.make, every: 1h, max_runs: 3}\nafter: {job: report.make, after_completion: 10m}\n"
    applied.tenure("apply", "-f", applied.write("few.yaml", text))
    applied.decided("few", mark_ms=START_MS, state=f"3 0 0 0 0 0 0 0 0 0 {START_MS} 0\nF{START_MS} 0 1 5 1")
    applied.decided("after", mark_ms=START_MS)

    def rows() -> dict[str, tuple[Any, ...]]:
        found = applied.tenure("list", "-o", "json").json()
        return {row["schedule"]: (row["status"], row["next_ms"], row["in"]) for row in found}

    assert rows()["few"] == ("completed", None, None)
    assert rows()["after"][:2] == ("active", 4_000_000_000_000)
    applied.world.raw.hset(applied.world.keys.schedule_live, "after", "reports after@1")
    assert rows()["after"] == ("active", None, "after its run")


@pytest.mark.parametrize(
    "arguments",
    [
        ["backfill"],
        ["backfill", "hourly"],
        ["backfill", "hourly", "--from", "2026-11-02", "--to", "2026-11-01"],
        ["backfill", "hourly", "--from", "soon"],
        ["backfill", "--list", "--cancel", "x"],
        ["delete"],
        ["next", "hourly", "--count", "0"],
        ["list", "--label", "team"],
        ["trigger", "hourly", "novalue"],
    ],
)
def test_wrong_usage_is_told_as_such(applied: ClusterWithJobs, arguments: list[str]) -> None:
    """Exit 2, and no traceback."""
    result = applied.tenure(*arguments)
    assert result.code == 2
    assert "Traceback" not in result.err


def test_deleting_asks_and_a_static_one_is_refused(applied: ClusterWithJobs) -> None:
    """Only a configuration removes what a configuration defines."""
    assert applied.tenure("delete", "hourly", stdin="n\n").code == 1
    assert applied.tenure("delete", "hourly", "--yes").out.count("deleted") == 1
    assert applied.tenure("delete", "hourly", "--yes").code == 0
    gone = applied.tenure("show", "hourly")
    assert (gone.code, "was removed at" in gone.err) == (1, True)
    assert applied.tenure("delete", "nightly", "--revision", "7", "--yes").code == 1
    applied.world.raw.hset(applied.world.keys.schedule_def, "static", b"4\nab\nsomedigest\n{}")
    refused = applied.tenure("delete", "static", "--yes")
    assert (refused.code, "a configuration defines it: remove it there, or pause it" in refused.out) == (1, True)


@pytest.mark.parametrize("command", ["show", "next", "trigger", "explain"])
def test_an_unknown_schedule_gets_a_suggestion(applied: ClusterWithJobs, command: str) -> None:
    """A typing mistake costs one look."""
    result = applied.tenure(command, "nightyl")
    assert (result.code, "did you mean nightly?" in result.err) == (1, True)


def test_status_shows_dynamic_schedules_too(applied: ClusterWithJobs, invoke: Any) -> None:
    """One place for who leads and what is next."""
    applied.world.run(Definitions(applied.world.keys).upsert([Change(definition=schedule("extra"))], wall_ms=1))
    result = invoke("status")
    assert "extra" in result.out
    assert "Traceback" not in result.err
