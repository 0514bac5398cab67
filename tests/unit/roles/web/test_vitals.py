"""Reading /proc."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.roles.web.metrics import read_vitals


def test_a_process_has_time_memory_and_descriptors() -> None:
    """Our own values must be plausible, and a new descriptor must show."""
    before = read_vitals(os.getpid())
    read, write = os.pipe()
    after = read_vitals(os.getpid())
    os.close(read)
    os.close(write)

    assert before is not None
    assert after is not None
    assert 0 < before.cpu_s <= after.cpu_s
    assert before.rss_bytes > 1_000_000
    assert after.fds == (before.fds or 0) + 2


def test_a_process_that_is_gone_has_none() -> None:
    """Children die between the look at the board and the look at /proc."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)

    assert read_vitals(pid) is None


def test_a_name_full_of_parentheses_is_read_right() -> None:
    """The kernel puts the name in parentheses and does not escape it."""
    comm = Path("/proc/self/comm")
    name = comm.read_text()
    comm.write_text("a) R (1 2")
    try:
        vitals = read_vitals(os.getpid())
    finally:
        comm.write_text(name)

    assert vitals is not None
    assert vitals.rss_bytes > 1_000_000
