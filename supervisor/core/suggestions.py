"""Suggestions for misspelled names, by one measure of likeness everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LIKENESS_MIN = 0.6
SUGGESTIONS_MAX = 3


def closest(name: str, known: Iterable[str], *, count: int = 1, likeness_min: float = LIKENESS_MIN) -> list[str]:
    """Return at most ``count`` of ``known`` that resemble ``name``, the most similar first; capitals do not count."""
    by_lower = {each.lower(): each for each in known}
    return [by_lower[each] for each in get_close_matches(name.lower(), by_lower, n=count, cutoff=likeness_min)]


def suggestion(name: str, known: Iterable[str], otherwise: str = "", *, count: int = 1) -> str:
    """Return the names that ``name`` may mean, as a question; ``otherwise`` where none resembles it."""
    close = closest(name, known, count=count)
    return f"did you mean {', '.join(close)}?" if close else otherwise
