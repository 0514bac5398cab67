"""Fresh identities: many at once mean what one at a time does."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.model import fresh_run_ids


@given(st.integers(0, 2**48 - 1), st.lists(st.binary(min_size=10, max_size=10), min_size=1, max_size=4))
def test_each_is_a_version_7_uuid_of_its_time(wall_ms: int, entropy: list[bytes]) -> None:
    """Readable by every library that knows RFC 9562, and sorted by time."""
    for run_id in fresh_run_ids(wall_ms, b"".join(entropy)):
        value = UUID(run_id)
        assert (str(value), value.version, value.variant) == (run_id, 7, "specified in RFC 4122")
        assert value.int >> 80 == wall_ms


@given(st.sets(st.integers(0, 2**74 - 1), min_size=2, max_size=5))
def test_no_two_draws_give_one_identity(draws: set[int]) -> None:
    """74 bits are kept; the six that the form takes are the only ones that may be lost."""
    parts = [(draw >> 62, draw >> 60 & 3, draw & (1 << 60) - 1) for draw in draws]
    entropy = b"".join((a << 68 | b << 64 | c << 4).to_bytes(10, "big") for a, b, c in parts)

    assert len(set(fresh_run_ids(1, entropy))) == len(draws)


def test_later_ones_sort_after_earlier_ones() -> None:
    """Lists of runs read in the order of their making."""
    assert fresh_run_ids(1_000, b"\xff" * 10) < fresh_run_ids(1_001, b"\x00" * 10)
