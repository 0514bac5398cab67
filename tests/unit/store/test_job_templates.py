"""A producer's runs have the bytes of the envelopes that they stand for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.errors import ArgumentsError, PayloadTooLargeError
from supervisor.core.model import Envelope, Kind, Template
from supervisor.store.producer.job_templates import JobTemplate
from supervisor.store.wire.envelope import pack, unpack

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def job_template(base: Template) -> JobTemplate:
    """Return one that takes any arguments."""
    return JobTemplate(None, base, lambda args: args)


@given(
    st.dictionaries(st.text(min_size=1, max_size=6), JSON, max_size=4),
    st.sampled_from(["r1", 'quo"te', "back\\slash", "s@1/2"]),
    st.sampled_from([None, 5.0]),
    st.sampled_from(["", "*", "fixed"]),
    st.integers(0, 2),
)
def test_it_packs_what_the_codec_packs(
    args: dict[str, Any], run_id: str, start_deadline_s: float | None, unique: str, priority: int
) -> None:
    """Whoever reads the queue cannot tell which of the two wrote it."""
    base = Template(
        job="j", kind=Kind.ASYNC, priority=priority, start_deadline_s=start_deadline_s, unique=unique, rate_count=0
    )
    subject = job_template(base)

    data = subject.pack(run_id, args, subject.tail(1_000, 200))

    late = None if start_deadline_s is None else 6_200
    template = Template(
        job="j", kind=Kind.ASYNC, priority=priority, start_deadline_s=start_deadline_s, unique=unique, args=args
    )
    expected = Envelope(id=run_id, template=template, enqueued_ms=1_000, not_after_ms=late)
    assert unpack(data) == unpack(pack(expected).data) == expected
    assert data[: data.index(b"{")] == pack(expected).data[: data.index(b"{")]


@pytest.mark.parametrize("start_deadline_s", [None, 5.0])
def test_a_trace_is_packed_as_the_codec_packs_it(start_deadline_s: float | None) -> None:
    """Byte for byte, and without one there is no trace of it."""
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    template = Template(job="j", kind=Kind.ASYNC, start_deadline_s=start_deadline_s)
    late = None if start_deadline_s is None else 6_200
    expected = Envelope(id="r", template=template, enqueued_ms=1_000, not_after_ms=late, traceparent=traceparent)
    subject = job_template(template)

    assert subject.pack("r", {}, subject.tail(1_000, 200, traceparent)) == pack(expected).data
    assert b"traceparent" not in subject.pack("r", {}, subject.tail(1_000, 200))


def test_defaults_are_under_what_the_caller_gives() -> None:
    """They are there for the keys of limits."""
    subject = job_template(Template(job="j", kind=Kind.SYNC, args={"a": 1, "b": 2}))

    assert unpack(subject.pack("r", {"b": 3}, subject.tail(1, 0))).template.args == {"a": 1, "b": 3}


@pytest.mark.parametrize("value", [object(), "\ud800", {1j: 1}, [{"a": print}]])
def test_arguments_that_are_no_json_are_named(value: Any) -> None:
    """The producer is told, with the job."""
    subject = job_template(Template(job="j", kind=Kind.SYNC))

    with pytest.raises(ArgumentsError, match="job j: its arguments cannot be written as JSON"):
        subject.pack("r", {"a": value}, subject.tail(1, 0))


def test_arguments_that_hold_themselves_are_refused() -> None:
    """They would never end."""
    subject, endless = job_template(Template(job="j", kind=Kind.SYNC)), []  # type: ignore[var-annotated]
    endless.append(endless)

    with pytest.raises(ArgumentsError, match="recursion"):
        subject.pack("r", {"a": endless}, subject.tail(1, 0))


def test_the_cap_counts_the_whole_envelope() -> None:
    """64 KiB, ids and all."""
    subject = job_template(Template(job="j", kind=Kind.SYNC))
    room = 64 * 1024 - len(subject.pack("r", {"a": ""}, subject.tail(1, 0))) + 2  # the two in front are not counted

    assert subject.pack("r", {"a": "x" * room}, subject.tail(1, 0))
    with pytest.raises(PayloadTooLargeError, match="65537 bytes, the limit is 65536; store the data elsewhere"):
        subject.pack("r", {"a": "x" * (room + 1)}, subject.tail(1, 0))
