"""Output of runs as it is followed: each line once, however long lines are and wherever the cut lies."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.operations.runs import text_after
from supervisor.store.queues.run_records import AttemptLog
from supervisor.telemetry.run_context import HALF_BYTES, RunOutput

SIZES = st.one_of(st.integers(0, 40), st.integers(2000, 5000), st.integers(HALF_BYTES - 50, 3 * HALF_BYTES))
PLACE = re.compile(r"<(\d+) ")


def seen(output: RunOutput, *, is_over: bool) -> AttemptLog:
    """Return an output as it lies in Redis at this moment."""
    return AttemptLog(1, 1, "job", "default", "w", 1, 2, not is_over, *output.excerpt(is_over=is_over))


@example(sizes=[40_000, 0, 0, 40_000, 0], pieces=1)
@example(sizes=[0, 2100, 2100] + [3000] * 30, pieces=3)
@example(sizes=[200_000], pieces=9)
@given(st.lists(SIZES, min_size=1, max_size=30), st.integers(1, 9))
def test_each_line_is_told_once_and_no_cut_is_hidden(sizes: list[int], pieces: int) -> None:
    """Told after each write, and twice after the end; what was left out is named where it was."""
    text = "\n".join(f"<{n} {'x' * size}>" for n, size in enumerate(sizes))
    output, told, lines = RunOutput(), [], 0
    at = [len(text) * n // pieces for n in range(pieces + 1)]
    for begin, end in pairwise(at):
        output.add(text[begin:end])
        for _ in range(2):
            new, lines = text_after(seen(output, is_over=False), lines)
            told.append(new)
            assert new.endswith("\n") or not new
    for _ in range(2):
        new, lines = text_after(seen(output, is_over=True), lines)
        told.append(new)

    places = [int(place) for place in PLACE.findall("".join(told))]
    assert places == sorted(set(places))
    assert told[-1] == ""
    assert places[0] == 0
    assert "lines cut" in "".join(told) or "".join(told) == text


def test_a_long_line_that_grows_is_told_once_and_so_is_what_follows() -> None:
    """The cut then lies inside it, and its end is nowhere near."""
    output, lines, told = RunOutput(), 0, ""
    for text in ("begin\n<", *["x" * 3000] * 60, ">\n", *(f"{n} {'y' * 3000}\n" for n in range(9))):
        output.add(text)
        for _ in range(2):
            new, lines = text_after(seen(output, is_over=False), lines)
            told += new
    assert [line.split()[0] for line in told.splitlines() if "<" not in line and "x" not in line] == [
        "begin",
        "…",
        *map(str, range(9)),
    ]
    assert (told.count("<"), told.count(">")) == (1, 1)
