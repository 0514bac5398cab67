"""What a job spawns, before anything of it exists."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.errors import ArgumentsError, PayloadTooLargeError, UnknownJobError
from supervisor.core.jobs.registry import Registry, job
from supervisor.core.model import PAYLOAD_BYTES_MAX, Kind
from supervisor.roles.worker.attempt.run_output import Children, SpawnError
from supervisor.store.wire.envelope import unpack
from supervisor.store.wire.poll import CHILDREN_MAX
from tenure import Context, Retry
from tests.kit.tables import table


@job("children.part", queue="parts", priority="low", timeout=7, retry=Retry(attempts=2))
def part(number: int, tag: str = "") -> None:
    """Stand for one part of the work."""


@job("children.other")
async def other() -> None:
    """Stand for a coroutine job."""


def context(run_id: str = "plan@1000", nominal_ms: int | None = 1000) -> Context:
    """Return the context of a planner, as a test of a job makes it."""
    return Context(run_id=run_id, job="plan", nominal_ms=nominal_ms, schedule="plan")


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def children_of(ctx: Context) -> Children:
    """Return what ``ctx`` spawned."""
    assert ctx.children is not None
    return ctx.children


def test_a_child_is_a_run_of_its_job_that_knows_where_it_comes_from() -> None:
    """Its nominal time is its parent's; it belongs to no schedule, so that overlap counts the parent alone."""
    ctx = context()

    run_id = ctx.spawn(part, {"number": 3})

    (child,) = children_of(ctx).envelopes
    assert run_id == child.id == "plan@1000/0"
    assert (child.parent, child.cause, child.nominal_ms, child.schedule) == ("plan@1000", "child", 1000, None)
    template = child.template
    assert (template.job, template.kind, template.queue, template.priority) == ("children.part", Kind.SYNC, "parts", 2)
    assert (template.args, template.timeout_s, template.retry.attempts) == ({"number": 3}, 7.0, 2)


def test_a_child_is_in_the_trace_of_its_parent() -> None:
    """Whether it is spawned or follows; a trace that the job names comes first."""
    other = TRACE.replace("4bf9", "5bf9")
    ctx = context()
    ctx.spawn("children.other", key="bare")
    ctx.traceparent = TRACE
    ctx.spawn("children.other", key="spawned")
    ctx.spawn("children.other", key="spawned")  # the same child
    ctx.spawn("children.other", key="named", traceparent=other)
    ctx.then("children.other")

    assert [child.traceparent for child in children_of(ctx).envelopes] == ["", TRACE, other]
    assert [child.traceparent for child in children_of(ctx).following] == [TRACE]


def test_what_is_sent_is_what_was_spawned() -> None:
    """Ready for the queue: checked, packed, with its own queue, priority and delay."""
    ctx = context()
    ctx.spawn("children.part", {"number": 1}, queue="fast", priority="high", delay="1m")
    ctx.spawn("children.other", delay=0.5)

    first, second = children_of(ctx).take()

    assert (first.packed.queue, first.delay_ms, first.job) == ("fast", 60_000, "children.part")
    assert first.packed.data[:2] == b"s0"
    assert unpack(second.packed.data).template.kind is Kind.ASYNC
    assert second.delay_ms == 500


def test_ids_follow_from_the_parent_so_that_a_repeated_attempt_spawns_the_same() -> None:
    """By number, or by a key that does not depend on the order."""
    ids = []
    for _ in range(2):
        ctx = context()
        ids.append(
            [ctx.spawn(part, {"number": n}) for n in range(3)] + [ctx.spawn(part, {"number": 9}, key="tenant:9/eu")]
        )
    assert ids[0] == ids[1] == ["plan@1000/0", "plan@1000/1", "plan@1000/2", "plan@1000/tenant:9/eu"]


def test_a_key_may_be_a_number_and_is_not_mistaken_for_that_of_a_numbered_child() -> None:
    """Ids of rows make good keys; one that meets a number by accident is told, not lost."""
    ctx = context()
    assert ctx.spawn(part, {"number": 7}, key=7) == "plan@1000/7"
    assert ctx.spawn(part, {"number": 0}) == "plan@1000/0"
    with pytest.raises(SpawnError, match="two different children"):
        ctx.spawn(part, {"number": 1}, key=0)


def test_the_same_key_with_the_same_arguments_is_the_same_child() -> None:
    """A list with a repeated entry is no mistake that anybody should lose a night over."""
    ctx = context()
    assert ctx.spawn(part, {"number": 1}, key="a") == ctx.spawn(part, {"number": 1}, key="a")
    assert len(children_of(ctx).take()) == 1


@pytest.mark.parametrize(
    "changed", [{"args": {"number": 2}}, {"args": {"number": 1}, "delay": 5}, {"args": {"number": 1}, "queue": "q"}]
)
def test_the_same_key_for_something_else_is_refused(changed: dict[str, Any]) -> None:
    """One of the two would be lost without a word."""
    ctx = context()
    ctx.spawn(part, {"number": 1}, key="a")
    with pytest.raises(SpawnError, match="two different children under plan@1000/a"):
        ctx.spawn(part, key="a", **changed)
    assert len(children_of(ctx).take()) == 1


@table(
    ("arguments", "error", "words"),
    [
        ({"job": "children.missing"}, UnknownJobError, "children.missing"),
        ({"job": lambda: None}, UnknownJobError, "is not a job"),
        ({"job": part, "args": {}}, ArgumentsError, "number"),
        ({"job": part, "args": {"number": "x"}}, ArgumentsError, "number"),
        ({"job": part, "args": {"number": 1, "nmbr": 2}}, ArgumentsError, "nmbr"),
        ({"job": part, "args": {"number": 1, "tag": "x" * 70_000}}, PayloadTooLargeError, "65536"),
        ({"job": part, "args": {"number": 1}, "priority": "urgent"}, ValueError, "high, normal, low"),
        ({"job": part, "args": {"number": 1}, "queue": "a b"}, ValueError, "queue 'a b'"),
        ({"job": part, "args": {"number": 1}, "delay": -1}, ValueError, "delay"),
        ({"job": part, "args": {"number": 1}, "delay": "1x"}, ValueError, "1x"),
        ({"job": part, "args": {"number": 1}, "key": ""}, SpawnError, "key ''"),
        ({"job": part, "args": {"number": 1}, "key": "a b"}, SpawnError, "key 'a b'"),
        ({"job": part, "args": {"number": 1}, "key": "a|b"}, SpawnError, "1 to 200"),
        ({"job": part, "args": {"number": 1}, "key": "ü"}, SpawnError, "ASCII"),
        ({"job": part, "args": {"number": 1}, "key": "k" * 201}, SpawnError, "1 to 200"),
    ],
)  # fmt: skip
def test_a_child_that_cannot_be_is_refused_where_it_is_spawned(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    """The job hears of it, and what it spawned before is still there."""
    ctx = context()
    ctx.spawn(part, {"number": 0})
    with pytest.raises(error, match=words):
        ctx.spawn(**arguments)
    assert [child.packed.run_id for child in children_of(ctx).take()] == ["plan@1000/0"]


def test_an_id_that_grows_too_long_is_refused() -> None:
    """Each generation adds to it; Redis scripts carry 255 characters."""
    with pytest.raises(SpawnError, match="256 characters, the limit is 255"):
        context("p" * 250).spawn(part, {"number": 1}, key="12345")


def test_more_children_than_one_step_can_make_are_refused_with_the_way_out() -> None:
    """A tree of planners has no such limit."""
    ctx = context()
    for number in range(CHILDREN_MAX):
        ctx.spawn(part, {"number": number})
    with pytest.raises(SpawnError, match="spawn runs that spawn the rest"):
        ctx.spawn(part, {"number": 0})
    assert len(children_of(ctx).take()) == CHILDREN_MAX


def test_children_that_weigh_too_much_together_are_refused() -> None:
    """They travel in one call."""
    ctx = context()
    for number in range(69):
        ctx.spawn(part, {"number": number, "tag": "x" * 60_000})
    with pytest.raises(PayloadTooLargeError, match="4194304"):
        ctx.spawn(part, {"number": 69, "tag": "x" * 60_000})


def test_a_run_that_has_ended_spawns_nothing_more() -> None:
    """A task or thread that it left behind would spawn into the void."""
    ctx = context()
    ctx.spawn(part, {"number": 1})
    children_of(ctx).take()
    with pytest.raises(SpawnError, match="has ended"):
        ctx.spawn(part, {"number": 2})


def test_a_worker_may_know_other_jobs_than_the_process_at_large() -> None:
    """The registry is that of the worker."""
    children = Children("p", registry=Registry(), wall_ms=lambda: 0)
    with pytest.raises(UnknownJobError, match=r"children\.part"):
        children.spawn("children.part", {}, key=None, queue=None, priority=None, delay=None)


@job("children.late", start_deadline=60)
def late(rows: list[Any]) -> None:
    """Stand for a job that must begin in time."""


def test_a_child_with_a_deadline_is_what_it_was_when_it_was_spawned() -> None:
    """A job may fill one list again for each child, and put into it whatever it likes then."""
    ctx, rows = context(), [1, 2]
    ctx.spawn(late, {"rows": rows})
    rows[:] = [object()]
    (child,) = children_of(ctx).take()
    assert unpack(child.packed.data).template.args == {"rows": [1, 2]}


def test_a_child_that_has_no_room_for_its_deadline_is_refused_where_it_is_spawned() -> None:
    """The deadline is known only when its parent ends, and then nobody could be told."""
    ctx = context()
    ctx.spawn(late, {"rows": [""]})
    (child,) = children_of(ctx).take()
    room = PAYLOAD_BYTES_MAX - len(child.packed.data[child.packed.data.index(b"{") :])
    ctx = context()
    with pytest.raises(PayloadTooLargeError):
        ctx.spawn(late, {"rows": ["x" * (room + 1)]})
    ctx.spawn(late, {"rows": ["x" * room]}, key=0)
    assert len(children_of(ctx).take()) == 1


def test_two_children_that_differ_in_what_a_list_held_are_two() -> None:
    """Of what was given under one key twice, each is judged by what it was then."""
    ctx, rows = context(), [1]
    ctx.spawn(late, {"rows": rows}, key="a")
    rows.append(2)
    with pytest.raises(SpawnError, match="two different children"):
        ctx.spawn(late, {"rows": rows}, key="a")
