"""The wire format of runs: what an earlier version wrote is read for good, and what a later one adds does no harm.

``tests/data/envelopes-v1.txt`` was recorded. Lines are added to it, none is ever changed.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from supervisor.core.model import Envelope, Kind, Template
from supervisor.core.retry import Retry
from supervisor.store.wire.envelope import pack, unpack
from tests.kit.tables import table

RECORDED = Path(__file__).parents[2].joinpath("data", "envelopes-v1.txt").read_bytes().splitlines()
BY_ID = {unpack(line).id: (line, unpack(line)) for line in RECORDED}


@pytest.mark.parametrize("run_id", list(BY_ID))
def test_a_recorded_envelope_means_the_same_today(run_id: str) -> None:
    """A queue outlives the version that filled it: written again it is the same, byte for byte."""
    line, envelope = BY_ID[run_id]

    assert pack(envelope).data == line


def test_every_field_of_a_recorded_envelope_is_read() -> None:
    """One by hand, so that the comparison above does not compare one omission with another."""
    assert BY_ID["nightly@1700000100000"][1] == Envelope(
        id="nightly@1700000100000",
        template=Template(
            job="reports.nightly",
            kind=Kind.SYNC,
            queue="reports",
            priority=0,
            args={"region": "eu", "days": [1, 2], "deep": {"x": None}},
            retry=Retry(attempts=5, base_s=1.0, cap_s=60.0),
            timeout_s=3600.0,
            soft_timeout_s=3000.0,
            max_crashes=2,
            result_ttl_s=60.0,
        ),
        enqueued_ms=1_700_000_100_001,
        schedule="nightly",
        nominal_ms=1_700_000_100_000,
        not_after_ms=1_700_000_160_000,
    )


@pytest.mark.parametrize("line", RECORDED)
def test_what_a_later_version_adds_is_passed_over(line: bytes) -> None:
    """Fields anywhere, and parts of the limits that this version has no letter for."""
    head, brace, body = line.partition(b"{")
    later = body.replace(b'"template":{', b'"future":{"a":[1]},"template":{"later":null,"retry_on":["x"],', 1)
    limits = head[:-1] + b";zfuture:1]" if head.endswith(b"]") else head + b"[zfuture:1]"

    assert unpack(limits + brace + later) == unpack(line)


@table("data", [b"", b"a", b"x1{}", b"a1", b"ax{}", b"a1[", b"a1[u", b"a1[u]", b"a1{}", b"a1[u]{}", b"a1[]]{}"])
def test_what_is_no_envelope_is_an_error_of_one_kind(data: bytes) -> None:
    """A worker buries it with its reason and goes on."""
    with pytest.raises(msgspec.DecodeError):
        unpack(data)
