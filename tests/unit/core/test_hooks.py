"""Hooks: the registry that they come from, their order, and what their answers mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.jobs.hooks import (
    FAILURE_DELAY_S_MAX,
    DuplicateHookError,
    Hook,
    HookAnswerError,
    HookRegistry,
    Point,
    UnknownHookError,
    failure_delay_s,
    inherited,
    order,
    read_answer,
)
from tests.kit.tables import table

ENTRIES = st.lists(st.sampled_from(["a", "b", "c", "filter/a", "after/b"]), unique=True, max_size=5)


def hook(name: str, origin: str = "here") -> Hook:
    """Return a hook that is asked at the filter."""
    return Hook(name, origin, (Point.FILTER,))


def test_a_registry_takes_hooks_in_and_out() -> None:
    """Register, unregister, and a name is free again."""
    registry = HookRegistry()
    registry.register(hook("budget"))

    registry.unregister("budget")
    registry.register(hook("budget", "elsewhere"))

    assert registry.get("budget").origin == "elsewhere"
    with pytest.raises(UnknownHookError, match="no hook is called 'quota'; known: budget"):
        registry.unregister("quota")


def test_a_second_hook_of_one_name_is_refused_with_both_origins() -> None:
    """Whoever reads the error knows which two packages to look at."""
    registry = HookRegistry()
    registry.register(hook("budget", "in-tree"))

    with pytest.raises(DuplicateHookError, match="from in-tree and from entry point a:B of acme; rename one"):
        registry.register(hook("budget", "entry point a:B of acme"))


def test_a_merge_takes_all_or_nothing() -> None:
    """A duplicate at the end of it leaves the registry as it was."""
    registry = HookRegistry()
    registry.register(hook("budget"))

    with pytest.raises(DuplicateHookError):
        registry.merge([hook("new"), hook("budget", "elsewhere")])
    assert registry.names() == ["budget"]

    registry.merge([hook("new")])
    assert registry.names() == ["budget", "new"]


@pytest.mark.parametrize(
    ("base", "disabled", "own", "expected"),
    [
        (["a", "b"], [], ["c"], ["a", "b", "c"]),
        (["a", "b"], ["a"], ["c"], ["b", "c"]),
        (["a", "b"], ["*"], ["c"], ["c"]),
        (["a", "b"], [], ["b", "a"], ["b", "a"]),
        (["a", "b"], ["filter/a"], [], ["a", "b"]),
    ],
)
def test_a_profile_inherits_what_it_neither_disables_nor_lists_anew(
    base: list[str], disabled: list[str], own: list[str], expected: list[str]
) -> None:
    """Its own come behind, in their order."""
    assert inherited(base, disabled, own) == expected


@given(base=ENTRIES, disabled=st.lists(st.sampled_from(["a", "b", "*", "after/*"])), own=ENTRIES)
def test_inheriting_twice_changes_nothing(base: list[str], disabled: list[str], own: list[str]) -> None:
    """So a configuration that was written out means what it was written from."""
    once = inherited(base, disabled, own)

    assert inherited(base, disabled, once) == once


def test_hooks_are_asked_in_the_order_of_the_list_at_the_points_it_names() -> None:
    """``filter/b`` enables at one point, ``after/a`` in the disabled list takes one away."""
    enabled, disabled = ["a", "filter/b", "c"], ["after/a", "gate/*"]

    assert order(enabled, disabled, Point.FILTER) == ["a", "b", "c"]
    assert order(enabled, disabled, Point.AFTER) == ["c"]
    assert order(enabled, disabled, Point.GATE) == []


@pytest.mark.parametrize(
    ("answer", "reason", "delay_s"),
    [
        ("closed", "closed", None),
        (("later", "5m"), "later", 300.0),
        (("x\ny", 2), "x y", 2.0),
        ("", "no reason given", None),
    ],
)
def test_an_answer_is_a_reason_with_or_without_a_delay(answer: Any, reason: str, delay_s: float | None) -> None:
    """A reason alone rejects for good; with a delay the run is asked about again."""
    veto = read_answer("budget", "filter", answer)

    assert veto is not None
    assert (veto.hook, veto.point, veto.reason, veto.delay_s) == ("budget", "filter", reason, delay_s)


def test_none_lets_the_run_go_on() -> None:
    """A hook that has nothing to say returns nothing."""
    assert read_answer("budget", "filter", None) is None


def test_a_reason_can_always_be_written_down() -> None:
    """It may name a file whose name is no text, and it goes to the history, to Redis and to a webhook."""
    veto = read_answer("budget", "filter", "no room\nfor caf\udce9")
    assert veto is not None
    assert veto.reason == "no room for caf?"


@table("answer", [True, False, 0, {}, ("x",), ("x", 0), ("x", -1), ("x", "soon"), ("x", float("nan"))])
def test_what_says_neither_yes_nor_no_is_refused(answer: Any) -> None:
    """``False`` may mean either, so it means nothing."""
    with pytest.raises(HookAnswerError):
        read_answer("budget", "filter", answer)


def test_failures_of_hooks_back_off_from_one_second_to_thirty() -> None:
    """The table of what an operator waits for when a webhook is down."""
    assert [failure_delay_s(count) for count in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]


@given(count=st.integers(1, 10**6))
def test_the_back_off_of_failures_never_shrinks_and_never_overflows(count: int) -> None:
    """However long the outage."""
    assert failure_delay_s(count) <= failure_delay_s(count + 1) <= FAILURE_DELAY_S_MAX
