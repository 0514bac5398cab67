"""The memory under the scoreboard: anonymous, shared by fork, gone with its last process.

A memfd has no name, so ``kill -9`` of the tree leaks nothing and no tracker process is
needed. Every word is stored through a memoryview of 8-byte items: ``struct.pack_into``
writes a zero first, and readers saw it in one of fourteen reads.
"""

from __future__ import annotations

import mmap
import os

from supervisor.core.supervision.scoreboard import MAGIC, Board, board_words

WORD_BYTES = 8


def allocate(*, slots: int, inflight: int) -> Board:
    """Return an empty board that every process forked from now on shares."""
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
