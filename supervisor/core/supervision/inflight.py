"""The in-flight table of a worker: its runs, on the board, so that blame is fair after it died."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b

INFLIGHT_WORDS = 3
RunKey = tuple[str, str]
"""Queue and id of a run: an id names one run of its queue, and says nothing of other queues."""


class RunState(IntEnum):
    """State of a run within the worker that fetched it."""

    FREE = 0
    FETCHED = 1  # it is being read and prepared
    STARTED = 2
    DONE = 3
    WAITING = 4  # prepared, or behind another one: nothing is done about it now


_STATES = {state.value: state for state in RunState}


@dataclass(frozen=True, slots=True)
class Inflight:
    """One entry of a worker's in-flight table."""

    execution: int  # execution_hash
    attempt: int
    state: RunState
    deadline_ns: int


class InflightTable:
    """Runs held by one worker, so that blame is fair after it died. Written by that worker alone."""

    def __init__(self, words: memoryview) -> None:
        self.words = words
        self.size = len(words) // INFLIGHT_WORDS

    def put(self, index: int, *, execution: int, attempt: int, state: RunState, deadline_ns: int = 0) -> None:
        """Write entry ``index``; the state goes in last, so that a half-written entry reads as free."""
        assert 0 <= index < self.size
        at = index * INFLIGHT_WORDS
        self.words[at + 1] = 0
        self.words[at] = execution
        self.words[at + 2] = deadline_ns
        self.words[at + 1] = attempt << 8 | state

    def mark(self, index: int, *, attempt: int, state: RunState, deadline_ns: int = 0) -> None:
        """Move entry ``index`` on to ``state``; whose run it is stays."""
        at = index * INFLIGHT_WORDS
        self.words[at + 2] = deadline_ns
        self.words[at + 1] = attempt << 8 | state

    def clear(self, index: int) -> None:
        """Free entry ``index``."""
        self.words[index * INFLIGHT_WORDS + 1] = 0

    def clear_all(self) -> None:
        """Free every entry: a new generation starts."""
        for index in range(self.size):
            self.clear(index)

    @property
    def is_empty(self) -> bool:
        """True if the worker holds nothing."""
        return not any(self.words[index * INFLIGHT_WORDS + 1] & 0xFF for index in range(self.size))

    def entries(self) -> Iterator[Inflight]:
        """Yield every entry that is not free. An unknown state, left by a broken process, counts as started."""
        for index in range(self.size):
            at = index * INFLIGHT_WORDS
            word = self.words[at + 1]
            if word & 0xFF:
                state = _STATES.get(word & 0xFF, RunState.STARTED)
                yield Inflight(self.words[at], word >> 8, state, self.words[at + 2])


def execution_hash(run: RunKey, fetched_ms: int) -> int:
    """Return a 64-bit hash of one execution on the board, by its run and when it was fetched; never 0."""
    return int.from_bytes(blake2b(f"{run[0]} {run[1]} {fetched_ms}".encode(), digest_size=8).digest(), "big") | 1
