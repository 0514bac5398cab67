"""Schedules that are late by their own promise, on the command line."""

from __future__ import annotations

import json

import pytest

from supervisor.store.key_table import spell
from tests.integration.cli.conftest import ClusterWithJobs

pytestmark = [pytest.mark.server]


def test_a_late_schedule_says_so_and_from_when_it_counts(applied: ClusterWithJobs) -> None:
    """In the list, and in full; a pause silences it."""
    entry = {"id": "backup", "job": "report.make", "every": "1h", "expect_success_every": "25h", "finish_within": "3h"}
    assert applied.tenure("apply", "-f", applied.write("f.ndjson", json.dumps(entry))).code == 0
    shown = applied.tenure("show", "backup", "-o", "json").json()
    assert sorted(shown["expectations"]) == ["counted_from", "success_expected_by"]
    applied.world.raw.hset(
        f"{applied.world.keys.prefix}{spell('schedule_expected')}", "backup", "90000000 1000 1000 500 0"
    )
    shown = applied.tenure("show", "backup", "-o", "json").json()
    assert (shown["status"], shown["expectations"]["late"]) == ("late: no success in time", "no success in time")
    assert shown["expectations"]["last_success"].startswith("1970-01-01T00:00:01")
    assert "late: no success in time" in applied.tenure("list").out
    assert applied.tenure("pause", "backup").code == 0
    assert "late" not in applied.tenure("show", "backup", "-o", "json").json()["expectations"]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("finish_within", "5", "is not a duration"),
        ("finish_within", "10ms", "must be at least 100ms"),
        ("expect_success_every", "0s", "must be at least 1s"),
    ],
)
def test_a_promise_that_is_no_duration_is_refused(
    applied: ClusterWithJobs, field: str, value: str, message: str
) -> None:
    """With its place."""
    entry = {"id": "backup", "job": "report.make", "every": "1h", field: value}
    refused = applied.tenure("apply", "-f", applied.write("f.ndjson", json.dumps(entry)))
    assert (refused.code, f"schedules.backup.{field}: " in refused.err, message in refused.err) == (78, True, True)
