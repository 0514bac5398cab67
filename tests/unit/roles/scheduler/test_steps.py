"""Driving a generator of steps: answers go in, Tenure's errors go in, everything else crashes."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.effects import Sleep, Step, Steps, drive
from supervisor.core.errors import StoreUnavailableError


def add_two() -> Steps[int]:
    first = yield Sleep(1)
    second = yield Sleep(2)
    return int(first) + int(second)


def test_answers_reach_the_step_that_asked() -> None:
    """In order, and the result comes back."""
    assert drive(add_two(), lambda step: step.until_ns) == 3  # type: ignore[union-attr]  # only sleeps are asked


def test_errors_of_the_store_are_thrown_where_the_step_waits() -> None:
    """The generator decides about them."""

    def careful() -> Steps[str]:
        try:
            yield Sleep(1)
        except StoreUnavailableError:
            return "noticed"
        return "not noticed"

    def away(_step: Step) -> Any:
        raise StoreUnavailableError("away")

    assert drive(careful(), away) == "noticed"


def test_other_errors_crash_the_role() -> None:
    """A wrong program must not go on."""

    def wrong(_step: Step) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        drive(add_two(), wrong)
