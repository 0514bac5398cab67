"""Kills for memory: each explains one death, and an old one explains none."""

from __future__ import annotations

from supervisor.core.supervision.crash_blame import MemoryWatch
from supervisor.core.units import SECOND_NS

T = 1000 * SECOND_NS


def watching(kills: int | None = 3) -> MemoryWatch:
    watch = MemoryWatch()
    watch.look(kills, T)
    return watch


def test_a_kill_that_comes_with_a_death_explains_it() -> None:
    """Those before the tree started are nobody's of ours."""
    assert watching().is_victim(4) is True
    assert watching().is_victim(3) is False


def test_one_kill_explains_one_death() -> None:
    """Two workers die, one of them by an operator: only one is named; two kills name both."""
    watch = watching()
    assert [watch.is_victim(4), watch.is_victim(4)] == [True, False]
    assert [watch.is_victim(6), watch.is_victim(6)] == [True, True]


def test_a_kill_of_a_process_that_a_job_had_started_explains_no_later_death() -> None:
    """An hour later somebody kills a worker by hand: that is not memory."""
    watch = watching()
    for second in range(0, 12, 2):
        watch.look(4, T + second * SECOND_NS)
    assert watch.is_victim(4) is False


def test_the_next_kill_explains_the_next_death_however_late_it_comes() -> None:
    """A day of quiet, and what came before it, is forgotten; what comes now is not."""
    watch = watching()
    assert watch.is_victim(4) is True
    for second in range(0, 20, 2):
        watch.look(4, T + second * SECOND_NS)
    watch.look(5, T + 20 * SECOND_NS)
    watch.look(5, T + 22 * SECOND_NS)
    assert watch.is_victim(5) is True


def test_a_kill_just_before_its_death_was_seen_still_explains_it() -> None:
    """The count moves first, the parent collects a moment later."""
    watch = watching()
    watch.look(4, T + 2 * SECOND_NS)
    watch.look(4, T + 4 * SECOND_NS)
    assert watch.is_victim(4) is True


def test_where_nobody_counts_nothing_is_claimed() -> None:
    """An old kernel, a closed /sys: the log says maybe."""
    assert watching(None).is_victim(None) is None
    assert watching().is_victim(None) is None
