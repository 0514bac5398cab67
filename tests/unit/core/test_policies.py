"""What a profile says of a job's runs, and what it may not say."""

from __future__ import annotations

import msgspec
import pytest

from supervisor.core.jobs.job_spec import JobCard
from supervisor.core.jobs.registry import Registry, job
from supervisor.core.model import Template
from supervisor.core.retry import Retry

BULK = {"priority": 2, "timeout_s": 7200.0, "retry": Retry(attempts=9), "start_deadline_s": 60.0}
NORMAL = {"priority": 1, "timeout_s": 300.0, "retry": Retry(), "start_deadline_s": None}
POLICIES = {"default": NORMAL, "bulk": BULK}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """An empty registry."""
    registry = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", registry)
    return registry


def test_what_a_job_does_not_say_its_profile_does(known: Registry) -> None:
    """And a run carries the name of it, so that its worker finds the hooks."""

    @job("collect", profile="bulk")
    def collect() -> None: ...

    known.use(POLICIES)

    template = known.get("collect").template({})
    assert {name: getattr(template, name) for name in BULK} == BULK
    assert template.profile == "bulk"


def test_what_a_job_says_wins_over_its_profile_even_if_it_is_the_default(known: Registry) -> None:
    """``timeout=300`` is written for a reason."""

    @job("collect", profile="bulk", timeout=300, priority="high", retry=Retry(attempts=1))
    def collect() -> None: ...

    known.use(POLICIES)

    template = known.get("collect").template({})
    assert (template.timeout_s, template.priority, template.retry.attempts) == (300.0, 0, 1)
    assert template.start_deadline_s == 60.0
    card = msgspec.json.decode(msgspec.json.encode(known.get("collect").card()), type=JobCard)
    assert card.given == ["priority", "retry", "timeout"]


def test_a_job_that_is_imported_later_follows_too(known: Registry) -> None:
    """Also when the profiles change, in both directions."""
    known.use({"default": {**NORMAL, "timeout_s": 60.0}})

    @job("late")
    def late() -> None: ...

    assert known.get("late").base.timeout_s == 60.0
    known.use(POLICIES)
    assert known.get("late").base.timeout_s == 300.0


def test_a_job_that_runs_at_most_once_is_never_retried(known: Registry) -> None:
    """Whatever a profile says."""

    @job("charge", profile="bulk", delivery="at_most_once")
    def charge() -> None: ...

    known.use(POLICIES)

    assert known.get("charge").base.retry.attempts == 1
    assert known.get("charge").base.timeout_s == 7200.0


def test_a_soft_timeout_beyond_the_timeout_of_the_profile_is_derived_anew(known: Registry) -> None:
    """It could never fire; and is the job's own again once the timeout of a reload leaves room for it."""

    @job("slow", timeout=600, soft_timeout=500)
    def slow() -> None: ...

    @job("quick", soft_timeout=200, profile="short")
    def quick() -> None: ...

    known.use({"short": {**NORMAL, "timeout_s": 10.0}})

    assert known.get("slow").base.soft_timeout_s == 500.0
    assert (known.get("quick").base.timeout_s, known.get("quick").base.soft_timeout_s) == (10.0, None)
    known.use({"short": {**NORMAL, "timeout_s": 400.0}})
    assert (known.get("quick").base.timeout_s, known.get("quick").base.soft_timeout_s) == (400.0, 200.0)
    known.use({})
    assert (known.get("quick").base.timeout_s, known.get("quick").base.soft_timeout_s) == (300.0, 200.0)


def test_profiles_that_say_what_is_built_in_leave_a_job_as_it_is(known: Registry) -> None:
    """Byte for byte: a run carries what differs from the defaults, and no more."""

    @job("plain")
    def plain() -> None: ...

    before = known.get("plain")
    known.use(POLICIES)

    assert known.get("plain") is before
    assert b"retry" not in msgspec.json.encode(Template(job="x", kind=before.kind))
    assert msgspec.json.encode(known.get("plain").base) == b'{"job":"plain","kind":"sync"}'
