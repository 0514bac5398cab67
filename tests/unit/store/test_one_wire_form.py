"""One wire form of a run: whoever prepares a run in parts writes the bytes that ``pack`` writes, limits included."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.errors import ArgumentsError, PayloadTooLargeError
from supervisor.core.jobs.limits import limits_of
from supervisor.core.model import Envelope, Kind, ScheduleDef, Template
from supervisor.core.retry import Retry
from supervisor.core.schedules.neighbours import Neighbours
from supervisor.core.schedules.templating import render
from supervisor.roles.scheduler.schedule_cache import Catalogue, CompiledSchedule
from supervisor.roles.worker.attempt.run_output import Children
from supervisor.store.keys import KIND_LETTER, Keys
from supervisor.store.producer.bulk import BatchStream
from supervisor.store.producer.job_templates import JobTemplate
from supervisor.store.queues.bridges import Bridges
from supervisor.store.queues.runs import ENQUEUE_MAX, Queues
from supervisor.store.scripts import Call
from supervisor.store.wire.definition import pack_definition
from supervisor.store.wire.envelope import EnvelopeTemplate, content_of, pack, unpack

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NOMINAL_MS, NOW_MS = 1_767_225_610_000, 1_767_225_610_003
TEXT = st.text(max_size=8).filter(lambda text: "{{" not in text)  # two braces would begin a name that is not known
VALUES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT | st.just("{{ date }}")
PATTERNS = st.sampled_from(["", "*", "{tenant}", "t:{tenant}/{n}", "plain"])


@st.composite
def templates(draw: st.DrawFn) -> Template:
    """Draw a template with any mixture of limits, options and arguments."""
    return Template(
        job=draw(st.sampled_from(["mail.send", "j", "ünïcode"])),
        kind=draw(st.sampled_from(Kind)),
        queue=draw(st.sampled_from(["default", "mail"])),
        priority=draw(st.integers(0, 2)),
        args=draw(st.dictionaries(st.text(max_size=4), VALUES))
        | {"tenant": draw(VALUES), "n": draw(st.integers(0, 9))},  # n is part of an id: a number always
        retry=draw(st.sampled_from([Retry(), Retry(attempts=9)])),
        timeout_s=draw(st.sampled_from([300.0, 1.5])),
        at_most_once=draw(st.booleans()),
        start_deadline_s=draw(st.none() | st.just(5.0)),
        unique=draw(PATTERNS),
        concurrency=draw(PATTERNS),
        concurrency_max=draw(st.integers(0, 2)),
        concurrency_replaces=draw(st.booleans()),
        rate=draw(PATTERNS),
        rate_count=draw(st.integers(0, 2)),
        rate_per_ms=draw(st.sampled_from([0, 60_000])),
        profile=draw(st.sampled_from(["", "p"])),
    )


@given(
    template=templates(),
    deadline_ms=st.none() | st.just(7_000),
    cause=st.sampled_from(["", "initial", "buffered"]),
    is_doubtful=st.booleans(),
)
def test_a_scheduled_run_has_the_bytes_of_its_packed_envelope(
    *, template: Template, deadline_ms: int | None, cause: str, is_doubtful: bool
) -> None:
    """A schedule of a job with limits fires runs with these limits: the scripts go by what stands in front."""
    definition = ScheduleDef(id="tick", template=template, every_ms=1000, start_deadline_ms=deadline_ms)

    made = CompiledSchedule(definition, 1, is_dynamic=False).run(
        "tick", NOMINAL_MS, NOW_MS, cause=cause, is_doubtful=is_doubtful
    )

    run_id = "tick!initial" if cause == "initial" else f"tick@{NOMINAL_MS}"
    args = render(template.args, schedule="tick", nominal_ms=NOMINAL_MS, timezone="UTC", run=run_id)
    expected = Envelope(
        id=run_id,
        template=msgspec.structs.replace(template, args=args),
        enqueued_ms=NOW_MS,
        schedule="tick",
        nominal_ms=NOMINAL_MS,
        cause=cause,
        not_after_ms=None if deadline_ms is None else NOMINAL_MS + deadline_ms,
        maybe_duplicate=is_doubtful,
        previous_ms=NOMINAL_MS - 1000,
        next_ms=NOMINAL_MS + 1000,
    )
    assert made == pack(expected)
    assert unpack(made.data) == expected


@given(template=templates(), run_id=st.sampled_from(["r1", 'quo"te', "back\\slash", "s@1/2"]), is_traced=st.booleans())
def test_a_run_of_a_producer_has_the_bytes_of_its_packed_envelope(
    *, template: Template, run_id: str, is_traced: bool
) -> None:
    """Bulk and single enqueues encode once what runs have in common."""
    traceparent = TRACEPARENT if is_traced else ""
    job = JobTemplate(None, msgspec.structs.replace(template, args={}), lambda args: args)

    data = job.pack(run_id, template.args, job.tail(NOW_MS, 200, traceparent))

    late = _late_ms(template, 200)
    expected = Envelope(
        id=run_id, template=template, enqueued_ms=NOW_MS, not_after_ms=late, traceparent=traceparent
    )  # fmt: skip
    assert data == pack(expected).data


@given(template=templates(), run_id=st.sampled_from(["r1", 'quo"te', "s@1/2"]), above=st.sampled_from([0, 2]))
def test_a_packed_envelope_is_its_head_and_its_json(*, template: Template, run_id: str, above: int) -> None:
    """The form that all others are compared with, spelled once more by nothing but the encoder."""
    envelope = Envelope(id=run_id, template=template, enqueued_ms=NOW_MS, cause="child", parent="p", nominal_ms=1)

    head = f"{KIND_LETTER[template.kind]}{template.priority}{limits_of(template).header(above)}".encode()

    assert pack(envelope, above=above).data == head + msgspec.json.encode(envelope)


@given(template=templates(), is_traced=st.booleans())
def test_a_run_of_a_bulk_enqueue_has_the_bytes_of_its_packed_envelope(*, template: Template, is_traced: bool) -> None:
    """A batch is packed with the end that all of its runs share."""
    traceparent = TRACEPARENT if is_traced else ""
    stream = BatchStream(
        JobTemplate(None, msgspec.structs.replace(template, args={"n": 0}), lambda args: args),
        iter([template.args, template.args]),
        queues=Queues(Keys("t")),
        run_id=lambda args: f"r{args['n']}",
        delay_ms=200,
        wall_ms=lambda: NOW_MS,
        entropy=bytes,
        on_new=lambda _new: None,
        each=None,
        traceparent=traceparent,
    )
    stream.pull()
    stream.pack()
    batch = stream.take()

    args = {"n": 0, **template.args}
    expected = Envelope(
        id=f"r{args['n']}",
        template=msgspec.structs.replace(template, args=args),
        enqueued_ms=NOW_MS,
        not_after_ms=_late_ms(template, 200),
        traceparent=traceparent,
    )
    assert batch is not None
    content = content_of(template.job, args)
    assert batch.runs == [expected.id, template.queue, 200, pack(expected).data, content] * 2


def test_runs_of_a_slow_source_come_due_at_the_moment_that_was_asked_for() -> None:
    """Each batch counted the delay from its own time: what came later was late by as much."""
    now_ms, minute_ms = NOW_MS, 60_000

    def source() -> Iterator[dict[str, int]]:
        nonlocal now_ms
        for number in range(3 * ENQUEUE_MAX):
            now_ms += 20 * minute_ms if number % ENQUEUE_MAX == 0 else 0
            yield {"n": number}

    stream = BatchStream(
        JobTemplate(None, Template(job="j", kind=Kind.ASYNC), lambda args: args), source(), queues=Queues(Keys("t")),
        run_id=None, delay_ms=0, wall_ms=lambda: now_ms, entropy=bytes, on_new=lambda _new: None, each=None,
        due_ms=NOW_MS + 70 * minute_ms,
    )  # fmt: skip
    due = []
    calls = stream.batches()
    call = next(calls)
    with suppress(StopIteration):
        while True:
            due.append([now_ms + int(delay) for delay in _delays(call)])
            call = calls.send(b"1" * ENQUEUE_MAX)
    assert [set(each) for each in due] == [{NOW_MS + 70 * minute_ms}] * 3


def _delays(call: Call[bytes]) -> list[Any]:
    runs = call.args[-4 * ENQUEUE_MAX :]
    return list(runs[2::4])


def test_a_run_whose_content_cannot_be_told_is_in_no_batch() -> None:
    """Half of a run would shift those behind it: what came before the fault is enqueued, and nothing of the run."""
    asked: list[Any] = []

    def admit(args: Any) -> Any:
        asked.append(args)
        if len(asked) == 4:  # each is asked for twice: for its bytes, and for its content
            raise TypeError("not the second time")
        return args

    stream = BatchStream(
        JobTemplate(None, Template(job="j", kind=Kind.ASYNC), admit),
        iter([{"n": 1}, {"n": 2}, {"n": 3}]),
        queues=Queues(Keys("t")), run_id=lambda args: f"r{args['n']}", delay_ms=0, wall_ms=lambda: NOW_MS,
        entropy=bytes, on_new=lambda _new: None, each=None,
    )  # fmt: skip
    stream.pull()
    stream.pack()
    batch = stream.take()

    assert batch is not None
    assert (batch.ids, len(batch.runs)) == (["r1"], 5)
    assert isinstance(stream.fault, TypeError)


@given(template=templates(), delay_ms=st.sampled_from([0, 200]), is_traced=st.booleans())
def test_spawned_runs_have_the_bytes_of_their_packed_envelopes(
    *, template: Template, delay_ms: int, is_traced: bool
) -> None:
    """A child has the due times of its parent, counts its deadline from the end of it, and names the part of its id that is its parent's."""
    registry: Any = SimpleNamespace(get=lambda _name: SimpleNamespace(template=lambda _args, **_route: template))
    traceparent = TRACEPARENT if is_traced else ""
    times = iter([NOW_MS - 9000, NOW_MS - 9000, NOW_MS])
    around = Neighbours(NOMINAL_MS - 5, NOMINAL_MS + 5)
    children = Children(
        "plan@1", registry=registry, nominal_ms=NOMINAL_MS, around=around, wall_ms=lambda: next(times)
    )  # fmt: skip
    children.spawn("j", key="a", delay=delay_ms / 1000, traceparent=traceparent)
    children.then("j", traceparent=traceparent)

    (child,) = children.take()
    (line,) = children.follow()

    common = {"enqueued_ms": NOW_MS - 9000, "nominal_ms": NOMINAL_MS, "parent": "plan@1", "traceparent": traceparent}
    common |= around._asdict()
    late_ms = _late_ms(template, delay_ms)
    one = Envelope(id="plan@1/a", template=template, cause="child", not_after_ms=late_ms, **common)  # type: ignore[arg-type]
    next_one = Envelope(id="plan@1/then", template=template, cause="then", **common)  # type: ignore[arg-type]
    assert child.packed == pack(one, above=len("plan@1"))
    assert line.encode() == f"complete 0 {template.queue} plan@1/then ".encode() + pack(next_one).data


def _late_ms(template: Template, delay_ms: int) -> int | None:
    deadline_s = template.start_deadline_s
    return None if deadline_s is None else NOW_MS + delay_ms + round(1000 * deadline_s)


def test_definitions_that_differ_in_their_limits_share_no_bytes() -> None:
    """100,000 schedules share what is equal, and a limit is not."""
    catalogue = Catalogue()
    for name, most in (("a", 1), ("b", 2), ("c", 1)):
        template = Template(job="j", kind=Kind.ASYNC, concurrency="k", concurrency_max=most)
        definition = ScheduleDef(id=name, template=template, every_ms=1000)
        assert catalogue.learn(name, 1, pack_definition(definition), is_dynamic=False) is None
    known = [known for name in "abc" if (known := catalogue.get(name, 1)) is not None]
    assert [each.run("x", 1, 1).data[:7] for each in known] == [b"a1[c1:j", b"a1[c2:j", b"a1[c1:j"]
    assert known[0].packer is known[2].packer


def test_a_run_that_a_bridge_makes_has_the_bytes_of_its_packed_envelope() -> None:
    """The script puts an id and a message where the parts leave room for them."""
    template = Template(job="stp", kind=Kind.SYNC, timeout_s=60.0)

    call = Bridges(Keys("t")).ingest(channel="c", queue="q", run=template, refused=template, now_ms=NOW_MS)

    before, between, after = call.args[3:6]
    data = b"".join([before, b'"stp:q:1"', between, b'"hello"', after])
    routed = msgspec.structs.replace(template, queue="q", args={"message": "hello"})
    assert data == pack(Envelope(id="stp:q:1", template=routed, enqueued_ms=NOW_MS)).data


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"priority": 3}, ValueError),
        ({"queue": "a:b"}, ValueError),
        ({"unique": "{absent}"}, ArgumentsError),
    ],
)
def test_a_template_that_cannot_be_carried_is_refused_by_every_packer(
    fields: dict[str, Any], error: type[Exception]
) -> None:
    """A scheduler learns when it reads a definition, and not when it is due."""
    template = Template(**{"job": "j", "kind": Kind.ASYNC} | fields)
    with pytest.raises(error):
        EnvelopeTemplate(template)
    with pytest.raises(error):
        pack(Envelope(id="r", template=template))


def test_a_run_over_the_limit_of_a_payload_is_refused_by_every_packer() -> None:
    """Also where the identity and the times of a run are what is too much."""
    template = Template(job="j", kind=Kind.ASYNC, args={"x": "y" * (65_536 - 60)})
    packer = EnvelopeTemplate(template)
    with pytest.raises(PayloadTooLargeError, match="job j: its envelope has"):
        packer.pack(Envelope(id="r" * 60, template=packer.template))
