"""Output of an attempt beside its result: counts, errors, children, runs that follow, steps.

Guarantees
    It travels with the acknowledgement of the attempt, so it counts once or not at all (adr/0030). Of an attempt that
    gave its run up, only the errors do.
    Names and sizes are checked where the job gives them.

Does not guarantee
    More than ``ERRORS_MAX`` errors by their text: all of them are counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from supervisor.store.wire.poll import Child
from supervisor.telemetry.masking import mask_text, text_of

NAMES_MAX = 32
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)
COUNT_MAX = 10**15
ERRORS_MAX = 100
CODE_CHARS_MAX = 64
MESSAGE_CHARS_MAX = 300
KEEP_MS_MIN = 60_000
FOLLOW_WHEN = ("complete", "success")


class Leavings:
    """Of one attempt."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.errors: list[tuple[str, str]] = []
        self.errors_more = 0
        """How many errors came after the first hundred."""

        self.has_steps = False

    def count(self, name: str, number: int) -> None:
        """Add ``number`` to the counter ``name``.

        Raises:
            ValueError: one of them is unusable, or there are too many names.
        """
        if not NAME.fullmatch(name):
            raise ValueError(
                f"count name {name[:80]!r} must be 1 to 64 of A-Z a-z 0-9 _ . - and begin with a letter or _"
            )
        total = self.counts.get(name, 0) + number if isinstance(number, int) and not isinstance(number, bool) else None
        if total is None or abs(total) > COUNT_MAX:
            raise ValueError(f"count {name} takes whole numbers up to {COUNT_MAX} together, got {number!r}")
        if name not in self.counts and len(self.counts) >= NAMES_MAX:
            raise ValueError(f"count {name}: a run counts up to {NAMES_MAX} things; it has {', '.join(self.counts)}")
        self.counts[name] = total

    def error(self, code: str, message: str) -> None:
        """Note an error that did not end the run."""
        if len(self.errors) >= ERRORS_MAX:
            self.errors_more += 1
            return
        text = mask_text(text_of(message), MESSAGE_CHARS_MAX)
        self.errors.append((_short(code, CODE_CHARS_MAX), _short(text, MESSAGE_CHARS_MAX)))

    @property
    def note(self) -> str:
        """Counts as text, for the run's line in the history."""
        words = [f"{name}={number}" for name, number in self.counts.items()]
        told = len(self.errors) + self.errors_more
        return " ".join([*words, f"errors={told}"] if told else words)

    def pack(self, *, children: Sequence[Child] = (), follow: Sequence[str] = (), keep_s: float) -> bytes | None:
        """Return it as an acknowledgement carries it; None when there is nothing."""
        found: dict[str, Any] = {}
        if self.counts:
            found["counts"] = self.counts
        if self.errors:
            found["errors"] = self.errors
        if self.errors_more:
            found["errors_more"] = self.errors_more
        if follow:
            found["then"] = follow
        if self.has_steps:
            found["steps"] = True
        if not (found or children):
            return None
        return msgspec.json.encode({"keep": max(KEEP_MS_MIN, round(1000 * keep_s)), **found})


def _short(text: Any, limit: int) -> str:
    line = " ".join(str(text).encode("utf-8", "replace").decode().split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
