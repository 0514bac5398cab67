"""The limit of open files is told where it is low."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from supervisor.core.errors import ConfigError
from supervisor.process.system.linux import (
    DESCRIPTORS_LEAST,
    DESCRIPTORS_MIN,
    descriptors_short,
    raise_descriptor_limit,
)


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


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (32, 4096, (DESCRIPTORS_MIN, 4096)),
        (32, resource.RLIM_INFINITY, (DESCRIPTORS_MIN, resource.RLIM_INFINITY)),
        (32, 64, (64, 64)),
        (4096, 8192, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
def test_a_tree_raises_its_soft_limit_of_open_files(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: tuple[int, int] | None
) -> None:
    """As far as it needs and as the hard limit allows; a higher one stays."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: asked.append(limits))

    raise_descriptor_limit()

    assert asked == ([] if raised is None else [raised])


def test_a_start_with_too_few_open_files_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children would fail one after another with errors of their own."""
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (32, DESCRIPTORS_LEAST - 1))

    with pytest.raises(ConfigError, match=r"the hard limit of open files is 63, .* LimitNOFILE="):
        raise_descriptor_limit()


def test_a_child_lets_go_of_files_above_a_limit_that_was_lowered() -> None:
    """Whoever started the tree may have opened them before; they end no child."""
    child = """
import os, resource, sys
from supervisor.process.child import _let_go_of_descriptors
high = os.dup2(1, 200)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
_let_go_of_descriptors(keep={0, 1, 2})
try:
    os.fstat(high)
except OSError:
    print("let go")
"""
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=False)

    assert done.stdout == "let go\n", done.stderr
