"""The values that travel."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.model import Envelope, Kind, Template, fresh_run_id, scheduled_run_id
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


@given(wall_ms=st.integers(0, 2**48 - 1), entropy=st.binary(min_size=10, max_size=10))
def test_a_fresh_run_id_is_a_uuid_of_version_7(wall_ms: int, entropy: bytes) -> None:
    """RFC 9562, 5.7: time in front, version and variant in their places, the rest random."""
    found = UUID(fresh_run_id(wall_ms, entropy))

    assert found.version == 7
    assert found.variant == "specified in RFC 4122"
    assert found.int >> 80 == wall_ms


@given(first=st.binary(min_size=10, max_size=10), second=st.binary(min_size=10, max_size=10))
def test_run_ids_of_one_millisecond_differ_when_their_entropy_differs(first: bytes, second: bytes) -> None:
    """74 of the 80 bits count; ids are equal only where those are."""
    mask = (1 << 74) - 1
    same = int.from_bytes(first, "big") & mask == int.from_bytes(second, "big") & mask

    assert (fresh_run_id(1, first) == fresh_run_id(1, second)) is same


def test_later_run_ids_sort_after_earlier_ones() -> None:
    """Lists of runs read in the order of their making."""
    assert fresh_run_id(1_000, b"\xff" * 10) < fresh_run_id(1_001, b"\x00" * 10)


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
