"""Retry by exception, giving up, and running again: what is accepted, and what follows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from supervisor.core.retry import Again, GiveUp, Retry
from tests.kit.tables import table


@table(
    ("retry", "error", "is_tried"),
    [
        (Retry(), ValueError(), True),
        (Retry(on=OSError), ConnectionError(), True),
        (Retry(on=(OSError, KeyError)), KeyError(), True),
        (Retry(on=(OSError,)), ValueError(), False),
        (Retry(give_up_on=(PermissionError,)), ValueError(), True),
        (Retry(give_up_on=(PermissionError,)), PermissionError(), False),
        (Retry(on=(OSError,), give_up_on=(PermissionError,)), PermissionError(), False),
        (Retry(on=(OSError,), give_up_on=(PermissionError,)), TimeoutError(), True),
    ],
)
def test_an_error_is_worth_another_attempt_or_not(retry: Retry, error: BaseException, *, is_tried: bool) -> None:
    """Subclasses count, and giving up wins."""
    assert retry.tries_again(error) is is_tried
    assert retry.on_wire == Retry()


def test_delays_are_seconds_texts_or_timedeltas() -> None:
    """Runs carry seconds, whatever was written."""
    assert Retry(base="5s", cap=timedelta(minutes=2)) == Retry(base_s=5.0, cap_s=120.0)
    assert [Again(delay).delay_s for delay in (2, "5m", timedelta(hours=1))] == [2.0, 300.0, 3600.0]
    assert str(Again("5m")) == "again after 300 s"
    assert str(Again(0, "not there yet")) == "not there yet"
    assert GiveUp("no such mailbox").ends_run


@table(
    ("make", "message"),
    [
        (lambda: Retry(on="TimeoutError"), "on takes exception classes.*'TimeoutError'"),
        (lambda: Retry(give_up_on=(int,)), "give_up_on takes exception classes"),
        (lambda: Retry(base="soon"), "base: 'soon' is not a duration"),
        (lambda: Retry(base="2d"), "0 to 86400 seconds"),
        (lambda: Retry(cap=timedelta(seconds=-1)), "cap_s"),
        (lambda: Again(-1), "0 seconds to 366 days"),
        (lambda: Again("400d"), "0 seconds to 366 days"),
        (lambda: Again(None), "seconds, a duration"),
    ],
)
def test_what_could_not_be_meant_is_refused_where_it_is_written(make: Any, message: str) -> None:
    """At the definition, not at the first failure."""
    with pytest.raises(ValueError, match=message):
        make()
