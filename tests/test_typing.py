"""Code of users, right and wrong, as a type checker sees it."""

from __future__ import annotations

from tests.typing.judge import expected, verdict


def test_mypy_accepts_right_calls_and_refuses_wrong_ones() -> None:
    """A call that cannot be right is refused where it is written. ``make types`` asks pyright the same."""
    assert len(expected()) >= 30
    assert verdict("mypy") == []
