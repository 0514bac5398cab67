"""When a foreign session is dead: only after a whole lease of unbroken silence on this machine's clock."""

from __future__ import annotations

from supervisor.roles.agent.sessions.tasks import SessionWatch

S = 10**9


def watch() -> SessionWatch:
    return SessionWatch(lease_ns=15 * S, period_ns=3 * S)


def test_a_counter_that_stands_still_for_a_whole_lease_is_dead() -> None:
    """Not a moment sooner."""
    seen = watch()
    for at in range(0, 15, 3):
        assert seen.reading({"a": 5}, ours=(), now_ns=at * S) == []

    assert seen.reading({"a": 5}, ours=(), now_ns=15 * S) == [("a", 5)]


def test_a_slow_answer_does_not_shorten_the_lease() -> None:
    """What it told was true when it came, not when it was asked for."""
    seen = watch()
    seen.reading({"a": 5}, ours=(), now_ns=0, answered_ns=S)
    assert seen.due_ns() == 16 * S
    for at in range(3, 16, 3):
        assert seen.reading({"a": 5}, ours=(), now_ns=at * S) == []

    assert seen.reading({"a": 5}, ours=(), now_ns=16 * S) == [("a", 5)]


def test_a_beat_starts_the_wait_anew() -> None:
    """It lives."""
    seen = watch()
    for at in range(0, 30, 3):
        assert seen.reading({"a": at // 12}, ours=(), now_ns=at * S) == []


def test_a_gap_in_the_readings_proves_nothing() -> None:
    """This machine slept, or Redis was away: nobody could have beaten that it would have seen."""
    seen = watch()
    seen.reading({"a": 5}, ours=(), now_ns=0)

    assert seen.reading({"a": 5}, ours=(), now_ns=60 * S) == []


def test_an_interruption_starts_every_wait_anew() -> None:
    """Redis did not answer once; its other clients may have been cut off for all of the time."""
    seen = watch()
    for at in range(0, 15, 3):
        seen.reading({"a": 5}, ours=(), now_ns=at * S)
    seen.interrupted()

    assert seen.reading({"a": 5}, ours=(), now_ns=15 * S) == []


def test_sessions_of_the_tree_that_was_here_before_are_dead_after_two_beats() -> None:
    """Its lock is free, so it is no more; a beat says that the lock was of another machine's disk."""
    seen = SessionWatch(lease_ns=15 * S, period_ns=3 * S, predecessor="here.0a")
    counters = {"here.0a/worker-io-0/1": 5, "here.0ab/worker-io-0/1": 5}
    assert seen.reading(counters, ours=(), now_ns=0) == []
    assert seen.due_ns() == 6 * S
    assert seen.reading({**counters, "here.0a/worker-io-0/1": 6}, ours=(), now_ns=3 * S) == []
    assert seen.reading({**counters, "here.0a/worker-io-0/1": 6}, ours=(), now_ns=8 * S) == []

    assert seen.reading({**counters, "here.0a/worker-io-0/1": 6}, ours=(), now_ns=9 * S) == [
        ("here.0a/worker-io-0/1", 6)
    ]


def test_our_own_sessions_are_not_judged_here() -> None:
    """The board knows more about them."""
    seen = watch()
    for at in range(0, 30, 3):
        assert seen.reading({"a": 5}, ours={"a"}, now_ns=at * S) == []


def test_a_session_that_closed_is_forgotten() -> None:
    """Its name may come back."""
    seen = watch()
    seen.reading({"a": 5}, ours=(), now_ns=0)
    seen.reading({}, ours=(), now_ns=3 * S)
    for at in range(6, 21, 3):
        assert seen.reading({"a": 5}, ours=(), now_ns=at * S) == []
