"""Which nominal times of the past may be run: what is known, what is not, and that chunks add up."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.model import CalendarDays, Exclusion, Kind, ScheduleDef, Template
from supervisor.core.schedules.backfill import (
    LOOK_MAX,
    BackfillDecision,
    EnqueuedSpan,
    SchedulePast,
    chunks,
    next_chunk,
)
from supervisor.core.schedules.trigger_kinds import Every
from supervisor.core.schedules.triggers import trigger_of

MINUTE = Every(60_000)
EDITED = Every(30_000)
MARK = 100 * 60_000


def at(minute: float) -> int:
    return round(minute * 60_000)


def test_what_no_stretch_names_was_never_enqueued_while_none_was_forgotten() -> None:
    """A new schedule may be backfilled for the time before it existed."""
    assert SchedulePast(revision=1, mark_ms=MARK).verdict(MINUTE, at(1)) is BackfillDecision.RUN


def test_older_than_the_oldest_that_is_remembered_is_unknown_once_some_were_forgotten() -> None:
    """It may have run."""
    known = SchedulePast(revision=1, mark_ms=MARK, since_ms=at(10))
    assert known.verdict(MINUTE, at(9)) is BackfillDecision.UNKNOWN
    assert known.verdict(MINUTE, at(10)) is BackfillDecision.RUN


def test_what_may_have_run_before_redis_lost_that_is_unknown() -> None:
    """Not what was decided before and behind it."""
    known = SchedulePast(revision=1, mark_ms=MARK, enqueued=(EnqueuedSpan(at(4), at(4), 1, 1),), lost=((at(2), at(5)),))
    assert [known.verdict(MINUTE, at(minute)) for minute in range(2, 7)] == [
        BackfillDecision.RUN, BackfillDecision.UNKNOWN, BackfillDecision.RAN, BackfillDecision.UNKNOWN,
        BackfillDecision.RUN,
    ]  # fmt: skip


def test_a_stretch_under_the_same_definition_ran_with_both_ends() -> None:
    """Contiguous by construction."""
    known = SchedulePast(revision=1, mark_ms=MARK, enqueued=(EnqueuedSpan(at(3), at(5), 3, 1),))
    assert [known.verdict(MINUTE, at(minute)) for minute in range(2, 7)] == [
        BackfillDecision.RUN, BackfillDecision.RAN, BackfillDecision.RAN, BackfillDecision.RAN, BackfillDecision.RUN,
    ]  # fmt: skip


@pytest.mark.parametrize(("trigger", "verdict"), [(MINUTE, BackfillDecision.RAN), (EDITED, BackfillDecision.UNKNOWN)])
def test_under_another_definition_it_ran_if_the_times_are_as_many(trigger: Every, verdict: BackfillDecision) -> None:
    """An edit of a description hides nothing; an edit of the timing leaves only the ends for sure."""
    known = SchedulePast(revision=2, mark_ms=MARK, enqueued=(EnqueuedSpan(at(3), at(7), 5, 1),))
    assert known.verdict(trigger, at(4)) is verdict
    assert known.verdict(trigger, at(3)) is known.verdict(trigger, at(7)) is BackfillDecision.RAN


@pytest.mark.parametrize(
    "exclusion",
    [
        Exclusion(from_ms=at(20), until_ms=at(21)),
        Exclusion(cron="* 5 * * *"),
        Exclusion(days=CalendarDays(weekdays=(5, 6))),
    ],
)
@pytest.mark.parametrize("on_excluded", ["skip", "next"])
def test_times_under_another_definition_are_counted_with_exclusions_of_every_kind(
    exclusion: Exclusion, on_excluded: str
) -> None:
    """The count is remembered by the trigger, so each part of one must have a hash."""
    definition = ScheduleDef(
        id="s", template=Template(job="j", kind=Kind.SYNC), every_ms=60_000, end_at_ms=MARK, exclude=(exclusion,),
        on_excluded=on_excluded,
    )  # fmt: skip
    known = SchedulePast(revision=2, mark_ms=MARK, enqueued=(EnqueuedSpan(at(3), at(7), 5, 1),))
    assert known.verdict(trigger_of(definition), at(4)) is BackfillDecision.RAN


def test_what_waits_in_the_buffer_is_not_run_even_by_force() -> None:
    """It will run by itself."""
    known = SchedulePast(revision=1, mark_ms=MARK, waiting=frozenset({at(2)}))
    chunk = next_chunk(MINUTE, known, after_ms=0, until_ms=at(3), limit=9, is_forced=True)
    assert (chunk.run, chunk.skipped, chunk.is_last) == ((at(1), at(3)), 1, True)


def test_force_runs_what_ran_and_what_is_unknown_and_says_which() -> None:
    """They need ids of their own."""
    known = SchedulePast(revision=1, mark_ms=MARK, since_ms=at(3), enqueued=(EnqueuedSpan(at(4), at(4), 1, 1),))
    chunk = next_chunk(MINUTE, known, after_ms=0, until_ms=at(5), limit=9, is_forced=True)
    assert chunk.run == tuple(at(minute) for minute in range(1, 6))
    assert chunk.again == (at(1), at(2), at(4))


def test_nothing_after_the_watermark_is_in_a_chunk() -> None:
    """The schedule itself decides that."""
    chunk = next_chunk(MINUTE, SchedulePast(revision=1, mark_ms=at(2)), after_ms=0, until_ms=at(9), limit=9)
    assert (chunk.run, chunk.cursor_ms, chunk.is_last) == ((at(1), at(2)), at(2), True)


def test_a_chunk_looks_at_a_bounded_number_of_times() -> None:
    """However much has run already."""
    known = SchedulePast(revision=1, mark_ms=at(10_000), enqueued=(EnqueuedSpan(at(1), at(9000), 9000, 1),))
    chunk = next_chunk(MINUTE, known, after_ms=0, until_ms=at(10_000), limit=9)
    assert (chunk.run, chunk.skipped, chunk.cursor_ms, chunk.is_last) == ((), LOOK_MAX, at(LOOK_MAX), False)


def test_a_limit_of_nothing_moves_nothing() -> None:
    """The last step of a backfill that reached its limit."""
    chunk = next_chunk(MINUTE, SchedulePast(revision=1, mark_ms=MARK), after_ms=at(1), until_ms=at(9), limit=0)
    assert (chunk.run, chunk.cursor_ms, chunk.is_last) == ((), at(1), False)


@given(
    stretches=st.lists(st.tuples(st.integers(1, 300), st.integers(0, 40)), max_size=6),
    since=st.none() | st.integers(1, 300),
    limit=st.integers(1, 400),
    first=st.integers(1, 100),
    last=st.integers(100, 400),
)
def test_chunks_together_are_every_runnable_time_once_in_order(
    stretches: list[tuple[int, int]], since: int | None, limit: int, first: int, last: int
) -> None:
    """However they are cut."""
    known = SchedulePast(
        revision=1,
        mark_ms=at(350),
        enqueued=tuple(EnqueuedSpan(at(begin), at(begin + span), span + 1, 1) for begin, span in stretches),
        since_ms=None if since is None else at(since),
    )
    found = list(chunks(MINUTE, known, from_ms=at(first), until_ms=at(last), limit=limit))

    runnable = [
        at(minute)
        for minute in range(first, min(last, 350) + 1)
        if known.verdict(MINUTE, at(minute)) is BackfillDecision.RUN
    ]
    assert [nominal for chunk in found for nominal in chunk.run] == runnable[:limit]
    assert all(before.cursor_ms < after.cursor_ms for before, after in pairwise(found))
