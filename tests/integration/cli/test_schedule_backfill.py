"""``tenure schedule backfill``: what it says it would run, what then runs, and what it leaves out."""

from __future__ import annotations

import pytest

from supervisor.cli.schedule import backfill
from tests.integration.cli.conftest import HOUR_MS, START_MS, ClusterWithJobs, queued

pytestmark = [pytest.mark.server]


def test_a_backfill_is_shown_first_then_run_then_known(applied: ClusterWithJobs) -> None:
    """Dry run, request, the leader's work, and the same request again."""
    applied.decided("hourly", mark_ms=START_MS + 100 * HOUR_MS)
    window = ("--from", "2026-11-01", "--to", "2026-11-01T05:00Z")
    planned = applied.tenure("backfill", "hourly", *window, "--dry-run", "-o", "json").json()
    assert [row["run"] for row in planned] == [f"hourly@{START_MS + n * HOUR_MS}" for n in range(6)]
    assert queued(applied) == []
    refused = applied.tenure("backfill", "hourly", *window, "--no-wait", stdin="n\n")
    assert (refused.code, applied.world.raw.hlen(applied.world.keys.schedule_backfills)) == (1, 0)
    name = applied.tenure("backfill", "hourly", *window, "--no-wait", "--yes").out.strip()
    applied.serve_backfills()
    assert queued(applied) == sorted(row["run"] for row in planned)

    (row,) = applied.tenure("backfill", "--list", "-o", "json").json()
    assert (row["backfill"], row["state"], row["enqueued"]) == (name, "done", 6)
    again = applied.tenure("backfill", "hourly", *window, "--dry-run", "-o", "json").json()
    assert {row["does"] for row in again} == {"already enqueued: left out"}
    assert applied.tenure("backfill", "hourly", *window, "--yes").out.startswith("nothing to run: 6 due times ran")
    assert "had ended: done, 6 enqueued" in applied.tenure("backfill", "--cancel", name).out
    assert applied.tenure("backfill", "--cancel", "nobody").code == 1


def test_a_forced_backfill_repeats_an_earlier_one_under_other_ids(applied: ClusterWithJobs) -> None:
    """The dry run says what the leader then does, though no decision of the schedule names these runs."""
    applied.decided("hourly", mark_ms=START_MS + 100 * HOUR_MS)
    window = ("--from", "2026-11-01", "--to", "2026-11-01T05:00Z")
    applied.tenure("backfill", "hourly", *window, "--no-wait", "--yes")
    applied.serve_backfills()
    first = queued(applied)
    told = applied.tenure("backfill", "hourly", *window, "--force", "--dry-run", "-o", "json").json()
    assert [(row["run"], row["does"]) for row in told] == [(f"{run}#n", "run again") for run in first]
    done = applied.tenure("backfill", "hourly", *window, "--force", "--no-wait", "--yes", "-o", "json").json()
    assert (done["schedule"], done["limit"]) == ("hourly", 6)
    applied.serve_backfills()
    assert [run.partition("#")[0] for run in queued(applied) if "#" in run] == first


def test_a_day_in_to_is_meant_to_its_end(applied: ClusterWithJobs) -> None:
    """As exclusions count days; an instant is itself."""
    applied.decided("hourly", mark_ms=START_MS + 100 * HOUR_MS)

    def count(until: str) -> int:
        asked = applied.tenure("backfill", "hourly", "--from", "2026-11-01", "--to", until, "--dry-run", "-o", "json")
        return len(asked.json())

    assert (count("2026-11-01"), count("2026-11-02"), count("2026-11-02T00:00")) == (24, 48, 25)


def test_the_first_and_last_due_time_are_told_on_the_clock_of_the_schedule(applied: ClusterWithJobs) -> None:
    """A day is one in UTC: with a zone far from it the due time of that day is of the day after, or of the one before."""
    seoul = "seoul: {job: report.make, cron: '30 2 * * *', timezone: Asia/Seoul}\n"
    applied.tenure("apply", "-f", applied.write("seoul.yaml", seoul))
    for name in ("seoul", "hourly"):
        applied.decided(name, mark_ms=START_MS + 100 * HOUR_MS)
    day = ("--from", "2026-11-02", "--to", "2026-11-02", "--force", "--no-wait")
    one = applied.tenure("backfill", "seoul", *day)
    assert "note: due: 2026-11-02T17:30:00.000Z (2026-11-03T02:30:00+09:00 in Asia/Seoul)\n" in one.err

    asked = applied.tenure("backfill", "hourly", *day, stdin="n\n")
    assert "note: due: 2026-11-02T00:00:00.000Z to 2026-11-02T23:00:00.000Z\n" in asked.err
    assert asked.err.index("note: due") < asked.err.index("Enqueue up to 24 runs")
    applied.serve_backfills()
    nothing = applied.tenure("backfill", "seoul", *[each for each in day if each != "--force"])
    assert "note: left out: 2026-11-02T17:30:00.000Z (2026-11-03T02:30:00+09:00 in Asia/Seoul)\n" in nothing.err
    text = applied.tenure("backfill", "--help").out
    assert "are in UTC, whatever the zone of the schedule" in " ".join(text.split())


def test_a_backfill_of_nothing_says_why_and_is_json_where_asked_for(applied: ClusterWithJobs) -> None:
    """What follows the end of a run was never planned, so it has no past."""
    applied.tenure("apply", "-f", applied.write("after.yaml", "after: {job: report.make, after_completion: 10m}\n"))
    result = applied.tenure("backfill", "after", "--from", "-2h", "--yes", "-o", "json")
    assert result.json() == {"backfill": None, "enqueued": 0, "skipped": 0}
    assert "due after the end of a run has no due times in the past" in result.err


def test_ctrl_c_stops_following_and_says_how_to_stop_the_backfill(
    applied: ClusterWithJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on without its watcher."""
    applied.decided("hourly", mark_ms=START_MS + 100 * HOUR_MS)

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(backfill, "moment_of_patience", interrupted)
    result = applied.tenure("backfill", "hourly", "--from", "2026-11-01", "--to", "2026-11-02T00:00", "--yes")
    (row,) = applied.tenure("backfill", "--list", "-o", "json").json()

    assert (result.code, row["state"]) == (0, "active")
    assert f"it goes on; stop it with: tenure schedule backfill --cancel {row['backfill']}" in result.err
    applied.serve_backfills()
    assert len(queued(applied)) == 25


def test_a_backfill_can_be_cancelled(applied: ClusterWithJobs) -> None:
    """What was not enqueued then never is."""
    applied.decided("hourly", mark_ms=START_MS + 100 * HOUR_MS)
    name = applied.tenure("backfill", "hourly", "--from", "2026-11-01", "--no-wait", "--yes").out.strip()
    assert "after 0 runs" in applied.tenure("backfill", "--cancel", name).out
    applied.serve_backfills()
    assert queued(applied) == []


def test_a_backfill_says_what_it_leaves_out(applied: ClusterWithJobs) -> None:
    """Too long ago to know, unless forced; after the watermark never; and what ran."""
    hours = [START_MS + n * HOUR_MS for n in range(60)]
    stretches = [f"{'FS'[n % 2]}{hours[n]} 0 1 5 1" for n in range(49, 29, -1)]
    applied.decided("hourly", mark_ms=hours[49], state="0 0 0 0 0 0 0 0 0 0 0 1\n" + "\n".join(stretches))
    window = ("--from", "2026-11-01", "--to", "2026-11-03T10:00Z")
    told = applied.tenure("backfill", "hourly", *window, "--dry-run", "-o", "json")
    assert len(told.json()) == 10
    assert "10 listed, 10 known to have run or waiting, 30 too long ago to know" in told.err
    forced = applied.tenure("backfill", "hourly", *window, "--dry-run", "--force", "-o", "json").json()
    assert len(forced) == 50
    assert sum(row["run"].endswith("#n") for row in forced) == 40
    asked = applied.tenure("backfill", "hourly", *window, "--no-wait", "--yes")
    assert "30 due times are left out: too long ago to know" in asked.err
    assert "are left to the schedule" in asked.err


def test_a_backfill_of_a_pause_that_the_leader_has_not_seen_end_is_refused(applied: ClusterWithJobs) -> None:
    """Its due times lie after the watermark until then: there was nothing to run, which is no success."""
    keys, raw = applied.world.keys, applied.world.raw
    applied.decided("hourly", mark_ms=START_MS + 3 * HOUR_MS)
    raw.zadd(keys.schedule_next, {"hourly": 1})  # it is behind, as in an outage
    assert applied.tenure("pause", "hourly", "--reason", "disk").code == 0
    assert applied.tenure("resume", "hourly").code == 0
    asked = ("backfill", "hourly", "--from", "2026-11-01T03:30Z", "--to", "2026-11-01T06:00Z", "--no-wait")
    for options in (["--yes"], ["--dry-run"]):
        refused = applied.tenure(*asked, *options)
        assert refused.code == 1
        assert "the pause of 'hourly' has ended, which the leader has not yet dealt with; try again" in refused.err

    before = applied.tenure("backfill", "hourly", "--from", "2026-11-01", "--to", "2026-11-01T03:00Z", "--dry-run")
    assert before.code == 0
    raw.hdel(keys.schedule_paused, "hourly")  # as the leader does
    applied.decided("hourly", mark_ms=START_MS + 6 * HOUR_MS)
    assert applied.tenure(*asked, "--yes").code == 0
    applied.serve_backfills()
    assert queued(applied) == [f"hourly@{START_MS + n * HOUR_MS}" for n in (4, 5, 6)]


def test_a_followed_backfill_ends_with_its_record_as_json(
    applied: ClusterWithJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but JSON on standard output, the progress beside it."""
    applied.decided("hourly", mark_ms=START_MS + 100 * HOUR_MS)
    monkeypatch.setattr(backfill, "moment_of_patience", applied.serve_backfills)
    window = ("--from", "2026-11-01", "--to", "2026-11-01")
    ended = applied.tenure("backfill", "hourly", *window, "--yes", "-o", "json").json()
    assert (ended["state"], ended["enqueued"], ended["schedule"]) == ("done", 24, "hourly")
