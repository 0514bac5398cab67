"""When a failed run is tried again."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.retry import ATTEMPTS_MAX, Retry


@given(
    attempts=st.integers(1, ATTEMPTS_MAX),
    base_s=st.floats(0, 1000),
    attempt=st.integers(1, ATTEMPTS_MAX),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_a_delay_is_within_its_ceiling_and_ends_with_the_last_attempt(
    attempts: int, base_s: float, attempt: int, uniform: float
) -> None:
    """Full jitter: any value from nothing to the ceiling, and no attempt beyond the last."""
    retry = Retry(attempts=attempts, base_s=base_s, cap_s=2000)

    delay_s = retry.delay_s(attempt, uniform)

    if attempt >= attempts:
        assert delay_s is None
    else:
        assert delay_s is not None
        assert 0 <= delay_s <= min(2000, base_s * 2.0 ** (attempt - 1))


def test_the_ceiling_doubles_until_its_cap() -> None:
    """The documented table, with a draw just under one."""
    retry = Retry(attempts=6, base_s=2, cap_s=10)

    ceilings = [retry.delay_s(attempt, 0.999_999_999) for attempt in range(1, 7)]

    assert [None if delay is None else round(delay, 3) for delay in ceilings] == [2, 4, 8, 10, 10, None]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"attempts": 0}, "attempts"),
        ({"attempts": 101}, "attempts"),
        ({"base_s": -1.0}, "base_s"),
        ({"base_s": 10.0, "cap_s": 5.0}, "cap_s"),
        ({"cap_s": 1e9}, "cap_s"),
        ({"base_s": float("nan")}, "base_s"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(values: dict[str, float], field: str) -> None:
    """The message names the field, so that the line in the code is found at once."""
    with pytest.raises(ValueError, match=f"Retry.{field}"):
        Retry(**values)


def test_it_survives_the_wire_and_is_checked_there_too() -> None:
    """Envelopes carry it: what another version wrote must not bring an endless retry in."""
    retry = Retry(attempts=5, base_s=1.5)

    assert msgspec.json.decode(msgspec.json.encode(retry), type=Retry) == retry
    with pytest.raises(msgspec.ValidationError, match="attempts"):
        msgspec.json.decode(b'{"attempts": 1000}', type=Retry)
