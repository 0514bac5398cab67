"""Between values and bytes: what goes in comes out, what is too large or foreign is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from supervisor.core.errors import PayloadTooLargeError
from supervisor.core.model import Envelope, Kind, ScheduleDef, Template, scheduled_run_id
from supervisor.core.retry import Retry
from supervisor.store.wire import codec
from supervisor.store.wire.definition import StoredDefinition, pack_definition, timing_digest, unpack_definition
from supervisor.store.wire.envelope import check_run_id, pack, unpack
from supervisor.store.wire.poll import ERROR_BYTES_MAX, fence_parts, pack_error, pack_result
from tests.kit.tables import table

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
TEMPLATES = st.builds(
    Template,
    job=st.text(min_size=1, max_size=20),
    kind=st.sampled_from(Kind),
    queue=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True),
    priority=st.integers(0, 2),
    args=st.dictionaries(st.text(max_size=8), JSON, max_size=4),
    retry=st.just(Retry(attempts=5)),
    at_most_once=st.booleans(),
)


@given(TEMPLATES, st.from_regex(r"[A-Za-z0-9._:/@-]{1,60}", fullmatch=True))
def test_an_envelope_survives_the_queue(template: Template, run_id: str) -> None:
    """Every field, also where it is left out of the JSON because it has its default."""
    packed = pack(Envelope(id=run_id, template=template, nominal_ms=5))
    assert unpack(packed.data) == Envelope(id=run_id, template=template, nominal_ms=5)
    assert (packed.run_id, packed.queue) == (run_id, template.queue)


def test_kind_and_priority_in_front_win() -> None:
    """A queue that corrected the kind of a run must not be contradicted by what its producer believed."""
    data = pack(Envelope(id="a", template=Template(job="j", kind=Kind.ASYNC))).data
    template = unpack(b"s0" + data[2:]).template
    assert (template.kind, template.priority) == (Kind.SYNC, 0)


@table("data", [b"", b"a", b"a1", b"x1{}", b"ab{}", b"a1{}", b"a1[]", b'a1{"v":1}', b"\xff\xff\xff"])
def test_foreign_bytes_are_a_decode_error(data: bytes) -> None:
    """One kind of error for all of them, so that one handler is enough."""
    with pytest.raises(msgspec.DecodeError):
        unpack(data)


def test_fields_of_a_newer_version_are_tolerated() -> None:
    """During a rolling update both versions read the same queue."""
    data = pack(Envelope(id="a", template=Template(job="j", kind=Kind.ASYNC))).data
    newer = data.replace(b'"id":"a"', b'"id":"a","colour":"red"')
    assert unpack(newer).id == "a"


@table("run_id", ["", "a b", "a,b", "a|b", "a\nb", "ä", "x" * 256, "a\x00"])
def test_ids_that_scripts_cannot_carry_are_refused(run_id: str) -> None:
    """They stand between separators."""
    with pytest.raises(ValueError, match="run id"):
        pack(Envelope(id=run_id, template=Template(job="j", kind=Kind.ASYNC)))


@pytest.mark.parametrize("run_id", ["a", "s/x:y@1700000000000", "0190-uuid", "x" * 255, "!#~{}()"])
def test_ids_as_schedules_and_people_make_them_are_taken(run_id: str) -> None:
    """Including the largest."""
    assert check_run_id(run_id) == run_id


@pytest.mark.parametrize(("field", "value"), [("queue", "a:b"), ("queue", "{x}"), ("queue", ""), ("priority", 3)])
def test_a_queue_or_priority_that_makes_no_key_is_refused(field: str, value: Any) -> None:
    """Braces would change the hash slot, a colon the meaning."""
    template = Template(**{"job": "j", "kind": Kind.ASYNC, field: value})
    with pytest.raises(ValueError, match=field):
        pack(Envelope(id="a", template=template))


def test_the_caps_name_run_size_limit_and_remedy() -> None:
    """Whoever reads the message knows what to change."""
    envelope = Envelope(id="a", template=Template(job="j", kind=Kind.ASYNC, args={"x": "y" * 70_000}))
    with pytest.raises(PayloadTooLargeError, match=r"run a of job j.*65536; store the data elsewhere"):
        pack(envelope)
    with pytest.raises(PayloadTooLargeError, match=r"run a: its result has 65537 bytes"):
        pack_result("a", b"x" * 65_537)
    with pytest.raises(PayloadTooLargeError, match="schedule s"):
        pack_definition(ScheduleDef(id="s", template=envelope.template, every_ms=1))


@table("name", ["s", "s" * 200])
def test_of_a_definition_that_can_be_kept_each_run_can_be_made(name: str) -> None:
    """Times, cause and neighbours made the run of one that was a hundred bytes below the limit too large to fire."""
    most = 0
    for size in range(65_600, 64_000, -1):
        template = Template(job="j", kind=Kind.ASYNC, args={"x": "y" * size})
        with suppress(PayloadTooLargeError):
            pack_definition(ScheduleDef(id=name, template=template, every_ms=1))
            most = size
            break
    ms, run_id = 10**14, scheduled_run_id(name, 10**14)
    largest = Envelope(
        id=run_id, template=template, enqueued_ms=ms, schedule=name, nominal_ms=ms, cause="buffered", not_after_ms=ms,
        maybe_duplicate=True, previous_ms=ms, next_ms=ms, after=run_id,
    )  # fmt: skip
    assert (most > 64_000, pack(largest).run_id) == (True, run_id)


@given(
    st.dictionaries(
        st.text(max_size=200), st.text(max_size=9000) | st.integers() | st.none() | st.lists(st.text()), max_size=30
    )
)
def test_an_error_is_at_most_four_kibibytes(error: dict[str, Any]) -> None:
    """And stays readable JSON, whatever a job raised."""
    packed = pack_error(error)
    assert len(packed) <= ERROR_BYTES_MAX
    assert isinstance(codec.unpack_json(packed), dict)


def test_a_long_traceback_keeps_its_end() -> None:
    """The last lines name the exception."""
    packed = codec.unpack_json(pack_error({"type": "E", "traceback": "line\n" * 5000 + "ValueError: here"}))
    assert packed["type"] == "E"
    assert packed["traceback"].endswith("ValueError: here")


def test_equal_definitions_are_equal_bytes_and_timing_tells_timing_apart() -> None:
    """A declaration compares bytes, and moves the watermark by the timing alone."""
    template = Template(job="j", kind=Kind.ASYNC, args={"b": 1, "a": 2})
    one = ScheduleDef(id="s", template=template, every_ms=1000)
    other = msgspec.structs.replace(one, template=msgspec.structs.replace(template, args={"a": 2, "b": 1}))
    assert pack_definition(one) == pack_definition(other)
    assert unpack_definition(pack_definition(one)) == one
    assert timing_digest(one) == timing_digest(msgspec.structs.replace(one, description="x", overlap="allow"))
    timings = [{"every_ms": 2}, {"phase_ms": 1}, {"timezone": "Asia/Tokyo"}, {"cron": "* * * * *"}]
    assert len({timing_digest(msgspec.structs.replace(one, **t)) for t in [*timings, {}]}) == 5


@pytest.mark.parametrize(
    ("token", "parts"),
    [
        (b"a.b/w-0/1|3|17", ("a.b/w-0/1", 3, 17)),
        (b"", ("", 0, 0)),
        (b"nonsense", ("", 0, 0)),
        (b"a|b", ("", 0, 0)),
        (b"a|" + b"9" * 5000 + b"|17", ("", 0, 0)),
        ("a|3|²".encode(), ("", 0, 0)),
    ],
)
def test_a_fence_is_read_back(token: bytes, parts: tuple[str, int, int]) -> None:
    """Foreign ones read as none."""
    assert fence_parts(token) == parts


@pytest.mark.parametrize(
    ("stored", "parts"),
    [
        (b'7\n0a\ndynamic\n{"a":\n1}', (7, "dynamic", b'{"a":\n1}')),
        (b"7\n0a\ndynamic", (7, "dynamic", b"")),
        (b"x\n0a\ndynamic\n{}", (None, "dynamic", b"{}")),
        (b"", (None, "", b"")),
    ],
)
def test_a_stored_definition_has_its_revision_and_its_set_in_front(
    stored: bytes, parts: tuple[int | None, str, bytes]
) -> None:
    """The scripts join the lines; what somebody else wrote has no revision."""
    assert StoredDefinition.parse(stored) == parts


def test_a_moment_that_anybody_may_have_written_is_one_of_the_calendar_or_none() -> None:
    """Scores are written as Redis likes; what no date has is none, and raises nothing."""
    read = {each: codec.foreign_moment(each) for each in (b"1800000000000", b"1.8e+12", b"-5", b"0")}
    assert read == {b"1800000000000": 1_800_000_000_000, b"1.8e+12": 1_800_000_000_000, b"-5": -5, b"0": 0}
    for odd in (None, b"", b"inf", b"-inf", b"nan", b"1e300", b"-1e300", b"soon", b"\xff", b"253402300800000"):
        assert codec.foreign_moment(odd) is None, odd
