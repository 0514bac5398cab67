"""Lines beyond a bound are folded, and none is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.telemetry.run_lines import FOLDED_MAX, OTHERS, WINDOW_NS, Fold


def test_so_many_lines_a_second_are_written_in_full() -> None:
    """And in the next second as many again."""
    fold = Fold(2)

    assert [fold.admits(now) for now in (5, 6, 7, 5 + WINDOW_NS - 1)] == [True, True, False, False]
    assert fold.admits(5 + WINDOW_NS)


def test_the_rest_becomes_a_line_for_each_job_and_outcome() -> None:
    """With what a reader asks next: how many, how long, and the last error."""
    fold = Fold(1)
    fold.admits(0)
    for seconds, note in ((0.1, "first"), (0.3, "last")):
        fold.add("a", "dead", seconds, note)
    fold.add("b", "ok", 1.0)

    assert fold.take(WINDOW_NS - 1) == []
    found = {(item.job, item.outcome): item for item in fold.take(WINDOW_NS)}

    assert set(found) == {("a", "dead"), ("b", "ok")}
    item = found["a", "dead"]
    assert (item.count, item.longest_s, item.note) == (2, 0.3, "last")
    assert (round(item.total_s, 6), round(item.mean_s, 6)) == (0.4, 0.2)
    assert fold.take(WINDOW_NS) == []


def test_a_second_has_a_bounded_number_of_such_lines() -> None:
    """Whoever enqueues invents names of jobs, and a line for each would fill a disk."""
    fold = Fold(1)
    fold.admits(0)
    for number in range(3 * FOLDED_MAX):
        for outcome in ("giveback", "dead"):
            fold.add(f"job-{number}", outcome, 0.0)
    found = fold.take(WINDOW_NS)

    assert len(found) == FOLDED_MAX + 2
    assert sum(item.count for item in found) == 6 * FOLDED_MAX
    assert {(item.job, item.outcome) for item in found[FOLDED_MAX:]} == {(OTHERS, "giveback"), (OTHERS, "dead")}


def test_what_is_folded_when_the_process_leaves_is_told_at_once() -> None:
    """There is no next second."""
    fold = Fold(1)
    fold.admits(0)
    fold.add("a", "ok", 0.1)

    assert [item.count for item in fold.take(1, is_last=True)] == [1]


@given(st.lists(st.integers(min_value=0, max_value=WINDOW_NS // 2), max_size=200), st.integers(1, 5))
def test_every_end_is_on_a_line_of_its_own_or_counted(gaps: list[int], lines_max: int) -> None:
    """Whatever their rhythm: nothing goes unsaid, and no second has more lines than allowed."""
    fold, now_ns, lines, folded = Fold(lines_max), 0, 0, 0
    for gap in gaps:
        now_ns += gap
        folded += sum(item.count for item in fold.take(now_ns))
        if fold.admits(now_ns):
            lines += 1
        else:
            fold.add("a", "ok", 0.0)
    folded += sum(item.count for item in fold.take(now_ns, is_last=True))

    assert lines + folded == len(gaps)
    assert lines <= lines_max * (now_ns // WINDOW_NS + 1)
