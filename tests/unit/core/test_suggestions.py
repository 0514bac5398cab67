"""Suggestions for misspelled names: useful among a few names, and bounded among those that somebody made up."""

from __future__ import annotations

import pytest

from supervisor.core import suggestions
from supervisor.core.suggestions import CHARS_MAX, COMPARED_MAX, closest


def test_a_misspelled_name_is_found_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measure takes long for long names that are alike: of a hundred thousand queues it sees the likely ones."""
    seen: list[int] = []
    measure = suggestions.get_close_matches

    def counted(name: str, names: dict[str, str], **options: float) -> list[str]:
        seen.append(len(names))
        return measure(name, names, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(suggestions, "get_close_matches", counted)
    known = [f"{letter}{number:04}" for letter in "abcdefghij" for number in range(1000)]
    assert closest("Reprots", [*known, "reports", "r" * (CHARS_MAX + 1)]) == ["reports"]
    assert closest("r" * (CHARS_MAX + 1), known) == []
    assert seen == [COMPARED_MAX]
