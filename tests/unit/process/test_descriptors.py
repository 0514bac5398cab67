"""The limit of open files is told where it is low."""

from __future__ import annotations

import resource

import pytest

from supervisor.process.system.descriptors import DESCRIPTORS_MIN, descriptors_short


@pytest.mark.parametrize(
    ("soft", "short"),
    [
        (DESCRIPTORS_MIN - 1, DESCRIPTORS_MIN - 1),
        (DESCRIPTORS_MIN, None),
        (resource.RLIM_INFINITY, None),
    ],
)
def test_a_low_limit_of_open_files_is_told(monkeypatch: pytest.MonkeyPatch, soft: int, short: int | None) -> None:
    """The web child would refuse probes for want of descriptors before it is out of places."""
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, resource.RLIM_INFINITY))

    assert descriptors_short() == short
