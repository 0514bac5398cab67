"""State machine of a row of a worker pool: its transitions, and the resulting order for its process.

A pool has more rows than processes, so that a successor can start while the old one still works.
The pool decides which move to make (core/supervision/pool.py); this module has the possible moves.
"""

from __future__ import annotations

from enum import Enum


class RowState(Enum):
    """Role of a row within its pool."""

    EMPTY = "empty"
    MEMBER = "member"
    QUIET = "quiet"  # a member without a process, by a person's wish; it keeps its place
    SUCCESSOR = "successor"  # is started for a member, which goes on meanwhile
    LEAVING = "leaving"  # told to go; its row is free once it has gone


class Move(Enum):
    """Transition of a row."""

    FILL = "fill"
    RESERVE = "reserve"  # a place in a pool that is quiet
    FOLLOW = "follow"
    PROMOTE = "promote"
    RETIRE = "retire"
    QUIET = "quiet"
    RESUME = "resume"
    GONE = "gone"


class Order(Enum):
    """Order for the process of a row."""

    START = "start"  # keep one up, from now on
    STOP = "stop"  # let it finish and go, and start none


_P, _M = RowState, Move

# Pairs that are absent are impossible, and raise. A test walks the full product.
MOVES: dict[tuple[RowState, Move], tuple[RowState, Order | None]] = {
    (_P.EMPTY, _M.FILL): (_P.MEMBER, Order.START),
    (_P.EMPTY, _M.RESERVE): (_P.QUIET, None),
    (_P.EMPTY, _M.FOLLOW): (_P.SUCCESSOR, Order.START),
    (_P.SUCCESSOR, _M.PROMOTE): (_P.MEMBER, None),
    (_P.SUCCESSOR, _M.RETIRE): (_P.LEAVING, Order.STOP),
    (_P.MEMBER, _M.RETIRE): (_P.LEAVING, Order.STOP),
    (_P.MEMBER, _M.QUIET): (_P.QUIET, Order.STOP),
    (_P.QUIET, _M.RESUME): (_P.MEMBER, Order.START),
    (_P.QUIET, _M.RETIRE): (_P.LEAVING, None),  # it was told already
    (_P.LEAVING, _M.GONE): (_P.EMPTY, None),
}


class ImpossibleMoveError(AssertionError):
    """A move that cannot happen to a row in this place: the parent has a bug."""

    def __init__(self, place: RowState, move: Move) -> None:
        super().__init__(f"a row that is {place.value} cannot {move.value}")
