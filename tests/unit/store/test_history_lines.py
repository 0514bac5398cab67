"""Lines of the histories: what a worker writes is what people read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.model import Outcome
from supervisor.store.schedules.fire import LogEntry
from supervisor.store.wire.poll import Ack, HistoryEntry, history_line, parse_history

WORDS = st.text(st.characters(codec="utf-8"), max_size=300)


@given(outcome=st.sampled_from(Outcome), attempt=st.integers(1, 99), job=WORDS, note=WORDS)
def test_the_line_of_an_attempt_is_read_as_it_was_written(
    *, outcome: Outcome, attempt: int, job: str, note: str
) -> None:
    """Bars and line breaks in a job's name or a note move no field; a note is cut, not refused."""
    ack = Ack(
        run_id="s@1/2",
        queue="q",
        attempt=attempt,
        outcome=outcome,
        started_ms=7,
        ended_ms=9,
        job=job,
        history_note=note,
    )

    assert parse_history([history_line("h/w-0", ack).encode()]) == [
        HistoryEntry(
            run_id="s@1/2",
            outcome=outcome.value,
            attempt=attempt,
            session="h/w-0",
            started_ms=7,
            ended_ms=9,
            job=job.replace("|", "/"),
            note=" ".join(note.split())[:200],
        )
    ]


@pytest.mark.parametrize("line", [b"", b"a|ok|1|s|1|2|j", b"a|ok|x|s|1|2|j|", b"a|ok|1|s||2|j|"])
def test_a_foreign_line_is_passed_over(line: bytes) -> None:
    """Who looks at a history sees the others."""
    assert parse_history([line]) == []


@pytest.mark.parametrize("number", ["", "x", "-1", "1.5", "²", "9" * 5000])
def test_a_line_with_a_number_that_nobody_wrote_hides_no_other(number: str) -> None:
    """One such line refused the whole history of a queue."""
    ours = b"r|ok|1|s|5|6|j|"
    theirs = [f"r|ok|{number}|s|5|6|j|", f"r|ok|1|s|{number}|6|j|", f"r|ok|1|s|5|{number}|j|"]
    assert len(parse_history([*(line.encode() for line in theirs), ours])) == 1


@pytest.mark.parametrize(
    "line",
    ["", "rubbish", "s 1 2 r FIRED 0", "s x 2 r FIRED 0 3", f"s {'9' * 5000} 2 r FIRED 0 3", "s 1 2 r NEWER 0 3"],
)
def test_a_decision_that_no_version_up_to_this_one_wrote_is_left_out(line: str) -> None:
    """A newer leader's during a rolling update, too."""
    assert LogEntry.parse(line) is None
    assert LogEntry.parse("s 1 2 r FIRED 0 3") is not None
