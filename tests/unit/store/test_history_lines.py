"""Lines of the histories: what a worker writes is what people read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.model import Outcome
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
