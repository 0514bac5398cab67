"""What thousands of restarts leave behind: nothing. ``make bench-supervision`` does it 10,000 times."""

from __future__ import annotations

import pytest

from tests.integration.process.restarting import grown_after


@pytest.mark.long
def test_restarts_leave_no_memory_and_no_descriptor_behind() -> None:
    """A worker that is recycled every few minutes is restarted 10,000 times in a month or two."""
    grown_kib, descriptors = grown_after(400)

    assert grown_kib <= 1024
    assert descriptors == 0
