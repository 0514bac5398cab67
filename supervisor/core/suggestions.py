"""Suggestions for misspelled names, by one measure of likeness everywhere.

Guarantees
    A suggestion costs a bounded time: the measure takes the product of two lengths, and names may come from anybody.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from difflib import get_close_matches

LIKENESS_MIN = 0.6
SUGGESTIONS_MAX = 3
CHARS_MAX = 100
"""Of the longest name that is compared."""

COMPARED_MAX = 200
"""How many known names are compared: those that begin alike, of about the same length."""


def closest(name: str, known: Iterable[str], *, count: int = 1, likeness_min: float = LIKENESS_MIN) -> list[str]:
    """Return at most ``count`` of ``known`` that resemble ``name``, the most similar first; capitals do not count."""
    if len(name) > CHARS_MAX:
        return []
    by_lower = {each.lower(): each for each in known if len(each) <= CHARS_MAX}
    if len(by_lower) > COMPARED_MAX:
        begin, length = name.lower()[:1], len(name)
        likely = heapq.nsmallest(COMPARED_MAX, by_lower, key=lambda each: (each[:1] != begin, abs(len(each) - length)))
        by_lower = {each: by_lower[each] for each in likely}
    return [by_lower[each] for each in get_close_matches(name.lower(), by_lower, n=count, cutoff=likeness_min)]


def suggestion(name: str, known: Iterable[str], otherwise: str = "", *, count: int = 1) -> str:
    """Return the names that ``name`` may mean, as a question; ``otherwise`` where none resembles it."""
    close = closest(name, known, count=count)
    return f"did you mean {', '.join(close)}?" if close else otherwise
