"""Which definitions are brought in by one step: a renamed schedule with those that begin to follow it."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.model import After
from supervisor.core.schedules.diff import DefinitionDifference
from supervisor.operations import apply
from supervisor.operations.apply import ApplyResult, Compared
from supervisor.store.keys import Keys
from supervisor.store.schedules.definitions import BATCH_MAX, Change, Definitions, page_of, with_followers
from tests.kit.builders import schedule


def change(name: str, *, former: str = "", follows: str = "") -> Change:
    """Return a schedule to bring in."""
    times: dict[str, Any] = {"every_ms": None, "after": After(schedule=follows)} if follows else {}
    return Change(definition=schedule(name, renamed_from=former, **times))


def pages(changes: list[Change], most: int) -> list[list[str]]:
    """Return the ids of each step."""
    left, found = with_followers(changes), []
    while page := page_of(left, most):
        found.append([each.definition.id for each in page])
        left = left[len(page) :]
    return found


def test_followers_of_a_renamed_schedule_share_its_step() -> None:
    """Also those of another that follows it and is renamed, wherever they stood; the rest keeps its order."""
    changes = [
        change("late", follows="new"), change("a"), change("b"), change("new", former="old"), change("c", follows="b"),
        change("mid", former="was", follows="new"), change("d"), change("last", follows="mid"),
    ]  # fmt: skip
    assert pages(changes, 4) == [["a", "b"], ["new", "late", "mid", "last"], ["c", "d"]]
    assert pages(changes, 5) == [["a", "b"], ["new", "late", "mid", "last", "c"], ["d"]]


def test_more_followers_than_a_step_takes_are_brought_in_all_the_same() -> None:
    """A part that Redis refuses is halved down to one; and a circle, which no configuration may have, ends."""
    changes = [change("new", former="old"), *(change(f"f{n}", follows="new") for n in range(5))]
    assert pages(changes, 4) == [["new", "f0", "f1", "f2"], ["f3", "f4"]]
    assert pages(changes, 1) == [["new"], *([f"f{n}"] for n in range(5))]
    circle = [change("a", former="x", follows="b"), change("b", former="y", follows="a")]
    assert sorted(chain.from_iterable(pages(circle, 1))) == ["a", "b"]


@given(
    st.lists(st.tuples(st.booleans(), st.integers(-1, 11)), max_size=12),
    st.integers(1, 5),
)
def test_every_change_is_brought_in_once_and_no_step_is_larger_than_it_may_be(
    drawn: list[tuple[bool, int]], most: int
) -> None:
    """Whoever follows whom."""
    changes = [
        change(f"s{n}", former="x" if is_renamed else "", follows=f"s{by}" if by >= 0 else "")
        for n, (is_renamed, by) in enumerate(drawn)
    ]
    found = pages(changes, most)
    assert sorted(chain.from_iterable(found)) == sorted(each.definition.id for each in changes)
    assert all(0 < len(page) <= most for page in found)


def test_schedules_that_are_applied_go_by_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamic ones are renamed and followed as those of a configuration are."""
    changes = [
        *(change(f"s{n}") for n in range(BATCH_MAX - 1)),
        change("new", former="old"),
        change("f", follows="new"),
    ]
    compared = [Compared(DefinitionDifference.CREATED, each.definition.id, each) for each in changes]
    asked: list[list[str]] = []
    monkeypatch.setattr(
        Definitions, "upsert", lambda _self, page, wall_ms: asked.append([each.definition.id for each in page])
    )
    writing = apply.write(Keys("c"), compared, ApplyResult(), wall_ms=1)
    next(writing)
    assert asked == [[f"s{n}" for n in range(BATCH_MAX - 1)]]
