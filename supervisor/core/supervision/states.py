"""States of a tree, its slots, children and runs, and what children ask for: the meaning of words on the board."""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """Phase of the whole tree; written by the parent."""

    STARTING = 0
    READY = 1
    RELOADING = 2
    DRAINING = 3  # first signal: finish what runs
    KILLING = 4  # second signal: all at once


class SlotState(IntEnum):
    """State of one slot; written by the parent (core/supervision/slot.py decides)."""

    STOPPED = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    KILLING = 4
    BACKOFF = 5
    FATAL = 6

    @property
    def has_process(self) -> bool:
        """True if a process of this slot's generation may be alive."""
        return self in {SlotState.STARTING, SlotState.RUNNING, SlotState.STOPPING, SlotState.KILLING}


class ChildState(IntEnum):
    """State of a child, as it reports it itself."""

    BOOTING = 0
    READY = 1
    DRAINING = 2


class Verb(IntEnum):
    """Verbs of requests from a child to the parent."""

    NONE = 0
    KILL = 1  # kill the process of (slot, generation): its run overran its deadline
    RESTART = 2
    RECYCLE = 3  # replace the process of (slot, generation) by a fresh one that is started first
    QUIET = 4  # drain the process of (slot, generation), and start none in its place until told
    RESUME = 5  # start what was made quiet
    STACKS = 6  # make the process of (slot, generation) write its stacks into the log
    RELOAD = 7  # of the whole tree, as SIGHUP does
    STOP = 8  # of the whole tree, as SIGTERM does


class UnwantedReason(IntEnum):
    """Reason for ending a run, as the agent passes it to the worker."""

    REPLACED = 0  # a newer run of its schedule takes its place
    CANCELLED = 1  # a person asked for it


class RunState(IntEnum):
    """State of a run within the worker that fetched it."""

    FREE = 0
    FETCHED = 1  # it is being read and prepared
    STARTED = 2
    DONE = 3
    WAITING = 4  # prepared, or behind another one: nothing is done about it now
