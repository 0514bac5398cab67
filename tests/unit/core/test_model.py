"""The values that travel."""

from __future__ import annotations

import msgspec
import pytest

from supervisor.core.model import Envelope, Kind, Template, scheduled_run_id
from supervisor.core.retry import Retry


@pytest.mark.parametrize(
    ("timeout_s", "soft_timeout_s", "soft_after_s"),
    [
        (300.0, None, 270.0),
        (10.0, None, 9.0),
        (5.0, None, 4.0),
        (1.0, None, 0.5),
        (0.2, None, 0.1),
        (60.0, 20.0, 20.0),
        (5.0, 20.0, 5.0),  # a schedule shortened the job's timeout
    ],
)
def test_a_job_is_asked_to_stop_before_it_is_killed(
    timeout_s: float, soft_timeout_s: float | None, soft_after_s: float
) -> None:
    """Ninety per cent, at least a second before, and never after the kill."""
    template = Template(job="a", kind=Kind.SYNC, timeout_s=timeout_s, soft_timeout_s=soft_timeout_s)

    assert template.soft_after_s == pytest.approx(soft_after_s)


def test_a_scheduled_run_has_the_same_id_on_every_replica() -> None:
    """Two schedulers that fire one due time name one run."""
    assert scheduled_run_id("reports/daily", 1_700_000_000_000) == "reports/daily@1700000000000"


def test_envelopes_of_an_older_and_a_newer_version_are_read() -> None:
    """During a rolling update both are in the queue: missing fields have defaults, unknown ones are skipped."""
    old = b'{"id":"r","template":{"job":"a","kind":"sync"}}'
    new = b'{"v":1,"id":"r","added":[1],"template":{"job":"a","kind":"sync","added":{"x":1}}}'

    expected = Envelope(id="r", template=Template(job="a", kind=Kind.SYNC))

    assert msgspec.json.decode(old, type=Envelope) == expected
    assert msgspec.json.decode(new, type=Envelope) == expected
    assert expected.template.retry == Retry()
