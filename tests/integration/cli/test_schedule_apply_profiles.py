"""``tenure schedule apply``: by which profiles, where the jobs are imported and where replicas published them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from supervisor.core.jobs.job_spec import JobCard
from supervisor.core.jobs.registry import registry
from supervisor.core.model import PRIORITIES, Kind, Template
from tests.integration.cli.conftest import ClusterWithJobs

pytestmark = [pytest.mark.server]

JOBS = """\
from tenure import job


@job("plain")
def plain() -> None: ...


@job("bulky", profile="bulk")
def bulky() -> None: ...
"""
PROFILES = """\
profiles:
  default: {timeout: 2h, retry: {attempts: 7}}
  bulk: {timeout: 3h, priority: low, missed: skip}
"""


def publish(desk: ClusterWithJobs, **timeout: float) -> None:
    """Publish the two jobs, as replicas do with whose profiles they have this timeout."""
    bulky = Template(job="bulky", kind=Kind.SYNC, profile="bulk", **timeout)
    for template in (Template(job="plain", kind=Kind.SYNC, **timeout), bulky):
        card = msgspec.json.encode(JobCard(template=template)).decode()
        desk.world.run(desk.world.sessions.publish_jobs({template.job: card}))


def apply_both(desk: ClusterWithJobs, more: str) -> Any:
    """Apply a schedule of each of the two jobs by a configuration with ``more``; return what the command answered."""
    desk.write("tenure.yaml", (desk.directory / "tenure.yaml").read_text() + more)
    entries = {job: {"job": job, "every": "1h"} for job in ("plain", "bulky")}
    return desk.tenure("apply", "-f", desk.write("s.json", json.dumps(entries)))


@pytest.mark.parametrize("is_imported", [True, False])
def test_a_schedule_has_the_policies_of_the_profile_that_its_job_goes_by(
    desk: ClusterWithJobs, monkeypatch: pytest.MonkeyPatch, *, is_imported: bool
) -> None:
    """As one of the configuration has, of the one that the job picks, else of the default; modules or not."""
    for table in ("_jobs", "_by_function"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))  # all jobs follow the profiles
    if is_imported:
        desk.write("jobs_with_profiles.py", JOBS)
    else:
        publish(desk, timeout_s=600.0)
    assert apply_both(desk, PROFILES + "jobs: [jobs_with_profiles]\n" * is_imported).code == 0

    runs = {name: stored.definition for name, stored in desk.world.stored().items()}
    assert {
        name: (each.missed, each.template.timeout_s, each.template.retry.attempts, each.template.priority)
        for name, each in runs.items()
    } == {
        "plain": ("latest", 7200, 7, PRIORITIES["normal"]),
        "bulky": ("skip", 10_800, 7, PRIORITIES["low"]),
    }


def test_a_profile_that_is_not_written_here_leaves_a_published_job_as_it_is_or_refuses_it(
    desk: ClusterWithJobs,
) -> None:
    """Of ``default`` the replicas' values stay; of a named one nobody knows here when it keeps due times back."""
    publish(desk, timeout_s=600.0)

    refused = apply_both(desk, "")
    assert refused.code == 78
    assert "schedules.bulky.job: bulky goes by profile 'bulk', which is not in this configuration" in refused.err

    assert apply_both(desk, "profiles: {bulk: {priority: low}}\n").code == 0
    assert desk.world.stored()["plain"].definition.template.timeout_s == 600.0
