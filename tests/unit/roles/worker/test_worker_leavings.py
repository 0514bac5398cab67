"""What an attempt leaves behind: counts, errors, runs that follow, runs that it yields."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec
import pytest

from supervisor.core.errors import ArgumentsError, UnknownJobError
from supervisor.core.jobs.registry import job
from supervisor.core.model import Outcome
from supervisor.roles.worker.attempt.calls import drive
from supervisor.roles.worker.attempt.invocation import is_planner, spawn_all
from supervisor.roles.worker.attempt.run_output import ERRORS_MAX, FOLLOW_MAX, NAMES_MAX, Leavings, SpawnError
from supervisor.store.wire.poll import Ack, acknowledgement
from tenure import Context


@job("leavings.part", queue="parts")
def part(number: int) -> None:
    """Stand for one part of the work."""


def context() -> Context:
    """Return a context, as a test of a job makes it."""
    return Context(run_id="plan", job="plan")


def test_counts_add_up_and_errors_are_told_in_order() -> None:
    """Both ways to say it; what is shown in the history is short."""
    ctx = context()
    ctx.count("created")
    ctx.count("created", 2)
    ctx.count(created=1, updated=-4)
    ctx.error("quota", "no  room\nleft")
    ctx.error("quota")
    assert ctx.leavings is not None
    assert ctx.leavings.counts == {"created": 4, "updated": -4}
    assert ctx.leavings.errors == [("quota", "no room left"), ("quota", "")]
    assert ctx.leavings.note == "created=4 updated=-4 errors=2"


@pytest.mark.parametrize(
    ("name", "number"), [("", 1), ("two words", 1), ("a" * 65, 1), ("x", 1.5), ("x", True), ("x", 10**16), ("1st", 1)]
)
def test_what_cannot_be_counted_is_refused_where_it_is_said(name: str, number: Any) -> None:
    """The job hears of it, and what was counted before stands."""
    ctx = context()
    ctx.count("x")
    with pytest.raises(ValueError, match="count"):
        ctx.count(name, number)
    assert ctx.leavings is not None
    assert ctx.leavings.counts == {"x": 1}


def test_there_are_bounds_to_names_and_errors() -> None:
    """A loop gone wrong does not fill the server: all errors are counted, the first are kept."""
    leavings = Leavings()
    for number in range(NAMES_MAX):
        leavings.count(f"n{number}", 1)
    with pytest.raises(ValueError, match="up to 32"):
        leavings.count("more", 1)
    for number in range(ERRORS_MAX + 5):
        leavings.error(f"e{number}" * 100, "x" * 1000)
    assert (len(leavings.errors), leavings.errors_more) == (ERRORS_MAX, 5)
    assert {len(code) for code, _ in leavings.errors} == {64}
    assert {len(message) for _, message in leavings.errors} == {300}


def test_it_travels_as_json_with_the_acknowledgement_and_a_run_without_any_sends_none() -> None:
    """What is not used is not paid for."""
    assert Leavings().pack(keep_s=5) is None
    leavings = Leavings()
    leavings.count("a", 1)
    packed = leavings.pack(keep_s=3600, follow=["complete 0 q id a1{}"])
    assert packed is not None
    assert msgspec.json.decode(packed) == {"keep": 3_600_000, "counts": {"a": 1}, "then": ["complete 0 q id a1{}"]}
    ack = Ack(run_id="r", queue="q", attempt=1, fetched_ms=5, outcome=Outcome.OK, left_behind=packed)
    assert acknowledgement("s", ack)[1:] == ("q 5 - 0 0 - 0 x", b"", packed)


def test_what_follows_is_checked_like_a_child_and_shares_their_names() -> None:
    """A job that nobody knows, arguments that do not fit, a name that a child has."""
    ctx = context()
    assert ctx.then(part, {"number": 1}) == "plan/then"
    assert ctx.then(part, {"number": 2}, when="success", delay="1m") == "plan/then-1"
    ctx.spawn(part, {"number": 3}, key="a")
    assert ctx.children is not None
    assert [each.id for each in ctx.children.following] == ["plan/then", "plan/then-1"]
    assert [each.id for each in ctx.children.envelopes] == ["plan/a"]
    first, second = ctx.children.follow()
    assert first.startswith("complete 0 parts plan/then s1{")
    assert second.startswith("success 60000 parts plan/then-1 s1{")
    for wrong, error in (
        (lambda: ctx.then("nobody.knows"), UnknownJobError),
        (lambda: ctx.then(part), ArgumentsError),
        (lambda: ctx.then(part, {"number": 1}, key="a"), SpawnError),
        (lambda: ctx.spawn(part, {"number": 1}, key="then"), SpawnError),
        (lambda: ctx.then(part, {"number": 1}, when="never"), ValueError),
    ):
        with pytest.raises(error):
            wrong()
    for number in range(FOLLOW_MAX - 2):
        ctx.then(part, {"number": number}, key=f"f{number}")
    with pytest.raises(SpawnError, match="up to 10"):
        ctx.then(part, {"number": 0}, key="more")
    ctx.children.take()
    with pytest.raises(SpawnError, match="has ended"):
        ctx.then(part, {"number": 0}, key="late")


def test_a_planner_yields_what_spawn_takes() -> None:
    """A job by function or name, with arguments, with options; nothing else."""

    def plan() -> Generator[Any, None, None]:
        yield part, {"number": 1}
        yield "leavings.part", {"number": 2}, {"key": "two", "queue": "other"}

    ctx = context()
    assert next(plan()) == (part, {"number": 1})  # a test of a planner needs no more
    drive(lambda _: spawn_all(plan(), ctx))
    assert ctx.children is not None
    assert [(each.id, each.template.queue) for each in ctx.children.envelopes] == [
        ("plan/0", "parts"),
        ("plan/two", "other"),
    ]
    assert (is_planner(plan), is_planner(part)) == (True, False)


@pytest.mark.parametrize("item", [7, (part, 7), (part, {}, {}, {}), None, (None, {})])
def test_a_planner_that_yields_something_else_is_told_what_it_may(item: object) -> None:
    """And the generator is closed, so that what it holds is given back."""
    closed = []

    def plan() -> Generator[Any, None, None]:
        try:
            yield item
        finally:
            closed.append(True)

    with pytest.raises(TypeError, match="such as \\(collect"):
        drive(lambda _: spawn_all(plan(), context()))
    assert closed == [True]
