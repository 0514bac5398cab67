"""Forks the child of a slot.

Through ``multiprocess`` with the fork method, for the work of its process object in the
child; without its two pipes per child, which siblings and grandchildren inherit, which
delay the news of a death, and which leak when a fork fails. Nothing else of it is used.
"""

from __future__ import annotations

import contextlib
import mmap
import os

import multiprocess
import multiprocess.popen_fork
import multiprocess.process

from supervisor.core.supervision.scoreboard import MAGIC, Board, board_words
from supervisor.core.supervision.slot import Group
from supervisor.core.units import SECOND_NS
from supervisor.process import child
from supervisor.process.slots import ChildIdentity, Log, SlotSpec
from supervisor.process.system import linux

FORK_BURST = 20
FORKS_PER_S = 5
OOM_SCORE_POINTS = 300  # of all but the server, which holds the data and goes last


class _Popen(multiprocess.popen_fork.Popen):  # type: ignore[misc]  # the library has no types
    def __init__(self, process_obj: object) -> None:
        # In place of the library's, whose flush fails for ever once the reader of our output is gone.
        self.returncode = None
        self.finalizer = None
        child.flush_streams()
        self._launch(process_obj)

    def _launch(self, process_obj: object) -> None:
        self.sentinel = -1
        self.pid = os.fork()
        if self.pid == 0:
            code = child.EXIT_INTERNAL
            try:
                code = process_obj._bootstrap(parent_sentinel=None)  # type: ignore[attr-defined]  # noqa: SLF001
            finally:
                os._exit(code)


class _Process(multiprocess.get_context("fork").Process):  # type: ignore[misc]  # the library has no types
    @staticmethod
    def _Popen(process_obj: object) -> _Popen:  # noqa: N802  # the library's hook
        return _Popen(process_obj)


def fork(spec: SlotSpec, launch: ChildIdentity, log: Log) -> int:
    """Start the child and return its pid. Raises OSError when the kernel has no process or memory to give."""
    threads = linux.thread_count()
    assert threads == 1, f"the parent has {threads} threads; a fork would copy locks that nobody will release"
    process = _Process(target=child.enter, args=(spec, launch, log), name=spec.name)
    with linux.raised_oom_score(0 if spec.group is Group.EMBEDDED else OOM_SCORE_POINTS):
        process.start()
    # Left there, the library would wait for it at the next start, and its status would never reach us.
    multiprocess.process._children.discard(process)  # noqa: SLF001
    pid: int = process.pid
    if spec.group is not Group.EMBEDDED:
        # The child does the same; whoever comes first, the group exists before anybody kills it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)
    return pid


class ForkBudget:
    """A token bucket over all restarts of a tree, so that many slots cannot make a storm together."""

    def __init__(self) -> None:
        self._empty_until_ns = 0  # the bucket as one number: when it will be full again

    def take(self, now_ns: int) -> None:
        """Take the token that ``next_ns`` promised."""
        assert self.next_ns(now_ns) <= now_ns
        self._empty_until_ns = max(self._empty_until_ns, now_ns) + SECOND_NS // FORKS_PER_S

    def next_ns(self, now_ns: int) -> int:
        """Return when the next token is there; ``now_ns`` if one is."""
        return max(now_ns, self._empty_until_ns - (FORK_BURST - 1) * SECOND_NS // FORKS_PER_S)


WORD_BYTES = 8


def allocate(*, slots: int, inflight: int) -> Board:
    """Return an empty board that every process forked from now on shares.

    A memfd has no name, so ``kill -9`` of the tree leaks nothing and no tracker process is
    needed. Every word is stored through a memoryview of 8-byte items: ``struct.pack_into``
    writes a zero first, and readers saw it in one of fourteen reads.
    """
    assert slots > 0
    size = board_words(slots=slots, inflight=inflight) * WORD_BYTES
    descriptor = os.memfd_create("tenure-scoreboard", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
        memory = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(descriptor)  # the mapping keeps the memory
    board = Board(memoryview(memory).cast("Q"), slots=slots, inflight=inflight)
    board.header.magic = MAGIC
    board.header.slots = slots
    board.header.inflight = inflight
    return board
