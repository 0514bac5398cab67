"""Deals the cases of a test: a share for every run of the tests, the rest for the long ones."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def share(cases: Iterable[object], step: int) -> list[Any]:
    """Return all cases; of ``step`` in a row, all but the first are for the long tests."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if n % step == 0 else pytest.mark.long)
        for n, case in enumerate(cases)
    ]


def deal(items: Sequence[pytest.Item], step: int) -> None:
    """Leave to the long tests all but one of ``step`` of these cases of a test, from a place that its name chooses."""
    short = [each for each in items if each.get_closest_marker("long") is None]
    first = zlib.crc32(short[0].nodeid.partition("[")[0].encode()) % min(step, len(short)) if short else 0
    for n, each in enumerate(short):
        if n % step != first:
            each.add_marker(pytest.mark.long)
