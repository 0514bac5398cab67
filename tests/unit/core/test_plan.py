"""The plan against a dictionary, and its limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.roles.scheduler.window import DueHeap

NAMES = st.sampled_from("abcdefgh")


def test_the_earliest_comes_first() -> None:
    """Whoever was due first is fired first."""
    plan = DueHeap()
    for name, at in (("late", 30), ("early", 10), ("middle", 20)):
        plan.put(name, at)

    assert plan.next_ms() == 10
    assert plan.due(25, limit=10) == ["early", "middle"]
    assert plan.next_ms() == 30


def test_a_batch_is_bounded() -> None:
    """What does not fit stays planned."""
    plan = DueHeap()
    for index in range(10):
        plan.put(f"s{index}", index)

    assert len(plan.due(100, limit=4)) == 4
    assert len(plan) == 6


def test_putting_again_replaces() -> None:
    """A schedule whose time moved is due at the new time only."""
    plan = DueHeap()
    plan.put("a", 10)
    plan.put("a", 50)

    assert plan.due(49, limit=9) == []
    assert plan.due(50, limit=9) == ["a"]
    assert plan.due(99, limit=9) == []


def test_moving_one_schedule_for_ever_does_not_grow_the_plan() -> None:
    """Replaced entries are swept before they outnumber the live ones."""
    plan = DueHeap()
    for at in range(10_000):
        plan.put("a", at)

    assert len(plan._heap) < 200


@given(st.lists(st.tuples(st.sampled_from(["put", "remove", "due"]), NAMES, st.integers(0, 50)), max_size=200))
def test_it_behaves_like_a_dictionary_that_is_searched(actions: list[tuple[str, str, int]]) -> None:
    """The heap is an optimisation and nothing else."""
    plan, model = DueHeap(), dict[str, int]()
    for verb, name, at in actions:
        if verb == "put":
            plan.put(name, at)
            model[name] = at
        elif verb == "remove":
            plan.remove(name)
            model.pop(name, None)
        else:
            expected = sorted((time, known) for known, time in model.items() if time <= at)
            assert plan.due(at, limit=100) == [known for _, known in expected]
            for _, known in expected:
                del model[known]
        assert plan.next_ms() == min(model.values(), default=None)
        assert set(plan) == set(model)
        assert len(plan) == len(model)
        assert (name in plan) == (name in model)
