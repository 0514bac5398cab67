"""Deals the cases of a test: a share for every run of the tests, the rest for the long ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def share(cases: Iterable[object], step: int) -> list[Any]:
    """Return all cases; of ``step`` in a row, all but the first are for the long tests."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if n % step == 0 else pytest.mark.long)
        for n, case in enumerate(cases)
    ]
