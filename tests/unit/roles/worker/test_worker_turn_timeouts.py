"""The timeout of a turn grows while none is answered, and follows what turns take."""

from __future__ import annotations

from supervisor.roles.worker.polling.turn_timeout import TurnTimeout
from supervisor.settings.sections.models import Settings


def test_it_doubles_to_its_end_and_falls_back_with_the_first_quick_answer() -> None:
    """A turn is asked again as it was, so it must have longer; an answer ends that."""
    timeout = TurnTimeout(Settings())
    seen = [timeout.seconds]
    for _ in range(4):
        timeout.unanswered(timeout.seconds)
        seen.append(timeout.seconds)
    assert seen == [2, 4, 7.5, 7.5, 7.5]

    timeout.answered(0.01)
    assert timeout.seconds == 2


def test_after_a_slow_answer_the_next_turn_begins_with_enough() -> None:
    """Else each large turn would be sent several times over the link that is slow already."""
    timeout = TurnTimeout(Settings())
    timeout.answered(3)
    assert timeout.seconds == 6
    timeout.answered(5)
    assert timeout.seconds == 7.5


def test_a_process_beats_and_runs_begin_before_they_are_given_up() -> None:
    """Whichever of the two comes first; but a turn has as much time as any other call."""
    lease = TurnTimeout(Settings(queues={"session_lease": "8s"}))
    hang = TurnTimeout(Settings(supervision={"hang_timeout": "4s"}))
    both = TurnTimeout(Settings(queues={"session_lease": "1s"}, redis={"command_timeout": "3s"}))
    for timeout in (lease, hang, both):
        for _ in range(5):
            timeout.unanswered(timeout.seconds)
    assert [lease.seconds, hang.seconds, both.seconds] == [4, 2, 3]


def test_a_turn_that_is_refused_at_once_gets_no_more_time() -> None:
    """Redis restarts, or loads: the first turn over a silent connection would wait for long then."""
    timeout = TurnTimeout(Settings())
    for _ in range(5):
        timeout.unanswered(0.01)
    assert timeout.seconds == 2
