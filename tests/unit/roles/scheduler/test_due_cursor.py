"""The position of the scheduler in the plan: pages follow one another without a gap, whatever is at hand."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.roles.scheduler.fire_items import DecisionTime
from supervisor.roles.scheduler.window import AHEAD_MS, FIRST_PAGE, PAGE, DueCursor, DueQuestion
from supervisor.store.wire.fire import DueReply, Seen

NOW = DecisionTime(1_000_000, grace_ms=1000)


def seen(schedule: str, score: int) -> Seen:
    """Return a schedule that is planned for ``score``."""
    return Seen(schedule, score, 1, "dynamic", 0, b"", b"", 0, ())


def answer(plan: list[tuple[int, str]], question: DueQuestion) -> DueReply:
    """Return the page that Redis would: behind an instant, or behind one schedule of it."""
    after = (question.after_ms, question.after_id or "~")
    soon = [each for each in plan if after < each and each[0] <= question.until_ms]
    page = soon[: question.limit]
    rest = [score for score, _ in plan if score > question.until_ms]
    return DueReply(
        now_ms=NOW.now_ms, planned=len(plan), defined=len(plan), overdue=0, next_ms=min(rest, default=None),
        is_full=len(soon) > len(page), last_change="", is_late_full=False,
        seen=[seen(schedule, score) for score, schedule in page],
    )  # fmt: skip


@example([NOW.now_ms + AHEAD_MS])
@given(st.lists(st.integers(NOW.now_ms - 500, NOW.now_ms + 3 * AHEAD_MS), max_size=3 * PAGE))
def test_pages_hold_whatever_is_due_soon_each_schedule_once(scores: list[int]) -> None:
    """Also where many are due at one instant: the id decides; what comes later has its time at which it is read."""
    plan = sorted((score, f"s{number}") for number, score in enumerate(scores))
    cursor, found = DueCursor().caught_up(NOW), []
    for _ in range(len(plan) // FIRST_PAGE + 2):
        question = cursor.question(NOW, has_room=True, behind=0, is_reconciling=False)
        reply = answer(plan, question)
        found += [(each.score, each.schedule) for each in reply.seen]
        cursor = cursor.after(question, reply, behind=0)

    due = [each for each in plan if each[0] <= NOW.now_ms + AHEAD_MS]
    assert found == due
    assert not cursor.is_page_left
    later = [score for score, _ in plan if score > NOW.now_ms + AHEAD_MS]
    assert not later or NOW.now_ms < cursor.read_at_ms <= max(later[0] - AHEAD_MS, NOW.now_ms + AHEAD_MS // 2)


def test_a_page_that_reconciles_leaves_the_position_where_it_was() -> None:
    """It reads what the window should have held, and nothing that is soon."""
    cursor = replace(DueCursor(), covered=(NOW.now_ms, "s"), read_at_ms=7, is_page_left=True)
    question = cursor.question(NOW, has_room=True, behind=0, is_reconciling=True)

    after = cursor.after(question, answer([(NOW.now_ms - 600, "old")], question), behind=0)
    assert (after.covered, after.read_at_ms, after.is_page_left) == ((NOW.now_ms, "s"), 7, True)


def test_a_clock_that_was_set_forward_leaves_late_schedules_to_their_own_page() -> None:
    """Else they would be read as if they were on time."""
    cursor = replace(DueCursor(), covered=(NOW.now_ms - 60_000, "s"), is_late_left=False).caught_up(NOW)
    assert (cursor.covered, cursor.is_late_left) == ((NOW.now_ms - NOW.grace_ms, ""), True)
