"""Jobs that other programs run: what can be checked of them here."""

from __future__ import annotations

import msgspec
import pytest

from supervisor.core.errors import ArgumentsError, UnknownJobError
from supervisor.core.jobs.job_spec import JobCard
from supervisor.core.model import Kind, Template
from supervisor.store.queues.jobs import AnyJob, published_registry

CARD = JobCard(
    template=Template(job="mail.send", kind=Kind.ASYNC, queue="mail", priority=0),
    signature="(to, day = 1)",
    required=["to"],
    optional=["day"],
)


def test_a_published_job_routes_and_checks_names() -> None:
    """As far as its card goes."""
    known = published_registry({"mail.send": msgspec.json.encode(CARD)})
    job = known.get("mail.send")

    assert (known.names(), job.signature, job.origin) == (["mail.send"], "(to, day = 1)", "redis")
    template = job.template({"to": "kim"}, queue=None, timeout_s=5.0)
    assert (template.queue, template.priority, template.timeout_s, template.args) == ("mail", 0, 5.0, {"to": "kim"})
    assert job.check({"to": "kim"}) == {"to": "kim"}
    for wrong in ({}, {"to": 1, "tow": 2}):
        with pytest.raises(ArgumentsError, match=r"its signature is \(to, day = 1\)"):
            job.check(wrong)


def test_a_card_of_a_newer_form_hides_no_other() -> None:
    """During a rolling update both forms are there."""
    known = published_registry({"new": b'{"v": 9, "template": 1}', "mail.send": msgspec.json.encode(CARD)})
    assert known.names() == ["mail.send"]
    with pytest.raises(UnknownJobError, match="new"):
        known.get("new")


def test_a_preview_needs_no_job_at_all() -> None:
    """Only the times matter there."""
    known = AnyJob()
    assert "whatever" in known
    assert known.get("whatever").template({"x": 1}, queue="q").args == {"x": 1}
