"""Schedules that follow others, on the command line."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.conftest import ClusterWithJobs

pytestmark = [pytest.mark.server]


def follower(name: str, followed: str) -> str:
    return json.dumps({"id": name, "job": "report.make", "after": {"schedule": followed}})


def test_a_follower_says_what_it_waits_for(applied: ClusterWithJobs) -> None:
    """In the list, and explained."""
    assert applied.tenure("apply", "-f", applied.write("f.ndjson", follower("next", "hourly"))).code == 0
    (row,) = [row for row in applied.tenure("list", "-o", "json").json() if row["schedule"] == "next"]
    assert (row["trigger"], row["next"]) == ("after hourly has ended ok", None)
    applied.world.raw.hset(applied.world.keys.schedule_live, "hourly", "default hourly@1")
    told = applied.tenure("explain", "next").out
    assert "After hourly has ended ok." in told
    assert "It waits for the end of hourly@1." in told
    assert "next is due after hourly has ended ok" in applied.tenure("next", "next").out


@pytest.mark.parametrize(
    ("name", "followed", "why"),
    [
        ("b", "nobody", "follows 'nobody', which is no schedule of this cluster"),
        ("a", "c", "follows itself: a after c after b after a"),
    ],
)
def test_an_apply_that_could_never_be_due_is_refused(
    applied: ClusterWithJobs, name: str, followed: str, why: str
) -> None:
    """Also where the others are stored already."""
    stored = "\n".join(
        (json.dumps({"id": "a", "job": "report.make", "every": "1h"}), follower("b", "a"), follower("c", "b"))
    )
    assert applied.tenure("apply", "-f", applied.write("f.ndjson", stored)).code == 0
    refused = applied.tenure("apply", "-f", applied.write("g.ndjson", follower(name, followed)))
    assert (refused.code, why in refused.err) == (78, True)


@pytest.mark.parametrize("flags", [(), ("--prune", "--label", "team=x", "--yes")])
def test_an_apply_that_takes_away_what_one_of_it_follows_is_refused(
    applied: ClusterWithJobs, flags: tuple[str, ...]
) -> None:
    """By a new name, or by ``--prune``: it was accepted, and the follower was never due again."""
    hourly = {"job": "report.make", "every": "1h", "labels": {"team": "x"}}
    file = applied.write("f.ndjson", json.dumps({"id": "a"} | hourly) + "\n" + follower("f", "a"))
    assert applied.tenure("apply", "-f", file).code == 0
    former = {} if flags else {"renamed_from": "a"}
    applied.write("f.ndjson", json.dumps({"id": "b"} | hourly | former) + "\n" + follower("f", "a"))
    refused = applied.tenure("apply", "-f", file, *flags)

    assert refused.code == 78
    assert "follows 'a', which this call renames or deletes" in refused.err
    assert {"a", "f"} <= applied.world.stored().keys()
